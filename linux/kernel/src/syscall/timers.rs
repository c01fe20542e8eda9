//! `setitimer`, `alarm`, and `timer_create` and its family.

use super::Sys;
use super::layout::Layout;
use super::time::{SECOND, Width};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::signal::SIGNALS;
use crate::signal::number::SIGALRM;
use crate::task::Clock;
use crate::task::timers::Notice;
use crate::timer::INTERVALS;

/// Nanoseconds of a microsecond.
const MICRO: u64 = 1000;

impl<A: Arch> Sys<'_, A> {
    /// Returns the clock of one of the three timers of a process, and its time.
    fn interval_now(&mut self, which: usize) -> u64 {
        let pid = self.process().pid;
        self.time_of(if which == 0 { Clock::Real } else { Clock::Process(pid) })
    }

    /// Sets one of the three timers of the caller's process; returns the time that was left, and
    /// the interval.
    fn change_interval(&mut self, which: usize, value: u64, interval: u64) -> (u64, u64) {
        let (owner, now) = (self.process_slot(), self.interval_now(which));
        let intervals = &mut self.state.tasks.process_mut(owner).intervals;
        let before = intervals.get(which).setting(now);
        let next = if value == 0 { 0 } else { now.saturating_add(value) };
        intervals.set(which, now, next, interval);
        self.state.timers.look_at(if which == 0 { Clock::Real } else { Clock::Process(0) }, next);
        before
    }

    /// `alarm`: the seconds that were left, at least 1 if a time was.
    pub(super) fn alarm(&mut self, seconds: u64) -> u64 {
        let (left, _) = self.change_interval(0, u64::from(seconds as u32) * SECOND, 0);
        let (whole, rest) = (left / SECOND, left % SECOND);
        whole + u64::from(rest >= SECOND / 2 || (whole == 0 && rest > 0))
    }

    fn which_interval(which: u64) -> Result<usize, Errno> {
        let which = which as u32 as usize;
        Errno::EINVAL.when(which >= INTERVALS)?;
        Ok(which)
    }

    /// Writes an interval, and the time that is left, in seconds and microseconds.
    fn put_interval(&mut self, at: u64, (left, interval): (u64, u64)) -> Result<u64, Errno> {
        let mut out = Layout::<32>::new(A::ABI);
        for time in [interval, left] {
            // A time that is left is not shown as none.
            let micros = time.div_ceil(MICRO);
            out.word(micros / 1_000_000).word(micros % 1_000_000);
        }
        self.answer(at, out.bytes())
    }

    /// `setitimer`.
    pub(super) fn set_interval(&mut self, which: u64, new: u64, old: u64) -> Result<u64, Errno> {
        let (mut interval, mut value) = (0, 0);
        if new != 0 {
            let times: [u64; 4] = self.read_numbers(new, A::ABI.word())?;
            let time = |seconds: u64, micros: u64| {
                Errno::EINVAL.when(micros >= 1_000_000 || seconds > u64::MAX >> 33)?;
                Ok::<u64, Errno>(seconds * SECOND + micros * MICRO)
            };
            (interval, value) = (time(times[0], times[1])?, time(times[2], times[3])?);
        }
        let before = self.change_interval(Self::which_interval(which)?, value, interval);
        if old != 0 { self.put_interval(old, before) } else { Ok(0) }
    }

    /// `getitimer`.
    pub(super) fn interval(&mut self, which: u64, at: u64) -> Result<u64, Errno> {
        let which = Self::which_interval(which)?;
        let now = self.interval_now(which);
        let setting = self.process().intervals.get(which).setting(now);
        self.put_interval(at, setting)
    }

    /// `timer_create`.
    pub(super) fn create_timer(&mut self, clock: u64, event: u64, id_at: u64) -> Result<u64, Errno> {
        const SIGNAL: u32 = 0;
        const NONE: u32 = 1;
        const THREAD: u32 = 2;
        const THREAD_ID: u32 = 4;
        let number = clock as u32;
        let clock = self.since_boot(self.clock(clock)?);
        Errno::EOPNOTSUPP.when(matches!(number, 4..=6))?;
        let (mut notice, mut signal, mut value) = (Notice::Process, SIGALRM, None);
        if event != 0 {
            let word = A::ABI.word() as u64;
            let at = |offset: u64| event.checked_add(offset).ok_or(Errno::EFAULT);
            value = Some(self.read_word(event)?);
            let [number, kind, tid] = self.read_numbers(at(word)?, 4)?;
            notice = match kind as u32 {
                SIGNAL | THREAD => Notice::Process,
                NONE => Notice::None,
                // A thread of the caller's process.
                THREAD_ID => {
                    let process = self.process_slot();
                    let thread = self.state.tasks.find_task(tid as i32);
                    let own = thread.filter(|slot| self.state.tasks.get(*slot).process == process);
                    Notice::Thread(own.map(|_| tid as i32).ok_or(Errno::EINVAL)?)
                }
                _ => return Err(Errno::EINVAL),
            };
            let known = (1..=SIGNALS as u64).contains(&number);
            Errno::EINVAL.when(notice != Notice::None && !known)?;
            signal = number as u8;
        }
        let owner = self.process_slot();
        let id = self.state.timers.create(owner, clock, notice, signal, value)?;
        self.answer(id_at, &(id as u32).to_le_bytes())
            .inspect_err(|_| self.state.timers.delete(owner, id as u64).unwrap_or(()))
    }

    /// `timer_settime`.
    pub(super) fn set_made_timer(
        &mut self,
        [id, flags, new, old, ..]: [u64; 6],
        width: Width,
    ) -> Result<u64, Errno> {
        const ABSOLUTE: u64 = 1;
        Errno::EINVAL.when(new == 0)?;
        let value = new.checked_add(2 * width.bytes::<A>() as u64).ok_or(Errno::EFAULT)?;
        let (interval, value) = (self.get_time(new, width)?, self.get_time(value, width)?);
        let owner = self.process_slot();
        let clock = self.state.timers.made(owner, id)?.clock;
        let now = self.time_of(clock);
        let timer = &self.state.timers.made(owner, id)?.timer;
        let before = timer.setting(now);
        let next = match value {
            0 => 0,
            value if flags & ABSOLUTE != 0 => timer.at(value),
            value => now.saturating_add(value),
        };
        self.state.timers.set(owner, id, now, next, interval)?;
        if old != 0 { self.put_setting(old, width, before) } else { Ok(0) }
    }

    /// `timer_gettime`.
    pub(super) fn made_timer(&mut self, id: u64, at: u64, width: Width) -> Result<u64, Errno> {
        let owner = self.process_slot();
        let clock = self.state.timers.made(owner, id)?.clock;
        let now = self.time_of(clock);
        let setting = self.state.timers.made(owner, id)?.timer.setting(now);
        self.put_setting(at, width, setting)
    }

    /// `timer_getoverrun`.
    pub(super) fn overrun(&mut self, id: u64) -> Result<u64, Errno> {
        let owner = self.process_slot();
        Ok(self.state.timers.made(owner, id)?.overrun.into())
    }

    /// `timer_delete`.
    pub(super) fn delete_timer(&mut self, id: u64) -> Result<u64, Errno> {
        let owner = self.process_slot();
        self.state.timers.delete(owner, id).map(|()| 0)
    }
}
