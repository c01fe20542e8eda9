//! Counts the use that tasks make of CPUs and memory: time in user mode, and faults.

/// Ticks of the timer in a second, on each CPU.
const TICKS: u64 = 250;
/// Nanoseconds between two of them.
pub const TICK: u64 = 1_000_000_000 / TICKS;

/// The use of a task, or of the tasks of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Ticks that interrupted it in user mode.
    pub ticks: u64,
    /// Page faults.
    pub faults: u64,
}

impl Usage {
    /// No use so far.
    pub const NONE: Usage = Usage { ticks: 0, faults: 0 };

    /// Adds another one.
    pub fn add(&mut self, other: Usage) {
        self.ticks += other.ticks;
        self.faults += other.faults;
    }

    /// Returns the time in microseconds.
    pub fn micros(self) -> u64 {
        self.ticks * (1_000_000 / TICKS)
    }

    /// Returns the time in nanoseconds.
    pub fn nanos(self) -> u64 {
        self.ticks * TICK
    }

    /// Returns the whole seconds.
    pub fn seconds(self) -> u64 {
        self.ticks / TICKS
    }

    /// Returns the time in the unit of `times`, of which a second has 100.
    pub fn clock_ticks(self) -> u64 {
        self.ticks * 100 / TICKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_time() {
        let mut usage = Usage { ticks: 3, faults: 1 };
        usage.add(Usage { ticks: 247, faults: 2 });
        assert_eq!((usage.micros(), usage.clock_ticks(), usage.faults), (1_000_000, 100, 3));
        assert_eq!(Usage { ticks: 1, faults: 0 }.micros(), 4_000);
    }
}
