//! Counters of events (`eventfd`) and timers (`timerfd`).

use crate::arch::Arch;
use crate::errno::Errno;
use crate::syscall::{Stop, Sys};
use crate::task::Wait;
use crate::timer::{Changes, NEVER, Timer};
use crate::{Kernel, State};

use super::blocking::waits;

/// Counters at the most.
const COUNTERS: usize = 128;
/// Timers at the most.
const TIMERS: usize = 64;
/// A counter of events.
#[derive(Clone, Copy, Default)]
pub struct Counter {
    is_used: bool,
    value: u64,
    /// A read takes 1.
    is_semaphore: bool,
    /// Writes and reads so far.
    pub changes: Changes,
}

impl Counter {
    /// The highest value.
    const MOST: u64 = u64::MAX - 1;

    /// Takes the value, or 1 of it; `None` if it is 0.
    pub fn take(&mut self) -> Option<u64> {
        let taken = if self.is_semaphore { self.value.min(1) } else { self.value };
        self.value -= taken;
        self.changes.1 += u64::from(taken > 0);
        (taken > 0).then_some(taken)
    }

    /// Adds to the value; false if there is no room.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] for a number that never fits.
    pub fn add(&mut self, more: u64) -> Result<bool, Errno> {
        Errno::EINVAL.when(more > Self::MOST)?;
        let fits = Self::MOST - self.value >= more;
        if fits {
            self.value += more;
            self.changes.0 += 1;
        }
        Ok(fits)
    }

    /// Whether a read would return at once.
    pub fn is_readable(&self) -> bool {
        self.value > 0
    }

    /// Whether a write of 1 would return at once.
    pub fn is_writable(&self) -> bool {
        self.value < Self::MOST
    }
}

/// All counters and timers.
pub struct Events {
    counters: [Counter; COUNTERS],
    timers: [Timer; TIMERS],
    /// When the next timer expires.
    due: u64,
}

impl Events {
    /// Makes tables without counters and timers.
    pub const fn new() -> Self {
        const COUNTER: Counter = Counter { is_used: false, value: 0, is_semaphore: false, changes: (0, 0) };
        Events { counters: [COUNTER; COUNTERS], timers: [Timer::NONE; TIMERS], due: NEVER }
    }

    /// Makes a counter.
    ///
    /// # Errors
    ///
    /// [`Errno::ENFILE`].
    pub fn create_counter(&mut self, value: u64, is_semaphore: bool) -> Result<u16, Errno> {
        let free = self.counters.iter().position(|counter| !counter.is_used).ok_or(Errno::ENFILE)?;
        self.counters[free] = Counter { is_used: true, value, is_semaphore, changes: (0, 0) };
        Ok(free as u16)
    }

    /// Makes a timer that never expires.
    ///
    /// # Errors
    ///
    /// [`Errno::ENFILE`].
    pub fn create_timer(&mut self, zero: u64) -> Result<u16, Errno> {
        let free = self.timers.iter().position(|timer| !timer.is_used).ok_or(Errno::ENFILE)?;
        self.timers[free] = Timer::from(zero);
        Ok(free as u16)
    }

    /// Returns a counter.
    pub fn counter(&mut self, counter: u16) -> &mut Counter {
        &mut self.counters[usize::from(counter) % COUNTERS]
    }

    /// Returns a timer.
    pub fn timer(&mut self, timer: u16) -> &mut Timer {
        &mut self.timers[usize::from(timer) % TIMERS]
    }

    /// Frees a counter.
    pub fn close_counter(&mut self, counter: u16) {
        *self.counter(counter) = Counter::default();
    }

    /// Frees a timer.
    pub fn close_timer(&mut self, timer: u16) {
        *self.timer(timer) = Timer::NONE;
    }

    /// Sets a timer.
    pub fn set_timer(&mut self, timer: u16, now: u64, next: u64, interval: u64) {
        let timer = self.timer(timer);
        timer.set(now, next, interval);
        let due = if next > 0 { next } else { NEVER };
        self.due = self.due.min(due);
    }

    /// Whether a timer has expired since the last call.
    pub fn pass_time(&mut self, now: u64) -> bool {
        if self.due > now {
            return false;
        }
        self.due = self.timers.iter().map(|timer| timer.due(now)).min().unwrap_or(NEVER);
        true
    }
}

impl<A: Arch> Kernel<A> {
    /// Has calls that wait for a file of this kind look again.
    pub(crate) fn events_changed(&'static self, state: &mut State) {
        if state.tasks.wake(|wait| matches!(wait, Wait::Event | Wait::Poll)) {
            self.wake_idle(state);
        }
    }
}

impl<A: Arch> Sys<'_, A> {
    /// Reads a counter.
    pub(super) fn read_counter(
        &mut self,
        number: u16,
        to: u64,
        len: usize,
        flags: u32,
    ) -> Result<usize, Stop> {
        Errno::EINVAL.when(len < 8)?;
        let value = self.state.events.counter(number).take().ok_or(waits(flags, Wait::Event))?;
        self.kernel.events_changed(self.state);
        self.write_bytes(to, &value.to_le_bytes())?;
        Ok(8)
    }

    /// Adds to a counter.
    pub(super) fn write_counter(
        &mut self,
        number: u16,
        from: u64,
        len: usize,
        flags: u32,
    ) -> Result<usize, Stop> {
        Errno::EINVAL.when(len < 8)?;
        let [more] = self.read_numbers(from, 8)?;
        if !self.state.events.counter(number).add(more)? {
            return Err(waits(flags, Wait::Event));
        }
        self.kernel.events_changed(self.state);
        Ok(8)
    }

    /// Reads how often a timer has expired.
    pub(super) fn read_timer(&mut self, number: u16, to: u64, len: usize, flags: u32) -> Result<usize, Stop> {
        Errno::EINVAL.when(len < 8)?;
        let expired = self.state.events.timer(number).take(A::now());
        if expired == 0 {
            return Err(waits(flags, Wait::Event));
        }
        self.write_bytes(to, &expired.to_le_bytes())?;
        Ok(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_taken_as_a_whole_or_one_by_one() {
        let mut events = Events::new();
        let (whole, one) = (events.create_counter(3, false), events.create_counter(2, true));
        let (whole, one) = (whole.unwrap(), one.unwrap());
        assert_eq!((events.counter(whole).take(), events.counter(whole).take()), (Some(3), None));
        let one = events.counter(one);
        assert_eq!((one.take(), one.take(), one.take()), (Some(1), Some(1), None));
        assert_eq!(one.changes, (0, 2));
        assert_eq!(one.add(u64::MAX), Err(Errno::EINVAL));
        assert_eq!(one.add(u64::MAX - 2), Ok(true));
        assert!(one.is_writable());
        assert_eq!((one.add(2), one.add(1), one.add(1)), (Ok(false), Ok(true), Ok(false)));
        assert!(one.is_readable() && !one.is_writable());
        assert_eq!(one.changes, (2, 2));
    }

    #[test]
    fn tables_are_bounded_and_places_come_back() {
        let mut events = Events::new();
        let all: std::vec::Vec<_> = std::iter::from_fn(|| events.create_counter(0, false).ok()).collect();
        assert_eq!((all.len(), events.create_counter(0, false)), (COUNTERS, Err(Errno::ENFILE)));
        events.close_counter(all[5]);
        assert_eq!(events.create_counter(0, false), Ok(all[5]));
        while events.create_timer(0).is_ok() {}
        events.close_timer(7);
        assert_eq!(events.create_timer(0), Ok(7));
    }

    #[test]
    fn time_passes_for_all_timers() {
        let mut events = Events::new();
        let (one, other) = (events.create_timer(0).unwrap(), events.create_timer(0).unwrap());
        assert!(!events.pass_time(1 << 60));
        events.set_timer(one, 0, 50, 0);
        events.set_timer(other, 0, 30, 30);
        let told: std::vec::Vec<u64> = (0..100).filter(|now| events.pass_time(*now)).collect();
        assert_eq!(told, [30, 50, 60, 90]);
        events.close_timer(other);
        assert!(events.pass_time(120) && !events.pass_time(1 << 60));
    }
}
