//! `epoll`.

use super::files::CLOEXEC;
use super::layout::Layout;
use super::{Stop, Sys};
use crate::arch::{Abi, Arch};
use crate::errno::Errno;
use crate::fs::epoll::{EDGE, ERR, EXCLUSIVE, HUP, IN, OUT};
use crate::fs::{Device, Kind, What};
use crate::task::Wait;

/// Sets that may be in each other in a row.
pub(super) const NESTED: u32 = 4;

/// Returns the size of `struct epoll_event`, and where the word is in it.
fn places(abi: Abi) -> (u64, usize) {
    match abi {
        Abi::X86_64 | Abi::I386 => (12, 4),
        Abi::Aarch64 | Abi::Riscv64 => (16, 8),
    }
}

impl<A: Arch> Sys<'_, A> {
    /// `epoll_create1`.
    pub(super) fn create_set(&mut self, flags: u64) -> Result<u64, Errno> {
        Errno::EINVAL.when(flags as u32 as u64 & !CLOEXEC != 0)?;
        let set = self.state.interests.create()?;
        self.open_unnamed(What::Set(set), flags)
    }

    fn set_of(&mut self, descriptor: u64) -> Result<u16, Errno> {
        let file = self.file(descriptor)?;
        match self.state.open.get(file).what {
            What::Set(set) => Ok(set),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Whether a file can be waited for.
    fn can_be_waited_for(&self, what: What) -> bool {
        match what {
            What::Inode(inode) => matches!(
                self.state.tree.get(inode).kind,
                Kind::Device(Device::Console | Device::Random | Device::Urandom)
            ),
            _ => true,
        }
    }

    /// Checks that a set may have another one in it: that one does not have it, and there are not
    /// too many in each other.
    fn may_nest(&self, inner: u16, outer: u16, depth: u32) -> Result<(), Errno> {
        Errno::ELOOP.when(inner == outer || depth > NESTED)?;
        let mut turn = 0;
        while let Some((n, interest)) = self.state.interests.next(inner, turn) {
            turn = n + 1;
            if let What::Set(other) = self.state.open.get(interest.file.into()).what {
                self.may_nest(other, outer, depth + 1)?;
            }
        }
        Ok(())
    }

    /// `epoll_ctl`.
    pub(super) fn control_set(
        &mut self,
        [set, operation, descriptor, at, ..]: [u64; 6],
    ) -> Result<u64, Errno> {
        const ADD: u64 = 1;
        const DELETE: u64 = 2;
        const CHANGE: u64 = 3;
        let operation = u64::from(operation as u32);
        let (mut events, mut data) = (0, 0);
        if operation != DELETE {
            let place = at.checked_add(places(A::ABI).1 as u64).ok_or(Errno::EFAULT)?;
            events = self.read_u32(at)?;
            [data] = self.read_numbers(place, 8)?;
        }
        let (own, file) = (self.file(set)?, self.file(descriptor)?);
        let what = self.state.open.get(file).what;
        Errno::EPERM.when(!self.can_be_waited_for(what))?;
        Errno::EINVAL.when(own == file)?;
        let set = self.set_of(set)?;
        if events & EXCLUSIVE != 0 && operation != DELETE {
            let known = IN | OUT | ERR | HUP | EDGE | EXCLUSIVE | 1 << 29;
            let is_set = matches!(what, What::Set(_));
            Errno::EINVAL.when(operation == CHANGE || events & !known != 0 || is_set)?;
        }
        let (place, number) = (file as u16, descriptor as u32);
        match operation {
            ADD => {
                if let What::Set(inner) = what {
                    self.may_nest(inner, set, 1)?;
                }
                self.state.interests.add(set, place, number, events, data)?;
            }
            CHANGE => self.state.interests.change(set, place, number, events, data)?,
            DELETE => self.state.interests.remove(set, place, number)?,
            _ => return Err(Errno::EINVAL),
        }
        // A call may wait for the set already.
        self.kernel.events_changed(self.state);
        Ok(0)
    }

    /// `epoll_wait`, with the timeout in nanoseconds.
    pub(super) fn wait_for_set(
        &mut self,
        [descriptor, to, most]: [u64; 3],
        timeout: Option<u64>,
    ) -> Result<u64, Stop> {
        let (size, place) = places(A::ABI);
        let most = most as i32;
        Errno::EINVAL.when(most <= 0 || most as u64 > i32::MAX as u64 / size)?;
        let set = self.set_of(descriptor)?;
        let (mut told, mut turn) = (0, 0);
        while told < most as u64
            && let Some((n, interest)) = self.state.interests.next(set, turn)
        {
            turn = n + 1;
            let (ready, changes) = self.ready(interest.file.into(), 0);
            let events = interest.tells(ready.into(), changes);
            if events != 0 {
                let mut out = Layout::<16>::new(A::ABI);
                out.u32(events).at(place).u64(interest.data);
                let at = to.checked_add(told * size).ok_or(Errno::EFAULT)?;
                match self.write_bytes(at, out.bytes()) {
                    Err(e) if told == 0 => return Err(e.into()),
                    // It is told next time.
                    Err(_) => break,
                    Ok(()) => told += 1,
                }
            }
            self.state.interests.note(set, n, events, changes);
        }
        if turn > 0 && told == most as u64 {
            self.state.interests.begin_after(set, turn - 1);
        }
        if told > 0 || timeout.is_some_and(|timeout| self.deadline(timeout)) {
            return Ok(told);
        }
        Err(Stop::Block(Wait::Poll))
    }

    /// Whether a set has a file that is ready, for those that wait for the set itself.
    pub(super) fn set_is_ready(&mut self, set: u16, depth: u32) -> bool {
        let mut turn = 0;
        while let Some((n, interest)) = self.state.interests.next(set, turn) {
            turn = n + 1;
            let (ready, changes) = self.ready(interest.file.into(), depth + 1);
            if interest.tells(ready.into(), changes) != 0 {
                return true;
            }
        }
        false
    }
}
