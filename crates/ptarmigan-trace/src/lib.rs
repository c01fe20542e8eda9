//! Recorded address-space activity.
//!
//! A trace says, in the order in which it happened, what the tasks of a real program asked of their address
//! spaces (`mmap`, `munmap`, `fork`, `execve` ...), which pages they faulted on, and what Linux itself then
//! reported as the size of each process's page tables (`VmPTE`), to check a replay against.
mod event;

pub use event::{AreaKind, CloneKind, Event, FaultFlags, Kind, MapFlags, Prot, Sampled};
