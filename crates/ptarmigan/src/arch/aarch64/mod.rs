//! Flushes the TLBs of AArch64 CPUs: at EL1 ([`Tlbi`]), and of guests at EL2 ([`Stage2`]) (Arm ARM,
//! "TLB maintenance instructions").
//!
//! # Which instruction does what
//!
//! | to forget | instruction, on all CPUs |
//! |---|---|
//! | pages of a space | `TLBI VALE1IS` of each, or `RVALE1IS` of each run |
//! | the same if tables have gone | `TLBI VAE1IS`, `RVAE1IS`: they drop links on the way as well |
//! | a whole space | `TLBI ASIDE1IS` |
//! | pages of the kernel's half | `TLBI VAAE1IS`, `RVAAE1IS` |
//! | all of the kernel's half | `TLBI VMALLE1IS` |
//!
//! `DSB ISHST` before them makes stores to tables visible to walks. `DSB ISH` after them waits
//! until all CPUs are done, and `ISB` has this CPU go on with what it finds then.
//!
//! Ranges are for CPUs with `FEAT_TLBIRANGE`. Where they have `FEAT_TTL`, `VALE1IS` and `RVALE1IS`
//! say that the entry is at the last level.
//!
//! # Two roots
//!
//! `TTBR0_EL1` holds the root of a space, and its ASID. The kernel's tree below `TTBR1_EL1` is not
//! touched. The kernel's root that a CPU loads when it leaves a space is an empty table.
//!
//! # New entries
//!
//! A CPU may keep an entry that denies an access and fault again and again. So the CPU that is told
//! of an entry that was valid forgets the page, by `TLBI VALE1`, which acts on that CPU alone:
//! another one is told at its own fault.
mod code;
mod cpu;
mod features;
mod instructions;
mod mmu;
mod operands;
mod ranges;
mod stage2;
mod tables;

pub use cpu::Cpu;
pub use features::{Features, Granule};
pub use instructions::{Barrier, GuestInstructions, GuestOp, Instructions, Op};
pub use mmu::Tlbi;
pub use stage2::Stage2;
pub use tables::Tables;
