//! Tasks: what a program is to the kernel.

mod body;
mod exit;
mod fork;
mod queue;
mod run;
mod wait;

pub use body::{Bodies, Body};
pub use exit::INIT;
pub use queue::{TASKS, Tasks};
pub(crate) use run::{After, must};
pub use wait::Wait;

use crate::fs::Descriptors;
use crate::signal::Signals;

/// Objects that a task can have mapped at a time.
pub const MAPPED: usize = 16;

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// There is none in this slot.
    Nothing,
    /// It waits for a CPU.
    Ready,
    /// It runs on this CPU.
    Running(usize),
    /// A call of its waits.
    Waiting(Wait),
    /// It has ended, and its parent has not asked for this status.
    Ended(i32),
}

/// A task, without what its CPU alone uses.
pub struct Task {
    /// What it does.
    pub doing: Doing,
    /// Its number.
    pub pid: i32,
    /// The slot of its parent; its own for process 1.
    pub parent: usize,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// Its descriptors.
    pub files: Descriptors,
    /// The directory that it is in.
    pub directory: u16,
    /// Permissions that new files do not get.
    pub umask: u16,
    /// The program that it runs.
    pub program: u16,
    /// Where the heap begins.
    pub heap: u64,
    /// Where it ends, to the byte.
    pub heap_end: u64,
    /// Objects that its space maps, 0 for none.
    pub mapped: [u32; MAPPED],
    /// Signals.
    pub signals: Signals,
    /// When the wait of its call ends, in nanoseconds since boot; 0 for never.
    pub deadline: u64,
    /// A call of its is to be made again.
    pub in_call: bool,
    /// It may write to the port of the exit device.
    pub ports: bool,
    /// When it was started, in nanoseconds since boot.
    pub started: u64,
}

impl Task {
    /// Makes an empty slot.
    pub const fn none() -> Self {
        Task {
            doing: Doing::Nothing,
            pid: 0,
            parent: 0,
            group: 0,
            session: 0,
            files: Descriptors::new(),
            directory: 0,
            umask: 0,
            program: 0,
            heap: 0,
            heap_end: 0,
            mapped: [0; MAPPED],
            signals: Signals::new(),
            deadline: 0,
            in_call: false,
            ports: false,
            started: 0,
        }
    }

    /// Whether the slot holds a task that has not ended.
    pub fn is_alive(&self) -> bool {
        !matches!(self.doing, Doing::Nothing | Doing::Ended(_))
    }
}
