//! Time: since boot, and since 1970, as the machine's clock says it at boot.

use super::layout::Layout;
use super::{Stop, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::task::{Clock, TICK, Wait};

/// Nanoseconds.
pub(super) const SECOND: u64 = 1_000_000_000;
const ABSOLUTE: u64 = 1;

/// The size of numbers in a structure of time.
#[derive(Clone, Copy)]
pub enum Width {
    /// Those of the program.
    Word,
    /// Eight bytes.
    Wide,
}

impl Width {
    pub(super) fn bytes<A: Arch>(self) -> usize {
        match self {
            Width::Word => A::ABI.word(),
            Width::Wide => 8,
        }
    }
}

impl<A: Arch> Sys<'_, A> {
    pub(super) fn put_time(&mut self, at: u64, width: Width, seconds: u64, rest: u64) -> Result<u64, Errno> {
        let (size, mut out) = (width.bytes::<A>(), Layout::<16>::new(A::ABI));
        self.answer(at, out.put(size, seconds).put(size, rest).bytes())
    }

    /// Reads seconds and nanoseconds.
    pub(super) fn get_time(&mut self, at: u64, width: Width) -> Result<u64, Errno> {
        let [seconds, nanos] = self.read_numbers(at, width.bytes::<A>())?;
        Errno::EINVAL.when(nanos >= SECOND || seconds > u64::MAX >> 33)?;
        Ok(seconds * SECOND + nanos)
    }

    /// Returns the clock of a number: since 1970, since boot, or that of the CPUs for a process or
    /// a thread.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if there is no such clock.
    pub(super) fn clock(&self, number: u64) -> Result<Clock, Errno> {
        // The number of a process or thread, negated, and three bits.
        const OF_THREAD: i32 = 4;
        const KIND: i32 = 3;
        let tasks = &self.state.tasks;
        let (pid, tid) = (tasks.process_of(self.me).pid, tasks.get(self.me).tid);
        match number as i32 {
            0 | 5 | 8 | 11 => Ok(Clock::Wall),
            1 | 4 | 6 | 7 | 9 => Ok(Clock::Real),
            2 => Ok(Clock::Process(pid)),
            3 => Ok(Clock::Thread(tid)),
            number if number < 0 && number & KIND != KIND => {
                let (of, is_thread) = (!(number >> 3), number & OF_THREAD != 0);
                let clock = match (of, is_thread) {
                    (0, true) => Clock::Thread(tid),
                    (0, false) => Clock::Process(pid),
                    (of, false) => Clock::Process(of),
                    // Of the caller's process.
                    (of, true) => {
                        let own = tasks.find_task(of).filter(|slot| tasks.process_of(*slot).pid == pid);
                        Clock::Thread(own.map_or(0, |_| of))
                    }
                };
                tasks.time_of(clock, 0).map(|_| clock).ok_or(Errno::EINVAL)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns the time of a clock now.
    pub(super) fn time_of(&self, clock: Clock) -> u64 {
        self.state.tasks.time_of(clock, A::now()).unwrap_or(0)
    }

    /// Returns the time since 1970.
    pub(crate) fn wall_time(&self) -> u64 {
        self.time_of(Clock::Wall)
    }

    /// Returns the clock that a timer of a program's clock goes by, and the time of the program's
    /// where the timer's is 0.
    pub(super) fn since_boot(&self, clock: Clock) -> (Clock, u64) {
        match clock {
            Clock::Wall => (Clock::Real, self.state.tasks.epoch),
            clock => (clock, 0),
        }
    }

    /// `clock_gettime`.
    pub(super) fn clock_time(&mut self, clock: u64, at: u64, width: Width) -> Result<u64, Errno> {
        let now = self.time_of(self.clock(clock)?);
        self.put_time(at, width, now / SECOND, now % SECOND)
    }

    /// `clock_getres`.
    pub(super) fn clock_resolution(&mut self, clock: u64, at: u64, width: Width) -> Result<u64, Errno> {
        let is_real = matches!(self.clock(clock)?, Clock::Real | Clock::Wall);
        let step = if is_real { 1 } else { TICK };
        if at == 0 { Ok(0) } else { self.put_time(at, width, 0, step) }
    }

    /// `gettimeofday`.
    pub(super) fn time_of_day(&mut self, at: u64) -> Result<u64, Errno> {
        let now = self.wall_time();
        if at == 0 { Ok(0) } else { self.put_time(at, Width::Word, now / SECOND, now % SECOND / 1000) }
    }

    /// `time`.
    pub(super) fn seconds(&mut self, at: u64) -> Result<u64, Errno> {
        let seconds = self.wall_time() / SECOND;
        if at != 0 {
            self.write_bytes(at, &seconds.to_le_bytes()[..A::ABI.word()])?;
        }
        Ok(seconds)
    }

    /// `times`: the time in user mode, to a tick; the kernel's is not charged to programs.
    pub(super) fn times(&mut self, at: u64) -> Result<u64, Errno> {
        if at != 0 {
            let own = self.state.tasks.usage_of(self.process_slot());
            let children = self.process().children;
            let mut out = Layout::<32>::new(A::ABI);
            out.word(own.clock_ticks()).word(0).word(children.clock_ticks()).word(0);
            self.write_bytes(at, out.bytes())?;
        }
        Ok(A::now() / (SECOND / 100))
    }

    /// `clock_nanosleep`.
    ///
    /// # Errors
    ///
    /// [`Errno::EOPNOTSUPP`] for the clocks that are so under Linux, and for the time of CPUs:
    /// calls wait for real time.
    pub(super) fn sleep_by(
        &mut self,
        [clock, flags, at, rest, ..]: [u64; 6],
        width: Width,
    ) -> Result<u64, Stop> {
        /// Of the caller's thread, which does not run while it waits.
        const THREAD: i32 = 3;
        Errno::EINVAL.when(clock as i32 == THREAD)?;
        let of = self.clock(clock)?;
        let is_real = matches!(of, Clock::Real | Clock::Wall);
        Errno::EOPNOTSUPP.when(!is_real || matches!(clock, 4..=6))?;
        let until = (flags & ABSOLUTE != 0).then_some(of);
        self.sleep(until, at, rest, width)
    }

    /// `nanosleep` and `clock_nanosleep`: for a time, or until a clock shows it.
    pub(super) fn sleep(
        &mut self,
        until: Option<Clock>,
        at: u64,
        rest: u64,
        width: Width,
    ) -> Result<u64, Stop> {
        let mut time = self.get_time(at, width)?;
        if let Some(clock) = until {
            time = time.saturating_sub(self.time_of(clock));
        }
        if self.deadline(time) {
            return Ok(0);
        }
        if self.state.tasks.deliverable(self.me) != 0 && rest != 0 && until.is_none() {
            let left = self.task().deadline.saturating_sub(A::now());
            self.put_time(rest, width, left / SECOND, left % SECOND)?;
        }
        Err(Stop::Block(Wait::Time))
    }
}
