//! `poll` and `select`.

use super::epoll::NESTED;
use super::time::Width;
use super::{Stop, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::{DESCRIPTORS, Device, Kind, PIPE_BUF, What};
use crate::task::Wait;
use crate::timer::Changes;

const READ: u16 = 1 | 0x40;
const OUT: u16 = 4;
const WRITE: u16 = OUT | 0x100;
const ERR: u16 = 8;
const HUP: u16 = 16;
const INVALID: u16 = 32;

impl<A: Arch> Sys<'_, A> {
    /// Returns the readiness of a descriptor.
    fn readiness(&mut self, descriptor: u64) -> u16 {
        match self.file(descriptor) {
            Ok(file) => self.ready(file, 0).0,
            Err(_) => INVALID,
        }
    }

    /// Returns the readiness of an open file, and how often it became ready. `depth` is that of the
    /// sets that it is in.
    pub(super) fn ready(&mut self, file: usize, depth: u32) -> (u16, Changes) {
        let when = |holds: bool, ready: u16| if holds { ready } else { 0 };
        match self.state.open.get(file).what {
            What::PipeRead(pipe) => {
                let pipe = self.state.pipes.get(pipe);
                (when(pipe.len > 0, READ) | when(pipe.writers == 0, HUP), pipe.changes)
            }
            What::PipeWrite(pipe) => {
                let pipe = self.state.pipes.get(pipe);
                (when(pipe.room() >= PIPE_BUF, WRITE) | when(pipe.readers == 0, ERR), pipe.changes)
            }
            What::Counter(counter) => {
                let counter = self.state.events.counter(counter);
                (when(counter.is_readable(), READ) | when(counter.is_writable(), WRITE), counter.changes)
            }
            What::Timer(timer) => {
                let (timer, now) = (self.state.events.timer(timer), A::now());
                (when(timer.expired(now) > 0, READ), timer.changes(now))
            }
            What::Set(set) => {
                let is_ready = depth < NESTED && self.set_is_ready(set, depth);
                (when(is_ready, READ), self.look())
            }
            What::Inode(inode) if self.state.tree.get(inode).kind == Kind::Device(Device::Console) => {
                self.kernel.take_typed(self.state);
                (WRITE | when(self.state.console.is_readable(), READ), self.look())
            }
            _ => (READ | WRITE, (0, 0)),
        }
    }

    /// Returns changes that no look before had: files whose changes are not counted tell levels.
    fn look(&mut self) -> Changes {
        self.state.looks += 1;
        (self.state.looks, self.state.looks)
    }

    /// `poll`; `timeout` in nanoseconds, `None` for ever.
    pub(super) fn poll(&mut self, list: u64, count: u64, timeout: Option<u64>) -> Result<u64, Stop> {
        Errno::EINVAL.when(count > self.most_files() as u64)?;
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

    /// `select`. The part of a second in the time counts units of `unit` nanoseconds.
    pub(super) fn select(&mut self, a: [u64; 6], unit: u64, width: Width) -> Result<u64, Stop> {
        let size = width.bytes::<A>();
        let timeout = match a[4] {
            0 => None,
            at => {
                let [seconds, rest] = self.read_numbers(at, size)?;
                Errno::EINVAL.when(seconds >> (8 * size - 1) != 0 || rest >> (8 * size - 1) != 0)?;
                Some(seconds.saturating_mul(1_000_000_000).saturating_add(rest.saturating_mul(unit)))
            }
        };
        self.select_until([a[0], a[1], a[2], a[3]], timeout)
    }

    /// `pselect6`: the last argument says where the mask of signals is, and its size.
    pub(super) fn select_masked(&mut self, a: [u64; 6], width: Width) -> Result<u64, Stop> {
        let timeout = self.timeout(a[4], width)?;
        let [mask, size] = if a[5] == 0 { [0, 0] } else { self.read_numbers(a[5], A::ABI.word())? };
        self.with_mask(mask, size, |sys| sys.select_until([a[0], a[1], a[2], a[3]], timeout))
    }

    /// Waits for files to be read or written; there are no other events.
    fn select_until(
        &mut self,
        [count, reads, writes, others]: [u64; 4],
        timeout: Option<u64>,
    ) -> Result<u64, Stop> {
        Errno::EINVAL.when((count as i32) < 0)?;
        // As under Linux descriptors that cannot be open are not looked at.
        let count = (count as u32 as usize).min(DESCRIPTORS);
        // Sets are words of the program's.
        let word = A::ABI.word();
        let bytes = count.div_ceil(8 * word) * word;
        let (mut ready, mut results) = (0, [[0u8; DESCRIPTORS / 8]; 3]);
        for (i, (at, bit)) in [(reads, READ | HUP | ERR), (writes, WRITE | ERR)].into_iter().enumerate() {
            if at == 0 {
                continue;
            }
            let mut set = [0; DESCRIPTORS / 8];
            self.read_bytes(at, &mut set[..bytes])?;
            for descriptor in (0..count).filter(|n| set[n / 8] >> (n % 8) & 1 != 0) {
                let found = self.readiness(descriptor as u64);
                Errno::EBADF.when(found & INVALID != 0)?;
                if found & bit != 0 {
                    results[i][descriptor / 8] |= 1 << (descriptor % 8);
                    ready += 1;
                }
            }
        }
        let done = self.wait_for_files(ready, timeout)?;
        for (at, set) in [reads, writes, others].into_iter().zip(&results) {
            if at != 0 {
                self.write_bytes(at, &set[..bytes])?;
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
