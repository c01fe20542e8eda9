//! Timers that send signals: the three of each process (`setitimer`, `alarm`), and those that
//! programs make (`timer_create`).

use super::Clock;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::signal::info::{Detail, SI_TIMER};
use crate::signal::number::{SIGALRM, SIGPROF, SIGVTALRM};
use crate::signal::{SignalInfo, bit};
use crate::timer::{INTERVALS, NEVER, Timer};
use crate::{Kernel, State};

/// Timers that programs make, at the most.
pub const MADE: usize = 128;
/// The signals of the three timers of a process. The kernel's share of a CPU's time is not known,
/// so that the last two are alike.
const SIGNALS: [u8; INTERVALS] = [SIGALRM, SIGVTALRM, SIGPROF];

/// Where the signal of a timer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Nowhere: the program asks.
    None,
    /// To the process.
    Process,
    /// To the thread with this number.
    Thread(i32),
}

/// A timer that a program has made.
#[derive(Clone, Copy)]
pub struct Made {
    /// Its process, by slot.
    owner: usize,
    /// Its clock.
    pub clock: Clock,
    /// Its time.
    pub timer: Timer,
    /// Where its signal goes.
    notice: Notice,
    signal: u8,
    /// The number that the program wants with the signal.
    value: u64,
    /// Its signal was sent, and not taken yet.
    is_sent: bool,
    /// Expirations that the last signal stood for beside the first.
    pub overrun: u32,
}

impl Made {
    const NONE: Made = Made {
        owner: 0,
        clock: Clock::Real,
        timer: Timer::NONE,
        notice: Notice::None,
        signal: 0,
        value: 0,
        is_sent: false,
        overrun: 0,
    };
}

/// All timers that send signals.
pub struct Timers {
    made: [Made; MADE],
    /// Timers that programs have made and not deleted.
    used: usize,
    /// When a timer of real time expires next.
    due: u64,
    /// Timers of a CPU's time were set.
    counts_cpus: bool,
}

impl Timers {
    /// Makes tables without timers.
    pub const fn new() -> Self {
        Timers { made: [Made::NONE; MADE], used: 0, due: NEVER, counts_cpus: false }
    }

    /// Makes a timer for a process, which sends `signal`, and the number `value` with it. The
    /// number of the timer if `value` is `None`.
    ///
    /// # Errors
    ///
    /// [`Errno::EAGAIN`] if there are too many.
    pub fn create(
        &mut self,
        owner: usize,
        (clock, zero): (Clock, u64),
        notice: Notice,
        signal: u8,
        value: Option<u64>,
    ) -> Result<usize, Errno> {
        let free = self.made.iter().position(|made| !made.timer.is_used).ok_or(Errno::EAGAIN)?;
        let value = value.unwrap_or(free as u64);
        self.made[free] = Made {
            owner,
            clock,
            timer: Timer::from(zero),
            notice,
            signal,
            value,
            is_sent: false,
            overrun: 0,
        };
        self.used += 1;
        Ok(free)
    }

    /// Returns a timer that a process has made.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if there is none of this number.
    pub fn made(&mut self, owner: usize, id: u64) -> Result<&mut Made, Errno> {
        let made = self.made.get_mut(id as u32 as usize);
        made.filter(|made| made.timer.is_used && made.owner == owner).ok_or(Errno::EINVAL)
    }

    /// Frees a timer that a process has made.
    ///
    /// # Errors
    ///
    /// As [`made`](Self::made).
    pub fn delete(&mut self, owner: usize, id: u64) -> Result<(), Errno> {
        *self.made(owner, id)? = Made::NONE;
        self.used -= 1;
        Ok(())
    }

    /// Sets a timer that a process has made; `now` is the time of its clock.
    ///
    /// # Errors
    ///
    /// As [`made`](Self::made).
    pub fn set(&mut self, owner: usize, id: u64, now: u64, next: u64, interval: u64) -> Result<(), Errno> {
        let made = self.made(owner, id)?;
        made.timer.set(now, next, interval);
        (made.is_sent, made.overrun) = (false, 0);
        let clock = made.clock;
        self.look_at(clock, next);
        Ok(())
    }

    /// Has a timer be looked at when its time comes.
    pub fn look_at(&mut self, clock: Clock, next: u64) {
        match (clock, next) {
            (_, 0) => {}
            (Clock::Real, next) => self.due = self.due.min(next),
            _ => self.counts_cpus = true,
        }
    }

    /// Ends a program, as exec and exit do: timers that it has made go.
    pub fn end(&mut self, owner: usize) {
        if self.used == 0 {
            return;
        }
        for made in self.made.iter_mut().filter(|made| made.timer.is_used && made.owner == owner) {
            *made = Made::NONE;
            self.used -= 1;
        }
    }

    /// Takes the expirations of a timer whose signal is delivered; returns how many there are
    /// beside the first. `time_of` tells the time of a clock.
    pub fn delivered(&mut self, id: u32, time_of: impl FnOnce(Clock) -> u64) -> u32 {
        let Some(made) = self.made.get_mut(id as usize) else { return 0 };
        let now = time_of(made.clock);
        made.is_sent = false;
        made.overrun = made.timer.take(now).saturating_sub(1).min(i32::MAX as u64) as u32;
        made.overrun
    }

    /// Whether a timer of real time may have expired.
    pub fn is_due(&self, now: u64) -> bool {
        self.due <= now
    }

    /// Whether there may be timers of a CPU's time.
    pub fn counts_cpus(&self) -> bool {
        self.counts_cpus
    }
}

impl<A: Arch> Kernel<A> {
    /// Sends the signals of timers of real time, or of the time of CPUs, that have expired.
    #[cold]
    pub(super) fn expire(&'static self, state: &mut State, real: bool, now: u64) {
        let (mut due, mut is_any) = (NEVER, false);
        for owner in state.tasks.slots() {
            if !state.tasks.process(owner).intervals.is_any() {
                continue;
            }
            let clock = Clock::Process(state.tasks.process(owner).pid);
            for which in if real { 0..1 } else { 1..INTERVALS } {
                let clock = if real { Clock::Real } else { clock };
                let Some(now) = state.tasks.time_of(clock, now) else { continue };
                let timer = state.tasks.process_mut(owner).intervals.get_mut(which);
                let expired = timer.take(now);
                let next = timer.due(now);
                (due, is_any) = (due.min(next), is_any || next != NEVER);
                if expired > 0 {
                    self.send(state, owner, SIGNALS[which], SignalInfo::KERNEL);
                }
            }
        }
        for id in 0..MADE {
            let made = state.timers.made[id];
            if !made.timer.is_used || real != (made.clock == Clock::Real) {
                continue;
            }
            let Some(now) = state.tasks.time_of(made.clock, now) else { continue };
            let next = self.expire_made(state, id, now);
            (due, is_any) = (due.min(next), is_any || next != NEVER);
        }
        if real {
            state.timers.due = due;
        } else {
            state.timers.counts_cpus = is_any;
        }
    }

    /// Sends the signal of a timer, if it has expired and its last one was taken. Returns when to
    /// look at it again.
    fn expire_made(&'static self, state: &mut State, id: usize, now: u64) -> u64 {
        let made = state.timers.made[id];
        if made.timer.expired(now) == 0 || made.notice == Notice::None {
            return made.timer.due(now);
        }
        let info = SignalInfo {
            code: SI_TIMER,
            detail: Detail::Timer { id: id as u32, overrun: 0, value: made.value },
        };
        let target = match made.notice {
            Notice::Thread(tid) => state.tasks.find_task(tid),
            _ => Some(made.owner),
        };
        let Some(target) = target else { return made.timer.due(now) };
        let is_pending = |state: &State| {
            let pending = match made.notice {
                Notice::Thread(_) => &state.tasks.get(target).signals.pending,
                _ => &state.tasks.process(target).pending,
            };
            pending.set() & bit(made.signal) != 0
        };
        if is_pending(state) {
            // One of another sender: its own follows.
            return if made.is_sent { made.timer.due(now) } else { now + 1 };
        }
        match made.notice {
            Notice::Thread(_) => self.send_to_task(state, target, made.signal, info),
            _ => self.send(state, target, made.signal, info),
        }
        let is_sent = is_pending(state);
        let made = &mut state.timers.made[id];
        made.is_sent = is_sent;
        if !is_sent {
            // It is ignored.
            made.timer.take(now);
        }
        made.timer.due(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timers() -> std::boxed::Box<Timers> {
        std::boxed::Box::new(Timers::new())
    }

    #[test]
    fn timers_belong_to_their_process_and_places_come_back() {
        let mut timers = timers();
        let made = timers.create(3, (Clock::Real, 0), Notice::Process, 14, None);
        assert_eq!(made, Ok(0));
        assert_eq!(timers.create(4, (Clock::Real, 0), Notice::None, 10, Some(7)), Ok(1));
        assert!(timers.made(3, 0).is_ok() && timers.made(4, 1).is_ok());
        assert_eq!(timers.made(3, 1).err(), Some(Errno::EINVAL));
        assert_eq!(timers.made(3, u64::MAX).err(), Some(Errno::EINVAL));
        assert_eq!((timers.delete(4, 0), timers.delete(3, 0)), (Err(Errno::EINVAL), Ok(())));
        while timers.create(5, (Clock::Real, 0), Notice::Process, 14, None).is_ok() {}
        assert_eq!(timers.create(5, (Clock::Real, 0), Notice::Process, 14, None), Err(Errno::EAGAIN));
        timers.end(5);
        assert!(timers.made(5, 0).is_err() && timers.made(4, 1).is_ok());
    }

    #[test]
    fn a_signal_stands_for_all_expirations_until_it_is_delivered() {
        let mut timers = timers();
        timers.create(1, (Clock::Real, 0), Notice::Process, 14, None).unwrap();
        timers.set(1, 0, 0, 100, 10).unwrap();
        assert_eq!(timers.delivered(0, |_| 135), 3);
        assert_eq!(timers.made(1, 0).unwrap().timer.setting(135), (5, 10));
        timers.set(1, 0, 135, 200, 0).unwrap();
        assert_eq!(timers.made(1, 0).unwrap().overrun, 0);
        assert_eq!(timers.delivered(0, |_| 500), 0);
        assert_eq!(timers.delivered(MADE as u32, |_| 500), 0);
    }
}
