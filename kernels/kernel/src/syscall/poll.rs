//! `poll` and `select`.

use super::{Stop, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::{Device, Kind, PIPE_BUF, What};
use crate::task::Wait;

const IN: u16 = 1;
const OUT: u16 = 4;
const ERR: u16 = 8;
const HUP: u16 = 16;
const INVALID: u16 = 32;

impl<A: Arch> Sys<'_, A> {
    /// Returns the readiness of a descriptor.
    fn readiness(&mut self, descriptor: u64) -> u16 {
        let Ok(file) = self.file(descriptor) else { return INVALID };
        match self.state.open.get(file).what {
            What::PipeRead(pipe) => {
                let pipe = self.state.pipes.get(pipe);
                (if pipe.len > 0 { IN } else { 0 }) | if pipe.writers == 0 { HUP } else { 0 }
            }
            What::PipeWrite(pipe) => {
                let pipe = self.state.pipes.get(pipe);
                (if pipe.room() >= PIPE_BUF { OUT } else { 0 }) | if pipe.readers == 0 { ERR } else { 0 }
            }
            What::Inode(inode) if self.state.tree.get(inode).kind == Kind::Device(Device::Console) => {
                self.kernel.take_typed(self.state);
                OUT | if self.state.console.is_readable() { IN } else { 0 }
            }
            _ => IN | OUT,
        }
    }

    /// `poll`; `timeout` in nanoseconds, `None` for ever.
    pub(super) fn poll(&mut self, list: u64, count: u64, timeout: Option<u64>) -> Result<u64, Stop> {
        Errno::EINVAL.when(count > 256)?;
        let mut ready = 0;
        for i in 0..count {
            let at = list.checked_add(i * 8).ok_or(Errno::EFAULT)?;
            let descriptor = self.read_u32(at)? as i32;
            let asked = self.read_u32(at + 4)? as u16;
            let found = if descriptor < 0 { 0 } else { self.readiness(descriptor as u64) };
            let found = found & (asked | ERR | HUP | INVALID);
            self.write_bytes(at + 6, &found.to_le_bytes())?;
            ready += u64::from(found != 0);
        }
        self.wait_for_files(ready, timeout)
    }

    /// `select` and `pselect6`, as far as reading and writing go. The part of a second in the time
    /// counts units of `unit` nanoseconds.
    pub(super) fn select(&mut self, a: [u64; 6], unit: u64) -> Result<u64, Stop> {
        let [count, reads, writes, others, time, _] = a;
        let timeout = match time {
            0 => None,
            at => {
                let word = A::ABI.word() as u64;
                let (seconds, rest) = (self.read_word(at)?, self.read_word(at + word)?);
                Some(seconds.saturating_mul(1_000_000_000).saturating_add(rest.saturating_mul(unit)))
            }
        };
        Errno::EINVAL.when(count > 64)?;
        let bytes = (count as usize).div_ceil(8);
        let (mut ready, mut results) = (0, [0u64; 2]);
        for (i, (at, bit)) in [(reads, IN | HUP), (writes, OUT | ERR)].into_iter().enumerate() {
            if at == 0 {
                continue;
            }
            let mut set = [0; 8];
            self.read_bytes(at, &mut set[..bytes])?;
            let set = u64::from_le_bytes(set);
            for descriptor in (0..count).filter(|n| set >> n & 1 != 0) {
                let found = self.readiness(descriptor);
                Errno::EBADF.when(found & INVALID != 0)?;
                if found & bit != 0 {
                    results[i] |= 1 << descriptor;
                    ready += 1;
                }
            }
        }
        let done = self.wait_for_files(ready, timeout)?;
        for (at, set) in [(reads, results[0]), (writes, results[1]), (others, 0)] {
            if at != 0 {
                self.write_bytes(at, &set.to_le_bytes()[..bytes])?;
            }
        }
        Ok(done)
    }

    fn wait_for_files(&mut self, ready: u64, timeout: Option<u64>) -> Result<u64, Stop> {
        if ready > 0 || timeout.is_some_and(|timeout| self.deadline(timeout)) {
            return Ok(ready);
        }
        Err(Stop::Block(Wait::Poll))
    }
}
