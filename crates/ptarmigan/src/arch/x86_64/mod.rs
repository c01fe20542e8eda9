//! Flushes the TLBs of x86 CPUs (Intel SDM volume 3, "Caching translation information"; AMD APM
//! volume 2, "Translation-lookaside buffer").
//!
//! # Which instruction does what
//!
//! | to forget | instruction |
//! |---|---|
//! | pages of the space that is loaded | `INVLPG` of each |
//! | the whole space that is loaded | a load of CR3 without bit 63 |
//! | pages of another PCID | `INVPCID` type 0 of each; type 1 if tables have gone |
//! | all of another PCID | `INVPCID` type 1 |
//! | pages of the kernel's half | `INVLPG` of each; if spaces have PCIDs and these pages may not be global, everything |
//! | all of the kernel's half | `INVPCID` type 2; a load of CR3 if there are neither global pages nor PCIDs |
//!
//! Without `INVPCID`, CR4.PGE is turned over and back, which drops everything.
//!
//! # Why PCIDs cost the kernel's half something
//!
//! `INVLPG` drops a page that is not global under the PCID that is loaded, and no other. A page of
//! the kernel's half is in every space, so it may be known under all of them. A kernel whose pages
//! are all global says so ([`Features::global_kernel`]).
//!
//! 32-bit x86 has the same instructions. A CPU before the Pentium Pro has no CR4.PGE: its features
//! are [`Features::NONE`].
//!
//! # Guests
//!
//! [`EptMmu`] and [`NptMmu`] flush second stages, of which no instruction forgets a single page.
//! What belongs to a VMCS or a VMCB is done by the hypervisor, behind [`EptCpu`] and [`NptCpu`].
mod cpu;
mod ept;
mod features;
mod instructions;
mod mmu;
mod npt;
mod tables;

pub use cpu::Cpu;
pub use ept::{EptCpu, EptMmu, Invept};
pub use features::Features;
pub use instructions::{Instructions, Invpcid};
pub use mmu::X86Mmu;
pub use npt::{NptCpu, NptMmu, PendingFlush, TlbControl};
pub use tables::Tables;
