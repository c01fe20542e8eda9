//! Locks of files: `fcntl` and `flock`.

use super::layout::Layout;
use super::{Stop, Sys};
use crate::arch::{Abi, Arch};
use crate::errno::Errno;
use crate::fs::locks::{FileLock, LAST, Owner};
use crate::fs::{Kind, What};
use crate::task::Wait;

const F_RDLCK: u16 = 0;
const F_WRLCK: u16 = 1;
const F_UNLCK: u16 = 2;
const LOCK_SH: u64 = 1;
const LOCK_EX: u64 = 2;
const LOCK_NB: u64 = 4;
const LOCK_UN: u64 = 8;
/// Processes that may wait for each other in a row before nobody looks further, as under Linux.
const MOST_WAITS: usize = 10;

/// A command of `fcntl` about locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    what: LockAction,
    /// The open file has the lock, not the process.
    open: bool,
    /// Numbers are those of `struct flock64`.
    wide: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockAction {
    Get,
    Set,
    SetAndWait,
}

impl Command {
    /// Returns the command with a number; `None` for those that are not about locks.
    pub(super) fn new(number: u64, abi: Abi) -> Option<Self> {
        let (first, open, wide) = match number {
            5..=7 => (5, false, abi != Abi::I386),
            12..=14 if abi == Abi::I386 => (12, false, true),
            36..=38 => (36, true, true),
            _ => return None,
        };
        let what = [LockAction::Get, LockAction::Set, LockAction::SetAndWait][(number - first) as usize];
        Some(Command { what, open, wide })
    }

    /// Returns the size of numbers in the structure, and where the first one is.
    fn places(self, abi: Abi) -> (usize, usize) {
        match (self.wide, abi) {
            (false, _) => (4, 4),
            (true, Abi::I386) => (8, 4),
            (true, _) => (8, 8),
        }
    }
}

/// A lock as a program describes it.
struct Asked {
    kind: u16,
    whence: u16,
    start: i64,
    len: i64,
    pid: i32,
}

/// Returns the first and the last byte of a lock that begins `start` bytes behind `base` and has
/// `len` bytes: 0 for all that follow, a negative number for those before it.
fn bytes(base: u64, start: i64, len: i64) -> Result<(u64, u64), Errno> {
    let start = i64::try_from(base).ok().and_then(|base| base.checked_add(start)).ok_or(Errno::EOVERFLOW)?;
    Errno::EINVAL.when(start < 0)?;
    let (first, last) = match len {
        0 => (start, i64::MAX),
        1.. => (start, start.checked_add(len - 1).ok_or(Errno::EOVERFLOW)?),
        _ => (start.checked_add(len).filter(|first| *first >= 0).ok_or(Errno::EINVAL)?, start - 1),
    };
    Ok((first as u64, last as u64))
}

impl<A: Arch> Sys<'_, A> {
    /// `fcntl` with a command about locks.
    pub(super) fn lock_control(&mut self, file: usize, command: Command, at: u64) -> Result<u64, Stop> {
        let asked = self.read_lock(at, command)?;
        let open = *self.state.open.get(file);
        let base = match (asked.whence, open.what) {
            (0, _) => 0,
            (1, _) => open.offset,
            (2, What::Inode(inode)) => match self.state.tree.get(inode).kind {
                Kind::File(object) => self.kernel.objects().size(object),
                _ => 0,
            },
            (2, _) => 0,
            _ => return Err(Errno::EINVAL.into()),
        };
        let (first, last) = bytes(base, asked.start, asked.len)?;
        Errno::EINVAL.when(command.open && asked.pid != 0)?;
        let owner =
            if command.open { Owner::Open(file as u16) } else { Owner::Process(self.process_slot() as u16) };
        let exclusive = asked.kind == F_WRLCK;
        let lock = FileLock { file: open.what.lock_name(file), owner, first, last, exclusive };
        match (command.what, asked.kind) {
            (LockAction::Get, F_RDLCK | F_WRLCK) => self.tell_lock(at, command, &lock).map_err(Stop::Error),
            (LockAction::Set | LockAction::SetAndWait, F_RDLCK | F_WRLCK) => {
                Errno::EBADF.when(if exclusive { !open.writes() } else { !open.reads() })?;
                self.set_lock(lock, command.what == LockAction::SetAndWait)
            }
            (LockAction::Set | LockAction::SetAndWait, F_UNLCK) => {
                self.state.locks.remove(&lock)?;
                self.kernel.locks_changed(self.state, lock.file);
                Ok(0)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn read_lock(&mut self, at: u64, command: Command) -> Result<Asked, Errno> {
        let (size, first) = command.places(A::ABI);
        let [kind, whence] = self.read_numbers(at, 2)?.map(|number| number as u16);
        let numbers = at.checked_add(first as u64).ok_or(Errno::EFAULT)?;
        let [start, len] = self.read_numbers(numbers, size)?.map(|number| match size {
            4 => i64::from(number as i32),
            _ => number as i64,
        });
        let pid = self.read_u32(numbers + 2 * size as u64)? as i32;
        Ok(Asked { kind, whence, start, len, pid })
    }

    /// Sets a lock, or waits for those that conflict with it.
    fn set_lock(&mut self, lock: FileLock, waits: bool) -> Result<u64, Stop> {
        if let Some(other) = self.state.locks.conflict(&lock) {
            Errno::EAGAIN.when(!waits)?;
            let holder = match (lock.owner, other.owner) {
                (Owner::Process(own), Owner::Process(holder)) => {
                    Errno::EDEADLK.when(self.waits_for(holder.into(), own.into()))?;
                    Some(holder)
                }
                // Locks of open files may be given up by another process.
                _ => None,
            };
            return Err(Stop::Block(Wait::Lock { file: lock.file, holder }));
        }
        self.state.locks.set(lock)?;
        // A lock that others can share may have taken the place of one that they cannot.
        self.kernel.locks_changed(self.state, lock.file);
        Ok(0)
    }

    /// Whether a process waits for a lock of another one, or for one that waits for it.
    fn waits_for(&self, mut process: usize, other: usize) -> bool {
        for _ in 0..MOST_WAITS {
            match self.state.tasks.lock_holder(process) {
                Some(holder) if holder == other => return true,
                Some(holder) => process = holder,
                None => return false,
            }
        }
        false
    }

    /// Writes the lock that conflicts with one, or that there is none.
    fn tell_lock(&mut self, at: u64, command: Command, lock: &FileLock) -> Result<u64, Errno> {
        let Some(found) = self.state.locks.conflict(lock) else {
            return self.answer(at, &F_UNLCK.to_le_bytes());
        };
        let (size, place) = command.places(A::ABI);
        let pid = match found.owner {
            Owner::Process(process) => self.state.tasks.process(process.into()).pid,
            Owner::Open(_) | Owner::Whole(_) => -1,
        };
        let len = if found.last == LAST { 0 } else { found.last - found.first + 1 };
        Errno::EOVERFLOW.when(size == 4 && found.first.max(len) > i32::MAX as u64)?;
        let mut out = Layout::<32>::new(A::ABI);
        out.u16(if found.exclusive { F_WRLCK } else { F_RDLCK }).u16(0).at(place);
        out.put(size, found.first).put(size, len).u32(pid as u32);
        self.answer(at, out.bytes())
    }

    /// `flock`.
    pub(super) fn lock_whole(&mut self, descriptor: u64, operation: u64) -> Result<u64, Stop> {
        let exclusive = match operation as u32 as u64 & !LOCK_NB {
            LOCK_SH => Some(false),
            LOCK_EX => Some(true),
            LOCK_UN => None,
            _ => return Err(Errno::EINVAL.into()),
        };
        let file = self.file(descriptor)?;
        let (name, owner) = (self.state.open.get(file).what.lock_name(file), Owner::Whole(file as u16));
        let Some(exclusive) = exclusive else {
            if self.state.locks.release(name, owner) {
                self.kernel.locks_changed(self.state, name);
            }
            return Ok(0);
        };
        let lock = FileLock { file: name, owner, first: 0, last: LAST, exclusive };
        // As under Linux a lock of the other kind goes first, and may be lost by that.
        if self.state.locks.change_kind(&lock) {
            self.kernel.locks_changed(self.state, name);
        }
        self.set_lock(lock, operation & LOCK_NB == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_structures_of_their_interfaces() {
        let command = |number, abi| Command::new(number, abi).map(|command| command.places(abi));
        assert_eq!(command(6, Abi::X86_64), Some((8, 8)));
        assert_eq!(command(6, Abi::I386), Some((4, 4)));
        assert_eq!(command(13, Abi::I386), Some((8, 4)));
        assert_eq!(command(13, Abi::Riscv64), None);
        assert_eq!(command(38, Abi::Aarch64), Some((8, 8)));
        assert_eq!(command(37, Abi::I386), Some((8, 4)));
        assert!(command(8, Abi::I386).is_none() && command(15, Abi::I386).is_none());
        let what = |number| Command::new(number, Abi::X86_64).map(|command| (command.what, command.open));
        assert_eq!(what(5), Some((LockAction::Get, false)));
        assert_eq!(what(7), Some((LockAction::SetAndWait, false)));
        assert_eq!(what(37), Some((LockAction::Set, true)));
    }

    #[test]
    fn bytes_are_counted_in_both_directions() {
        assert_eq!(bytes(0, 0, 0), Ok((0, LAST)));
        assert_eq!(bytes(100, 10, 5), Ok((110, 114)));
        assert_eq!(bytes(100, 10, -5), Ok((105, 109)));
        assert_eq!(bytes(100, -100, 1), Ok((0, 0)));
        assert_eq!(bytes(100, -101, 1), Err(Errno::EINVAL));
        assert_eq!(bytes(0, 4, -5), Err(Errno::EINVAL));
        assert_eq!(bytes(0, i64::MAX, 1), Ok((LAST, LAST)));
        assert_eq!(bytes(0, i64::MAX, 2), Err(Errno::EOVERFLOW));
        assert_eq!(bytes(1, i64::MAX, 1), Err(Errno::EOVERFLOW));
        assert_eq!(bytes(0, i64::MIN, -1), Err(Errno::EINVAL));
    }
}
