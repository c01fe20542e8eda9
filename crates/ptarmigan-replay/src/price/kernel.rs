//! The time of the kernel in a recording.
use super::whole::Whole;

/// Time of the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelTime {
    /// Nanoseconds.
    pub ns: f64,
    /// Whether the recording has it. Otherwise it is the sum of its faults, forks and ends at the
    /// prices that are given.
    pub recorded: bool,
}

impl KernelTime {
    /// Returns that of a recording.
    pub(super) fn of(whole: &Whole<'_>) -> Self {
        let recorded = whole.trace.account.total().kernel;
        if recorded > 0 {
            return KernelTime { ns: recorded as f64 * 1e3, recorded: true };
        }
        let prices = whole.prices;
        let of = |count: u64, price: f64| count as f64 * price;
        let faults = of(whole.faults, prices.small.fresh);
        let forks = of(whole.forks, prices.fork) + of(whole.forked_entries, prices.small.forked);
        KernelTime { ns: faults + forks + of(whole.spaces.0, prices.exit), recorded: false }
    }
}
