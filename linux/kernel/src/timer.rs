//! Timers that expire once or again and again. Expirations are counted when they are asked for.

/// No time.
pub const NEVER: u64 = u64::MAX;

/// Counts how often an open file became ready: to be read, and to be written.
pub type Changes = (u64, u64);

/// A timer. Times are nanoseconds of its clock, which is the time since boot or that of a CPU.
#[derive(Clone, Copy)]
pub struct Timer {
    /// A program has it.
    pub is_used: bool,
    /// When it expires next; before now if that was not read yet, 0 if it never does.
    next: u64,
    /// The time between two expirations; 0 for one expiration.
    interval: u64,
    /// How often it has become ready, and was read or set.
    before: u64,
    /// The time of the program's clock where the timer's is 0: that of boot, if it counts from
    /// 1970.
    zero: u64,
}

impl Timer {
    /// Makes one that never expires, and that no program has.
    pub const NONE: Timer = Timer { is_used: false, next: 0, interval: 0, before: 0, zero: 0 };
    /// Makes one that a program has, and that never expires.
    pub const NEW: Timer = Timer::from(0);

    /// Makes one that a program has, and that never expires. The program's clock shows `zero` where
    /// the timer's shows 0.
    pub const fn from(zero: u64) -> Timer {
        Timer { is_used: true, zero, ..Timer::NONE }
    }

    /// Returns the time of the timer's clock at which the program's shows `time`; one that has
    /// passed is not 0, which would be never.
    pub fn at(&self, time: u64) -> u64 {
        time.saturating_sub(self.zero).max(1)
    }

    /// Returns how often it has expired since that was read.
    pub fn expired(&self, now: u64) -> u64 {
        match (self.next, self.interval) {
            (0, _) => 0,
            (next, _) if now < next => 0,
            (_, 0) => 1,
            (next, interval) => 1 + (now - next) / interval,
        }
    }

    /// Returns the changes until now: it never becomes ready to be written. Expirations after the
    /// first do not count until that was read, as under Linux.
    pub fn changes(&self, now: u64) -> Changes {
        (self.before + u64::from(self.expired(now) > 0), 0)
    }

    /// Reads how often it has expired.
    pub fn take(&mut self, now: u64) -> u64 {
        let expired = self.expired(now);
        if expired > 0 {
            self.before += 1;
            self.next = match self.interval {
                0 => 0,
                interval => self.next.saturating_add(expired.saturating_mul(interval)),
            };
        }
        expired
    }

    /// Returns when it expires next, from `now` on; [`NEVER`] if it does not.
    pub fn due(&self, now: u64) -> u64 {
        match (self.next, self.interval) {
            (0, _) => NEVER,
            (next, _) if next > now => next,
            (_, 0) => NEVER,
            (next, interval) => next.saturating_add(self.expired(now).saturating_mul(interval)),
        }
    }

    /// Returns the time that is left until it expires next, and the interval, as programs see them.
    pub fn setting(&self, now: u64) -> (u64, u64) {
        match self.due(now) {
            NEVER => (0, self.interval),
            due => (due - now, self.interval),
        }
    }

    /// Sets when it expires, and then each interval; 0 for never.
    pub fn set(&mut self, now: u64, next: u64, interval: u64) {
        self.before = self.changes(now).0;
        (self.next, self.interval) = (next, interval);
    }
}

/// Timers of each process: of real time, and twice of the time of a CPU.
pub const INTERVALS: usize = 3;

/// The three timers of a process.
#[derive(Clone, Copy)]
pub struct Intervals {
    each: [Timer; INTERVALS],
    /// One of them was set.
    is_any: bool,
}

impl Intervals {
    /// Those of a process that has set none.
    pub const NONE: Intervals = Intervals { each: [Timer::NONE; INTERVALS], is_any: false };

    /// Whether one of them was set.
    pub fn is_any(&self) -> bool {
        self.is_any
    }

    /// Returns one of them.
    pub fn get(&self, which: usize) -> &Timer {
        &self.each[which % INTERVALS]
    }

    /// Returns one of them, to be changed.
    pub fn get_mut(&mut self, which: usize) -> &mut Timer {
        &mut self.each[which % INTERVALS]
    }

    /// Sets one of them, as [`Timer::set`] does.
    pub fn set(&mut self, which: usize, now: u64, next: u64, interval: u64) {
        self.get_mut(which).set(now, next, interval);
        self.is_any = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_of_a_process_are_apart() {
        let mut three = Intervals::NONE;
        assert!(!three.is_any());
        three.set(1, 0, 5, 0);
        assert!(three.is_any());
        assert_eq!((three.get(0).setting(1), three.get(1).setting(1)), ((0, 0), (4, 0)));
        assert_eq!((three.get_mut(1).take(7), three.get(1).setting(7)), (1, (0, 0)));
    }

    #[test]
    fn a_timer_counts_what_was_not_read() {
        let mut timer = Timer::NONE;
        assert_eq!((timer.expired(100), timer.setting(100)), (0, (0, 0)));
        timer.set(100, 150, 0);
        assert_eq!((timer.expired(149), timer.setting(120)), (0, (30, 0)));
        assert_eq!((timer.take(150), timer.take(1000), timer.setting(1000)), (1, 0, (0, 0)));
        timer.set(1000, 1010, 10);
        assert_eq!((timer.take(1009), timer.take(1035), timer.take(1039), timer.take(1040)), (0, 3, 0, 1));
        assert_eq!((timer.setting(1044), timer.changes(1044)), ((6, 10), (3, 0)));
        assert_eq!((timer.setting(1065), timer.changes(1065)), ((5, 10), (4, 0)));
        // Expirations that are not read are given up, and still counted as changes.
        timer.set(1065, 0, 0);
        assert_eq!((timer.take(9999), timer.changes(9999)), (0, (4, 0)));
    }
}
