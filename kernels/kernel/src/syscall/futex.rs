//! `futex`.

use super::time::Width;
use super::{Stop, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::task::{Futex, Key, Wait, futex_key};

const WAIT: u64 = 0;
const WAKE: u64 = 1;
const REQUEUE: u64 = 3;
const CMP_REQUEUE: u64 = 4;
const WAIT_BITSET: u64 = 9;
const WAKE_BITSET: u64 = 10;
const PRIVATE: u64 = 0x80;
/// All clocks are one.
const CLOCK_REALTIME: u64 = 0x100;

impl<A: Arch> Sys<'_, A> {
    /// `futex`. Without priorities that are passed on, and without `FUTEX_WAKE_OP`.
    pub(super) fn futex(
        &mut self,
        [at, operation, value, fourth, to, last]: [u64; 6],
        width: Width,
    ) -> Result<u64, Stop> {
        Errno::EINVAL.when(!at.is_multiple_of(4))?;
        let key = self.futex_key(at, operation);
        let value = value as u32;
        match operation & !(PRIVATE | CLOCK_REALTIME) {
            WAIT => self.futex_wait(key, at, value, u32::MAX, (fourth, width, false)),
            WAIT_BITSET => self.futex_wait(key, at, value, last as u32, (fourth, width, true)),
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
        (time, width, is_absolute): (u64, Width, bool),
    ) -> Result<u64, Stop> {
        Errno::EINVAL.when(bits == 0)?;
        if self.task().woken {
            return Ok(0);
        }
        Errno::EAGAIN.when(self.read_u32(at)? != value)?;
        if time != 0 {
            let mut timeout = self.get_time(time, width)?;
            if is_absolute {
                timeout = timeout.saturating_sub(A::now());
            }
            Errno::ETIMEDOUT.when(self.deadline(timeout))?;
        }
        self.state.tasks.futex_waits += 1;
        self.task().waits_since = self.state.tasks.futex_waits;
        Err(Stop::Block(Wait::Futex(Futex { key, bits })))
    }
}
