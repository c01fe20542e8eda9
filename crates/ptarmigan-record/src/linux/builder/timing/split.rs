//! Divides the CPU time of a process between user mode and kernel.
use crate::linux::system::counters::Counters;

/// From so many nanoseconds on, the ticks of one process are enough.
const LONG: u64 = 100_000_000;

/// Divides CPU times.
///
/// The sum is exact: the scheduler measures it. The kernel only samples the two parts, at each tick
/// of its clock (1 to 10 ms), so a short process has no tick or one that is longer than itself.
/// Ticks beyond the time of their process are counted for the next process that ends, and time that
/// calls were measured to take beyond the ticks is taken off there: the sums of many processes are
/// right, and no process gets more than it ran or less than its calls. (The kernel itself counts a
/// process without a tick as all user mode, `cputime_adjust`. So its sums of short processes have
/// too little time in the kernel.)
#[derive(Default)]
pub(super) struct TimeSplit {
    /// Nanoseconds in the kernel that no process was given yet; below 0, of which processes were
    /// given too many.
    carried: i64,
}

impl TimeSplit {
    /// Divides the `total` nanoseconds of a process. `last` are its counters at its last stop:
    /// after that there is only the kernel's work on its exit. The kernel had `least` nanoseconds
    /// in all, if the process ran so long.
    pub(super) fn of(&mut self, total: u64, last: &Counters, least: u64) -> (u64, u64) {
        let before = last.total.min(total);
        let least = least.saturating_sub(total - before).min(before);
        let ticks = last.user + last.system;
        let sampled = if before >= LONG && ticks > 0 {
            (u128::from(last.system) * u128::from(before) / u128::from(ticks)) as u64
        } else {
            last.system
        };
        let wanted = i64::try_from(sampled).unwrap_or(i64::MAX).saturating_add(self.carried);
        let in_kernel = u64::try_from(wanted).unwrap_or(0).clamp(least, before);
        self.carried = wanted.saturating_sub_unsigned(in_kernel);
        let system = in_kernel + (total - before);
        (total - system, system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn counters(user: u64, system: u64, total: u64) -> Counters {
        Counters { user: user * MS, system: system * MS, total: total * MS, ..Counters::default() }
    }

    #[test]
    fn a_long_process_is_divided_as_its_ticks_are() {
        // The exit of 50 ms is the kernel's.
        let split = TimeSplit::default().of(1050 * MS, &counters(600, 200, 1000), 60 * MS);
        assert_eq!(split, (750 * MS, 300 * MS));
        assert_eq!(TimeSplit::default().of(500 * MS, &counters(0, 0, 500), 0), (500 * MS, 0));
    }

    #[test]
    fn the_ticks_of_short_processes_are_right_in_sum() {
        // Each process runs 1 ms, half of it in the kernel. Every fourth has a tick of 4 ms, every
        // second of these in the kernel.
        let mut split = TimeSplit::default();
        let mut sums = (0, 0);
        for n in 0..80 {
            let last = match n % 8 {
                0 => counters(4, 0, 1),
                4 => counters(0, 4, 1),
                _ => counters(0, 0, 1),
            };
            let (user, system) = split.of(MS, &last, 0);
            assert_eq!(user + system, MS);
            sums = (sums.0 + user, sums.1 + system);
        }
        assert_eq!(sums, (40 * MS, 40 * MS));
    }

    #[test]
    fn kernel_time_is_that_of_calls_and_the_sum_that_of_ticks() {
        let mut split = TimeSplit::default();
        // No tick saw the 3 ms of calls, and the next process has one of 4 ms.
        assert_eq!(split.of(5 * MS, &counters(0, 0, 5), 3 * MS), (2 * MS, 3 * MS));
        assert_eq!(split.of(5 * MS, &counters(0, 4, 5), 0), (4 * MS, MS));
        // The exit is the kernel's, and the calls are not longer than the process.
        assert_eq!(split.of(5 * MS, &counters(0, 0, 3), 2 * MS), (3 * MS, 2 * MS));
        assert_eq!(split.of(5 * MS, &counters(0, 0, 5), 9 * MS), (0, 5 * MS));
    }
}
