//! Shootdowns: has all TLBs of a machine forget translations whose entries have changed.
//!
//! # The state, and its places
//!
//! * A space has a [generation](Generation), which every flush raises, and the sets of CPUs that
//!   run in it (*active*) or keep its root loaded while they run something else (*lazy*):
//!   [`SpaceTlb`].
//! * A CPU knows which space it has loaded, and the generation it has brought it to. Only the CPU
//!   itself looks.
//! * Below are an [`Mmu`], which acts on the TLB of its own CPU, or on all at once if it
//!   broadcasts, and an [`Ipi`], which gets the attention of others.
//!
//! # The protocol
//!
//! 1. *Change, then flush.* Entries are changed first. The flush raises the generation, then looks
//!    at the sets.
//! 2. *Enter, then look.* A CPU that loads a space enters its set first, then looks at the
//!    generation. So a flush finds the CPU in the set, or the CPU finds the generation raised and
//!    keeps no older translation.
//! 3. *Ask and wait.* Active CPUs are [asked](Tlb::serve) to catch up. Lazy CPUs are spared, as
//!    they look at the generation before they run in the space again; but if tables were unlinked,
//!    which their MMUs may walk, they leave the space (REQ-5).
//! 4. *Served between steps.* A request that finds its CPU in the middle of a switch or a flush
//!    stays unanswered until that is done.
//! 5. *Only then reuse.* Unlinked pages are used again when all that were asked have answered, lazy
//!    CPUs that were spared have left, and [readers](Readers) that may have found them have ended
//!    (REQ-4, REQ-17). The types of [`gather`](crate::gather) and [`page`](crate::page) enforce
//!    this step.
//!
//! ```text
//!  CPU 0 flushes             CPU 1, active             CPU 2, lazy
//!  clear entries, raise
//!  ask the active CPUs ────> invalidate, generation    not disturbed: looks when it runs again
//!    tables were unlinked ─────────────────────────>   unload: leaves the space
//!  all have answered   <──── answers <──────────────   answers
//!  reuse the pages
//! ```
//!
//! Instead of step 3, a flush may be [left](Tlb::catch_up) to the active CPUs, where the calls of a
//! program allow it ([`Unmapping::Deferred`](crate::space::Unmapping)): step 5 waits for them.
//!
//! A machine that broadcasts does step 3 by itself, by the number that the space has on all CPUs.
//!
//! The kernel's half belongs to no space: [`Tlb::flush_kernel`] reaches all CPUs, whatever they
//! have loaded.
//!
//! # Why
//!
//! A generation lets a CPU judge how far it is behind without a list of the flushes that it missed:
//! a list would need memory for every CPU that is idle, and would have to be drained before the
//! space runs. One that is a single step behind forgets the addresses named; one that is further
//! behind forgets the space. Interrupts are the dear part, so that a CPU is asked only if it could
//! otherwise use a stale entry.
mod asid;
mod catch_up;
mod config;
mod counts;
mod error;
mod hardware;
pub mod hash;
mod id;
mod kernel;
mod mailbox;
mod one_page;
mod plan;
mod readers;
mod request;
mod runs;
mod scope;
mod shootdown;
mod space;
mod state;
mod switch;

pub use config::TlbConfig;
pub use counts::{FlushCounts, KernelPlans};
pub use error::{TlbError, TlbRefusal, WrongMode};
pub use hardware::{Ipi, Mmu, Shootdown, Structures};
pub use id::{Generation, SpaceId};
pub use plan::{CostModel, Costs, Facts, Plan, Shape, SlotSet, Work};
pub use readers::{Readers, Reading};
pub use request::{Invalidation, KernelRoot, NewEntry, Root, Ticket};
pub use runs::Runs;
pub use scope::Scope;
pub use space::SpaceTlb;
pub use state::{FIRST_NAME, Tlb};

pub(crate) use readers::Epoch;
pub(crate) use shootdown::FlushFlags;
pub(crate) use space::Owed;
