//! Time. It begins at 0 when the machine boots, whatever the clock is called.

use super::layout::Layout;
use super::{Stop, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::task::Wait;

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
    fn put_time(&mut self, at: u64, width: Width, seconds: u64, rest: u64) -> Result<u64, Errno> {
        let (size, mut out) = (width.bytes::<A>(), Layout::<16>::new(A::ABI));
        self.answer(at, out.put(size, seconds).put(size, rest).bytes())
    }

    /// Reads seconds and nanoseconds.
    pub(super) fn get_time(&mut self, at: u64, width: Width) -> Result<u64, Errno> {
        let [seconds, nanos] = self.read_numbers(at, width.bytes::<A>())?;
        Errno::EINVAL.when(nanos >= SECOND || seconds > u64::MAX >> 33)?;
        Ok(seconds * SECOND + nanos)
    }

    /// `clock_gettime`.
    pub(super) fn clock_time(&mut self, at: u64, width: Width) -> Result<u64, Errno> {
        let now = A::now();
        self.put_time(at, width, now / SECOND, now % SECOND)
    }

    /// `clock_getres`.
    pub(super) fn clock_resolution(&mut self, at: u64) -> Result<u64, Errno> {
        if at == 0 { Ok(0) } else { self.put_time(at, Width::Word, 0, 1) }
    }

    /// `gettimeofday`.
    pub(super) fn time_of_day(&mut self, at: u64) -> Result<u64, Errno> {
        let now = A::now();
        if at == 0 { Ok(0) } else { self.put_time(at, Width::Word, now / SECOND, now % SECOND / 1000) }
    }

    /// `time`.
    pub(super) fn seconds(&mut self, at: u64) -> Result<u64, Errno> {
        let seconds = A::now() / SECOND;
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

    /// `nanosleep` and `clock_nanosleep`.
    pub(super) fn sleep(&mut self, flags: u64, at: u64, rest: u64, width: Width) -> Result<u64, Stop> {
        let mut time = self.get_time(at, width)?;
        if flags & ABSOLUTE != 0 {
            time = time.saturating_sub(A::now());
        }
        if self.deadline(time) {
            return Ok(0);
        }
        if self.state.tasks.deliverable(self.me) != 0 && rest != 0 && flags & ABSOLUTE == 0 {
            let left = self.task().deadline.saturating_sub(A::now());
            self.put_time(rest, width, left / SECOND, left % SECOND)?;
        }
        Err(Stop::Block(Wait::Time))
    }
}
