//! `futex`.

use super::time::Width;
use super::{Stop, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::task::{Clock, Futex, Key, Wait, futex_key};

const WAIT: u64 = 0;
const WAKE: u64 = 1;
const REQUEUE: u64 = 3;
const CMP_REQUEUE: u64 = 4;
const WAKE_OP: u64 = 5;
const WAIT_BITSET: u64 = 9;
const WAKE_BITSET: u64 = 10;
const PRIVATE: u64 = 0x80;
const CLOCK_REALTIME: u64 = 0x100;

/// The change that `FUTEX_WAKE_OP` makes of the second word, and the comparison of the word before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    operation: u32,
    operand: u32,
    comparison: u32,
    with: i32,
}

/// Returns the lowest 12 bits as a signed number.
const fn signed(bits: u32) -> i32 {
    (bits << 20) as i32 >> 20
}

impl Change {
    /// Takes the operation, the comparison and 12 bits for each out of a word.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOSYS`] if there is no such operation or comparison.
    fn parse(word: u32) -> Result<Self, Errno> {
        const SHIFT: u32 = 8;
        let (operation, comparison) = (word >> 28, word >> 24 & 15);
        let mut operand = signed(word >> 12) as u32;
        if operation & SHIFT != 0 {
            operand = 1 << (operand & 31);
        }
        let change = Change { operation: operation & !SHIFT, operand, comparison, with: signed(word) };
        Errno::ENOSYS.when(change.operation > 4 || comparison > 5)?;
        Ok(change)
    }

    fn apply(self, word: u32) -> u32 {
        match self.operation {
            0 => self.operand,
            1 => word.wrapping_add(self.operand),
            2 => word | self.operand,
            3 => word & !self.operand,
            _ => word ^ self.operand,
        }
    }

    fn holds(self, word: u32) -> bool {
        let order = (word as i32).cmp(&self.with);
        match self.comparison {
            0 => order.is_eq(),
            1 => order.is_ne(),
            2 => order.is_lt(),
            3 => order.is_le(),
            4 => order.is_gt(),
            _ => order.is_ge(),
        }
    }
}

impl<A: Arch> Sys<'_, A> {
    /// `futex`. Without priorities that are passed on.
    pub(super) fn futex(
        &mut self,
        [at, operation, value, fourth, to, last]: [u64; 6],
        width: Width,
    ) -> Result<u64, Stop> {
        Errno::EINVAL.when(!at.is_multiple_of(4))?;
        let key = self.futex_key(at, operation);
        let value = value as u32;
        match operation & !(PRIVATE | CLOCK_REALTIME) {
            WAIT => self.futex_wait(key, at, value, u32::MAX, (fourth, width, None)),
            WAIT_BITSET => {
                let clock = if operation & CLOCK_REALTIME != 0 { Clock::Wall } else { Clock::Real };
                self.futex_wait(key, at, value, last as u32, (fourth, width, Some(clock)))
            }
            WAKE => Ok(self.state.tasks.wake_futex(key, value, u32::MAX).into()),
            WAKE_BITSET if last as u32 == 0 => Err(Errno::EINVAL.into()),
            WAKE_BITSET => Ok(self.state.tasks.wake_futex(key, value, last as u32).into()),
            kind @ (REQUEUE | CMP_REQUEUE) => {
                Errno::EINVAL.when(!to.is_multiple_of(4))?;
                Errno::EAGAIN.when(self.read_u32(at)? != last as u32 && kind == CMP_REQUEUE)?;
                let to = self.futex_key(to, operation);
                let tasks = &mut self.state.tasks;
                let woken = tasks.wake_futex(key, value, u32::MAX);
                let moved = tasks.move_futex(key, to, fourth as u32);
                Ok((woken + if kind == CMP_REQUEUE { moved } else { 0 }).into())
            }
            WAKE_OP => {
                Errno::EINVAL.when(!to.is_multiple_of(4))?;
                let change = Change::parse(last as u32)?;
                let on = self.on();
                let before = self.space().update(on, to, |word| Some(change.apply(word)))?;
                let to = self.futex_key(to, operation);
                let tasks = &mut self.state.tasks;
                let mut woken = tasks.wake_futex(key, value, u32::MAX);
                if change.holds(before) {
                    woken += tasks.wake_futex(to, fourth as u32, u32::MAX);
                }
                Ok(woken.into())
            }
            _ => Err(Errno::ENOSYS.into()),
        }
    }

    fn futex_key(&mut self, at: u64, operation: u64) -> Key {
        let space = self.state.tasks.space_of(self.me);
        if operation & PRIVATE != 0 {
            return Key::Private { space, at };
        }
        futex_key::<A>(self.on(), &mut self.body.space, space, at)
    }

    fn futex_wait(
        &mut self,
        key: Key,
        at: u64,
        value: u32,
        bits: u32,
        (time, width, until): (u64, Width, Option<Clock>),
    ) -> Result<u64, Stop> {
        Errno::EINVAL.when(bits == 0)?;
        if self.task().woken {
            return Ok(0);
        }
        Errno::EAGAIN.when(self.read_u32(at)? != value)?;
        if time != 0 {
            let mut timeout = self.get_time(time, width)?;
            if let Some(clock) = until {
                timeout = timeout.saturating_sub(self.time_of(clock));
            }
            Errno::ETIMEDOUT.when(self.deadline(timeout))?;
        }
        self.state.tasks.futex_waits += 1;
        self.task().waits_since = self.state.tasks.futex_waits;
        Err(Stop::Block(Wait::Futex(Futex { key, bits })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `FUTEX_OP` of Linux's header.
    fn word(operation: u32, operand: u32, comparison: u32, with: u32) -> u32 {
        (operation & 15) << 28 | (comparison & 15) << 24 | (operand & 0xfff) << 12 | with & 0xfff
    }

    #[test]
    fn a_second_word_is_changed_and_compared() {
        let change =
            |operation, operand| Change::parse(word(operation, operand, 0, 0)).expect("there is one");
        let all = [(0, 5), (1, 17), (2, 13), (3, 8), (4, 9)];
        for (operation, result) in all {
            assert_eq!(change(operation, 5).apply(12), result, "{operation}");
        }
        assert_eq!(change(1, 0xfff).apply(12), 11);
        // The operand is the number of a bit.
        assert_eq!(change(8 | 2, 31).apply(1), 0x8000_0001);
        assert_eq!(change(8, 0xfff).apply(0), 0x8000_0000);
        for (comparison, less, equal, greater) in [
            (0, false, true, false),
            (1, true, false, true),
            (2, true, false, false),
            (3, true, true, false),
            (4, false, false, true),
            (5, false, true, true),
        ] {
            let change = Change::parse(word(0, 0, comparison, 0xfff)).expect("there is one");
            let holds = [u32::MAX - 1, u32::MAX, 0].map(|word| change.holds(word));
            assert_eq!(holds, [less, equal, greater], "{comparison}");
        }
        assert_eq!(Change::parse(word(5, 0, 0, 0)), Err(Errno::ENOSYS));
        assert_eq!(Change::parse(word(0, 0, 6, 0)), Err(Errno::ENOSYS));
    }
}
