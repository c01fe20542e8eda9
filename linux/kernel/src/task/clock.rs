//! Clocks: the time since boot and since 1970, and the time that CPUs have spent for a process or a
//! thread.

use super::TaskQueues;

/// A clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The time since boot.
    Real,
    /// The time since 1970, which goes as [`Real`](Self::Real) does: nobody sets it.
    Wall,
    /// The time of the process with this number.
    Process(i32),
    /// The time of the thread with this number.
    Thread(i32),
}

impl TaskQueues {
    /// Returns the time of a clock in nanoseconds, where the time since boot is `now`; `None` if
    /// its process or thread has gone.
    pub fn time_of(&self, clock: Clock, now: u64) -> Option<u64> {
        match clock {
            Clock::Real => Some(now),
            Clock::Wall => Some(now.saturating_add(self.epoch)),
            Clock::Process(pid) => Some(self.usage_of(self.find_process(pid)?).nanos()),
            Clock::Thread(tid) => Some(self.get(self.find_task(tid)?).usage.nanos()),
        }
    }
}
