//! Events that calls wait for.

use crate::signal::bit;
use crate::signal::number::SIGKILL;

/// The event that a call waits for. The call is made again then, and looks for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The end of a child.
    Child,
    /// The end of the other threads of the process.
    Threads,
    /// The process with this number leaves the space of its parent, which made it by `vfork`.
    Vfork(i32),
    /// A futex.
    Futex(Futex),
    /// Something happens to a pipe.
    Pipe(u16),
    /// A lock on a file goes.
    Lock {
        /// The name of the file.
        file: u32,
        /// The process that has the lock, if one has it and the caller's process waits for it.
        holder: Option<u16>,
    },
    /// Something happens to a counter or a timer with a descriptor.
    Event,
    /// Something is typed.
    Console,
    /// A file of several becomes ready.
    Poll,
    /// A signal of a set, which the call takes, or a time.
    Signal(u64),
    /// A time, or a signal.
    Time,
}

impl Wait {
    /// Returns the signals that end the wait.
    pub fn interrupted_by(self) -> u64 {
        match self {
            // The child runs on the parent's stack.
            Wait::Vfork(_) | Wait::Threads => bit(SIGKILL),
            _ => u64::MAX,
        }
    }
}

/// A futex that a task waits on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Futex {
    /// Which one.
    pub key: Key,
    /// Only who wakes one of these bits wakes the task.
    pub bits: u32,
}

/// The name of a futex: the same word of memory, whatever address it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A word of private memory.
    Private {
        /// The record of the space.
        space: usize,
        /// The address.
        at: u64,
    },
    /// A word of an object.
    Shared {
        /// The object.
        object: u32,
        /// Where in it, in bytes.
        offset: u64,
    },
}
