//! Tells how a task goes on after a trap.

use super::Wait;
use crate::lock::KernelGuard;

/// The tasks that end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// One task.
    Task,
    /// All tasks of its process.
    Process,
}

/// The next step of a task after a trap.
pub(crate) enum After {
    /// It goes on.
    Resume,
    /// Others first. The lock is held.
    GiveWay(KernelGuard<'static>),
    /// A call of its waits. The lock is held, so that the event cannot have happened yet.
    Block(KernelGuard<'static>, Wait),
    /// It ends, or its process, with this status.
    End(Ends, i32),
}
