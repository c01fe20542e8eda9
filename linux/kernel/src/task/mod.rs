//! Tasks, which are threads, and the processes that they belong to.
//!
//! A process is named by the slot of its first task, which stays taken until its parent has asked
//! for its end. The state that all threads share is in [`Process`], a thread's own state in
//! [`Task`] and [`Body`]. A space has a [`SpaceRecord`], as a process that was made by `vfork` uses
//! its parent's. Each task, process and space has a frame for its record ([`frames`]).

mod after;
mod body;
mod children;
mod clock;
mod clone;
mod collapse;
mod cpus;
mod exit;
mod family;
mod frames;
mod futex;
pub mod groups;
pub mod limits;
mod mapped_pages;
mod numbers;
mod process;
mod queue;
pub(crate) mod records;
mod robust;
mod run;
pub mod timers;
mod turns;
mod usage;
mod wait;

pub(crate) use after::After;
pub use after::Ends;
pub use body::Body;
pub use clock::Clock;
pub use clone::New;
pub use cpus::CpuSet;
pub use frames::SpacePlace;
pub use futex::key as futex_key;
pub use mapped_pages::MappedPages;
pub use process::{INIT, LocksNew, NO_PROCESS, NO_SPACE, Process, SpaceRecord};
pub use queue::TaskQueues;
pub(crate) use run::must;
pub use turns::Turns;
pub use usage::{TICK, Usage};
pub use wait::{Futex, Key, Wait};

use crate::signal::set::Signals;

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// A free slot.
    Nothing,
    /// It waits for a CPU.
    Ready,
    /// It runs on this CPU.
    Running(usize),
    /// A call of its waits.
    Waiting(Wait),
    /// It was the first of its process, and has ended before others.
    Left,
    /// Its process has ended, and the parent has not asked for this status.
    Ended(i32),
}

/// A task, without its [`Body`].
pub struct Task {
    /// Its state.
    pub doing: Doing,
    /// Its number.
    pub tid: i32,
    /// Its process: the slot of the process's first task.
    pub process: usize,
    /// The record of the space that it runs in: its process's.
    pub space: usize,
    /// Signals.
    pub signals: Signals,
    /// When the wait of its call ends, in nanoseconds since boot; 0 for never.
    pub deadline: u64,
    /// A call of its is to be made again.
    pub in_call: bool,
    /// It ends without its process.
    pub is_leaving: bool,
    /// It has been woken from its futex.
    pub woken: bool,
    /// When it began to wait on a futex, as the count of such waits.
    pub waits_since: u64,
    /// The child that it made by `vfork` and waits for; 0 without such a child.
    pub vforked: i32,
    /// Where a zero is written when it ends, and a waiter woken; 0 for nowhere.
    pub clear_tid: u64,
    /// Where the list of the futexes is that it holds; 0 for nowhere.
    pub robust: u64,
    /// Its use of time and memory.
    pub usage: Usage,
    /// How it takes turns.
    pub turns: Turns,
    /// The CPUs that it may run on.
    pub cpus: CpuSet,
}

impl Task {
    /// Makes an empty slot.
    pub const fn none() -> Self {
        Task {
            doing: Doing::Nothing,
            tid: 0,
            process: NO_PROCESS,
            space: NO_SPACE,
            signals: Signals::new(),
            deadline: 0,
            in_call: false,
            is_leaving: false,
            woken: false,
            waits_since: 0,
            vforked: 0,
            clear_tid: 0,
            robust: 0,
            usage: Usage::NONE,
            turns: Turns::NONE,
            cpus: CpuSet::ALL,
        }
    }

    /// Whether the run queue is not to take it as it comes: it has a rank, or may not run on all
    /// CPUs.
    #[inline]
    fn is_particular(&self) -> bool {
        self.turns.rank > 0 || self.cpus != CpuSet::ALL
    }

    /// Whether the slot holds a task that has not ended.
    pub fn is_alive(&self) -> bool {
        !matches!(self.doing, Doing::Nothing | Doing::Left | Doing::Ended(_))
    }
}
