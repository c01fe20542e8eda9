//! Calls that take a few lines.

use ptarmigan::machine::Machine as _;

use super::layout::Layout;
use super::{Stop, Sys};
use crate::arch::{Abi, Arch};
use crate::errno::Errno;
use crate::report::PASS;
use crate::task::limits::{INFINITY, Limit};

impl<A: Arch> Sys<'_, A> {
    /// Returns a number of 64 bits among the arguments, which on i386 takes two of them.
    pub(super) fn wide(low: u64, high: u64) -> u64 {
        match A::ABI {
            Abi::I386 => high << 32 | low & 0xffff_ffff,
            _ => low,
        }
    }

    /// `uname`.
    pub(super) fn name(&mut self, at: u64) -> Result<u64, Errno> {
        let mut bytes = [0; 65 * 6];
        let names: [&str; 6] = ["Linux", "ptarmigan", "6.1.0", "Ptarmigan", A::MACHINE, "(none)"];
        for (place, name) in bytes.chunks_exact_mut(65).zip(names) {
            let n = name.len().min(64);
            place[..n].copy_from_slice(&name.as_bytes()[..n]);
        }
        self.answer(at, &bytes)
    }

    /// `sysinfo`.
    pub(super) fn system_info(&mut self, at: u64) -> Result<u64, Errno> {
        let counts = self.kernel.machine.get().frames().counts();
        let tasks = self.state.tasks.slots().filter(|slot| self.state.tasks.get(*slot).is_alive()).count();
        let mut out = Layout::<112>::new(A::ABI);
        out.word(A::now() / 1_000_000_000).word(0).word(0).word(0);
        out.word(counts.total.into()).word(counts.free.into());
        for _ in 0..4 {
            out.word(0);
        }
        out.u16(tasks as u16).u16(0);
        let word = A::ABI.word();
        out.at(10 * word + if word == 8 { 8 } else { 4 }).word(0).word(0).u32(4096);
        out.at(if word == 8 { 112 } else { 64 });
        self.answer(at, out.bytes())
    }

    /// `prlimit64`, `getrlimit` and `setrlimit`, with numbers of `size` bytes.
    pub(super) fn limits(&mut self, [pid, what, new, old, ..]: [u64; 6], size: usize) -> Result<u64, Errno> {
        let process = self.process_with(pid)?;
        let before = self.state.tasks.process(process).limits.get(what)?;
        if new != 0 {
            let infinity = u64::MAX >> (64 - 8 * size);
            let [soft, hard] = self
                .read_numbers(new, size)?
                .map(|number| if number == infinity { INFINITY } else { number });
            self.state.tasks.process_mut(process).limits.set(what, Limit { soft, hard })?;
            if process == self.process_slot() {
                let (on, stack) = (self.on(), self.process().limits.stack.soft);
                self.space().edit(on, |mut edit| edit.set_stack_limit(stack))?;
            }
        }
        if old != 0 {
            let mut out = Layout::<16>::new(A::ABI);
            out.put(size, before.soft).put(size, before.hard);
            self.write_bytes(old, out.bytes())?;
        }
        Ok(0)
    }

    /// `getrandom`: a sequence that is the same after each boot, so that runs are alike.
    pub(super) fn random(&mut self, at: u64, len: u64) -> Result<u64, Errno> {
        Ok(self.random_bytes(at, len.min(256) as usize)? as u64)
    }

    /// Writes `len` bytes as `getrandom` has them.
    pub(crate) fn random_bytes(&mut self, at: u64, len: usize) -> Result<usize, Errno> {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64 ^ self.process().pid as u64;
        let mut done = 0;
        while done < len {
            let mut bytes = [0; 256];
            let n = bytes.len().min(len - done);
            for byte in &mut bytes[..n] {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                *byte = seed as u8;
            }
            match self.write_bytes(at.saturating_add(done as u64), &bytes[..n]) {
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
                Ok(()) => done += n,
            }
        }
        Ok(done)
    }

    /// `reboot`.
    pub(super) fn reboot(&mut self, a: [u64; 6]) -> Result<u64, Stop> {
        Errno::EINVAL.when(a[0] as u32 != 0xfee1_dead)?;
        // Whatever is asked for, the machine ends; but for the keys that would.
        if matches!(a[2] as u32, 0 | 0x89ab_cdef) {
            return Ok(0);
        }
        self.kernel.begin_end(self.state, PASS, 0);
        // The task is given up with its CPU.
        Err(Stop::GiveWay)
    }
}
