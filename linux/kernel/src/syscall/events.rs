//! `eventfd` and `timerfd`.

use super::files::CLOEXEC;
use super::layout::Layout;
use super::time::{SECOND, Width};
use super::{Stop, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::What;
use crate::fs::blocking::NONBLOCK;

impl<A: Arch> Sys<'_, A> {
    /// Opens a file that is in no directory, as both to be read and to be written.
    pub(super) fn open_unnamed(&mut self, what: What, flags: u64) -> Result<u64, Errno> {
        let kept = 2 | (flags as u32 & NONBLOCK);
        let file =
            self.state.open.open(what, kept).inspect_err(|_| self.kernel.end_file(self.state, what))?;
        self.descriptor(file, 0, flags & CLOEXEC != 0)
    }

    /// `eventfd2`.
    pub(super) fn event_file(&mut self, value: u64, flags: u64) -> Result<u64, Errno> {
        const SEMAPHORE: u64 = 1;
        let flags = u64::from(flags as u32);
        Errno::EINVAL.when(flags & !(SEMAPHORE | CLOEXEC | u64::from(NONBLOCK)) != 0)?;
        let counter = self.state.events.create_counter(u64::from(value as u32), flags & SEMAPHORE != 0)?;
        self.open_unnamed(What::Counter(counter), flags)
    }

    /// `timerfd_create`: all clocks are one.
    pub(super) fn timer_file(&mut self, clock: u64, flags: u64) -> Result<u64, Errno> {
        let flags = u64::from(flags as u32);
        Errno::EINVAL.when(flags & !(CLOEXEC | u64::from(NONBLOCK)) != 0)?;
        // Those of real time, of the time since boot, and of alarms.
        Errno::EINVAL.when(!matches!(clock as u32, 0 | 1 | 7..=9))?;
        let (_, zero) = self.since_boot(self.clock(clock)?);
        let timer = self.state.events.create_timer(zero)?;
        self.open_unnamed(What::Timer(timer), flags)
    }

    fn timer_of(&mut self, descriptor: u64) -> Result<u16, Errno> {
        let file = self.file(descriptor)?;
        match self.state.open.get(file).what {
            What::Timer(timer) => Ok(timer),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Writes an interval, and the time that is left.
    pub(super) fn put_setting(
        &mut self,
        at: u64,
        width: Width,
        (left, interval): (u64, u64),
    ) -> Result<u64, Errno> {
        let (size, mut out) = (width.bytes::<A>(), Layout::<32>::new(A::ABI));
        for time in [interval, left] {
            out.put(size, time / SECOND).put(size, time % SECOND);
        }
        self.answer(at, out.bytes())
    }

    /// `timerfd_settime`.
    pub(super) fn set_timer(
        &mut self,
        [descriptor, flags, new, old, ..]: [u64; 6],
        width: Width,
    ) -> Result<u64, Errno> {
        const ABSOLUTE: u64 = 1;
        const CANCEL_ON_SET: u64 = 2;
        Errno::EINVAL.when(flags as u32 as u64 & !(ABSOLUTE | CANCEL_ON_SET) != 0)?;
        let value = new.checked_add(2 * width.bytes::<A>() as u64).ok_or(Errno::EFAULT)?;
        let (interval, value) = (self.get_time(new, width)?, self.get_time(value, width)?);
        let timer = self.timer_of(descriptor)?;
        let now = A::now();
        let found = self.state.events.timer(timer);
        let before = found.setting(now);
        let next = match value {
            0 => 0,
            value if flags & ABSOLUTE != 0 => found.at(value),
            value => now.saturating_add(value),
        };
        self.state.events.set_timer(timer, now, next, interval);
        self.kernel.events_changed(self.state);
        if old != 0 { self.put_setting(old, width, before) } else { Ok(0) }
    }

    /// `timerfd_gettime`.
    pub(super) fn timer_setting(&mut self, descriptor: u64, at: u64, width: Width) -> Result<u64, Errno> {
        let timer = self.timer_of(descriptor)?;
        let setting = self.state.events.timer(timer).setting(A::now());
        self.put_setting(at, width, setting)
    }
}

/// A number of milliseconds that a call waits; negative ones are for ever.
pub(super) fn milliseconds(number: u64) -> Option<u64> {
    u32::try_from(number as i32).ok().map(|n| u64::from(n) * 1_000_000)
}

impl<A: Arch> Sys<'_, A> {
    /// Reads how long a call waits, at `at` if that is not 0.
    pub(super) fn timeout(&mut self, at: u64, width: Width) -> Result<Option<u64>, Errno> {
        if at == 0 { Ok(None) } else { self.get_time(at, width).map(Some) }
    }

    /// Makes a call with the mask of signals at `at`, if that is not 0. The mask that was there
    /// comes back with the call's end, or with that of the handler that ends it.
    pub(super) fn with_mask(
        &mut self,
        at: u64,
        size: u64,
        call: impl FnOnce(&mut Self) -> Result<u64, Stop>,
    ) -> Result<u64, Stop> {
        if at != 0 {
            let set = self.read_set(at, size)?;
            let signals = &mut self.task().signals;
            if signals.suspended.is_none() {
                signals.suspended = Some(signals.blocked);
                signals.set_blocked(set);
            }
        }
        let result = call(self);
        if !matches!(result, Err(Stop::Block(_))) {
            let signals = &mut self.task().signals;
            if let Some(mask) = signals.suspended.take() {
                signals.blocked = mask;
            }
        }
        result
    }
}
