//! Clocks: real time, and the time that CPUs have spent for a process or a thread.

use super::Tasks;

/// A clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The time since boot: all clocks of real time are one.
    Real,
    /// The time of the process with this number.
    Process(i32),
    /// The time of the thread with this number.
    Thread(i32),
}

impl Tasks {
    /// Returns the time of a clock in nanoseconds, where real time is `now`; `None` if its process
    /// or thread has gone.
    pub fn time_of(&self, clock: Clock, now: u64) -> Option<u64> {
        match clock {
            Clock::Real => Some(now),
            Clock::Process(pid) => Some(self.usage_of(self.find_process(pid)?).nanos()),
            Clock::Thread(tid) => Some(self.get(self.find_task(tid)?).usage.nanos()),
        }
    }
}
