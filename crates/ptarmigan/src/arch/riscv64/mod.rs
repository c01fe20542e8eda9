//! Flushes the TLBs of RISC-V harts (privileged specification, "Supervisor Memory-Management Fence
//! Instruction").
//!
//! # Which instruction does what
//!
//! | to forget | instruction |
//! |---|---|
//! | pages of a space | `SFENCE.VMA va, asid` of each |
//! | a whole space | `SFENCE.VMA x0, asid` |
//! | pages of the kernel's half | `SFENCE.VMA va, x0` of each |
//! | all of the kernel's half | `SFENCE.VMA x0, x0` |
//!
//! An invalidation by address says nothing of links, so a flush that frees tables is of a whole
//! space.
//!
//! # The mode
//!
//! A load of `satp` keeps the mode that is set (Sv39, Sv48 or Sv57): the kernel runs in it already,
//! and all roots are for it. The format of [`SfenceVma`] is that of the mode; where they differ,
//! [set-up](crate::setup::Setup) refuses.
//!
//! # ASIDs
//!
//! A hart may have fewer bits of ASIDs than `satp` has room for, or none. [`SfenceVma::new`] uses
//! none; `SfenceVma::detect` finds out. Spaces without a number of their own share the number 0
//! with the kernel, and are fenced at each load and unload.
//!
//! # Fences around a load
//!
//! A hart that has just written entries to a root walks them only after a fence, and it needs the
//! kernel's entries for its next instruction. So a root that is not known to the hart is loaded
//! between two fences: one for the entries, one for translations under the number that are older.
mod cpu;
mod instructions;
mod mmu;
mod tables;

pub use cpu::Cpu;
pub use instructions::Instructions;
pub use mmu::SfenceVma;
pub use tables::Tables;
