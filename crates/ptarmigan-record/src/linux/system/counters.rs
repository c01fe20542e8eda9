//! Reads the CPU time and the counts of a process.
use super::{proc, sys};

/// The time at which counters were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum When {
    /// At the start of the recording: everything before does not count.
    Start,
    /// At the last stop of the process, before the end of its address space.
    #[default]
    Last,
    /// After its end.
    Ended,
    /// At the end of the recording, of a process that goes on.
    GoingOn,
}

/// Counters of a process with all of its threads, without its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) when: When,
    /// CPU time in user mode and in the kernel, in nanoseconds, by the ticks of the kernel's clock.
    pub(crate) user: u64,
    pub(crate) system: u64,
    /// CPU time in nanoseconds, as the scheduler has measured it.
    pub(crate) total: u64,
    /// Faults that needed no device, and faults that waited for one.
    pub(crate) minor: u64,
    pub(crate) major: u64,
    /// Context switches of the task alone: because it waited, and because others came first.
    pub(crate) waits: u64,
    pub(crate) preempted: u64,
    /// Nanoseconds in the kernel that the recorder caused.
    pub(crate) own: u64,
}

impl Counters {
    /// Reads the counters of the process `group`. Those of context switches are 0. `None` if the
    /// process is gone.
    pub(crate) fn read(group: i32, when: When) -> Option<Self> {
        let (total, user, both) = sys::cpu_time(group)?;
        let (minor, major) = proc::faults(group)?;
        let system = both.saturating_sub(user);
        Some(Self { when, user, system, total, minor, major, ..Self::default() })
    }

    /// Returns the difference to counters that were read earlier.
    pub(crate) fn since(self, start: Self) -> Self {
        Self {
            when: self.when,
            user: self.user.saturating_sub(start.user),
            system: self.system.saturating_sub(start.system),
            total: self.total.saturating_sub(start.total),
            minor: self.minor.saturating_sub(start.minor),
            major: self.major.saturating_sub(start.major),
            waits: self.waits.saturating_sub(start.waits),
            preempted: self.preempted.saturating_sub(start.preempted),
            own: self.own.saturating_sub(start.own),
        }
    }

    /// Encodes the counters as words for a temporary file.
    pub(crate) fn encode(&self) -> [u64; 9] {
        let Self { when, user, system, total, minor, major, waits, preempted, own } = *self;
        [when as u64, user, system, total, minor, major, waits, preempted, own]
    }

    /// Decodes the words of `encode`.
    pub(crate) fn decode(words: &[u64]) -> Option<Self> {
        let &[when, user, system, total, minor, major, waits, preempted, own] = words else { return None };
        let when = *[When::Start, When::Last, When::Ended, When::GoingOn].get(when as usize)?;
        Some(Self { when, user, system, total, minor, major, waits, preempted, own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_this_process_grow() {
        let pid = std::process::id() as i32;
        let start = Counters::read(pid, When::Start).expect("it is here");
        let pages = 3000;
        let mut memory = vec![0u8; pages * 4096];
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&memory);
        let used = Counters::read(pid, When::Last).expect("it is here").since(start);
        // Huge pages may be on.
        assert!(used.minor >= 5 && used.total > 1000, "{used:?}");
        assert!(used.total < 60_000_000_000, "{used:?}");
        assert_eq!(Counters::read(i32::MAX, When::Last), None);
    }
}
