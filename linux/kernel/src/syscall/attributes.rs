//! Permissions, owners, times and extended attributes of files. There is one user, who may do
//! everything, and a file has one time, at which it was changed last.

use super::Sys;
use super::files::AT_FDCWD;
use super::stat::{EMPTY_PATH, NOFOLLOW};
use super::time::{SECOND, Width};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::{Kind, What};

/// `AT_EACCESS`: there is one user.
const EFFECTIVE: u64 = 0x200;
const UTIME_NOW: u64 = 0x3fff_ffff;
const UTIME_OMIT: u64 = 0x3fff_fffe;

/// Bytes of the name of an extended attribute at the most.
const ATTRIBUTE_NAME: usize = 255;

/// The new time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewTime {
    Now,
    Stays,
    At(u64),
}

/// Reads a time as `utimensat` has it. Times before 0 become 0, those that are too late the latest.
fn new_time(seconds: i64, nanos: u64) -> Result<NewTime, Errno> {
    match nanos {
        UTIME_NOW => Ok(NewTime::Now),
        UTIME_OMIT => Ok(NewTime::Stays),
        SECOND.. => Err(Errno::EINVAL),
        _ => {
            let seconds = u64::try_from(seconds);
            Ok(NewTime::At(seconds.map_or(0, |n| n.saturating_mul(SECOND).saturating_add(nanos))))
        }
    }
}

impl<A: Arch> Sys<'_, A> {
    /// Returns the file that a path leads to, as calls with flags have it; `None` for one that is
    /// in no directory, such as a pipe.
    pub(super) fn inode_at(
        &mut self,
        directory: u64,
        at: u64,
        flags: u64,
        known: u64,
    ) -> Result<Option<u32>, Errno> {
        let flags = u64::from(flags as u32);
        Errno::EINVAL.when(flags & !(known | NOFOLLOW | EMPTY_PATH) != 0)?;
        if !self.is_empty_path(at, flags)? {
            let found = self.find(directory, at, flags & NOFOLLOW == 0)?;
            return if found.target.is_some() {
                Ok(None)
            } else {
                found.existing(&self.state.tree).map(Some)
            };
        }
        if directory as i32 == AT_FDCWD {
            return Ok(Some(self.process().directory));
        }
        self.inode_of_open(directory)
    }

    /// Returns the file of a descriptor; `None` for one that is in no directory.
    pub(super) fn inode_of_open(&mut self, descriptor: u64) -> Result<Option<u32>, Errno> {
        let file = self.file(descriptor)?;
        match self.state.open.get(file).what {
            What::Inode(inode) => Ok(Some(inode)),
            _ => Ok(None),
        }
    }

    /// `access`, `faccessat` and `faccessat2`. The one user may execute a file if anybody may.
    pub(super) fn access(&mut self, directory: u64, at: u64, mode: u64, flags: u64) -> Result<u64, Errno> {
        const EXECUTE: u64 = 1;
        Errno::EINVAL.when(mode as u32 & !7 != 0)?;
        if let Some(inode) = self.inode_at(directory, at, flags, EFFECTIVE)? {
            let found = self.state.tree.get(inode);
            let is_program = matches!(found.kind, Kind::Directory) || found.mode & 0o111 != 0;
            Errno::EACCES.when(mode & EXECUTE != 0 && !is_program)?;
        }
        Ok(0)
    }

    /// `fchownat`, `chown` and `lchown`: owner and group are kept, and nobody's rights depend on
    /// them.
    pub(super) fn change_owner(
        &mut self,
        directory: u64,
        at: u64,
        owners: [u64; 2],
        flags: u64,
    ) -> Result<u64, Errno> {
        let inode = self.inode_at(directory, at, flags, 0)?;
        Ok(self.set_owner(inode, owners))
    }

    /// `fchown`.
    pub(super) fn change_owner_of(&mut self, descriptor: u64, owners: [u64; 2]) -> Result<u64, Errno> {
        let inode = self.inode_of_open(descriptor)?;
        Ok(self.set_owner(inode, owners))
    }

    /// Sets the owner and the group of a file that is in a directory; -1 stands for no change.
    fn set_owner(&mut self, inode: Option<u32>, [owner, group]: [u64; 2]) -> u64 {
        const NO_CHANGE: u32 = u32::MAX;
        if let Some(inode) = inode {
            let file = self.state.tree.get_mut(inode);
            for (place, new) in [(&mut file.owner, owner as u32), (&mut file.group, group as u32)] {
                if new != NO_CHANGE {
                    *place = new;
                }
            }
            // As under Linux, a program is no longer one that runs as its owner.
            if file.kind != Kind::Directory {
                let group_bit = if file.mode & 0o010 != 0 { 0o2000 } else { 0 };
                file.mode &= !(0o4000 | group_bit);
            }
        }
        0
    }

    /// Returns an owner as the calls of i386 with 16 bits have it.
    pub(super) fn short_owner(owner: u64) -> u64 {
        if owner as u16 == u16::MAX { u64::MAX } else { u64::from(owner as u16) }
    }

    /// `setxattr`, `getxattr` and `removexattr` of a path.
    ///
    /// # Errors
    ///
    /// [`Errno::EOPNOTSUPP`], as of each file system of Linux's without extended attributes; the
    /// errors of the path and of the name come first.
    pub(super) fn attribute_at(&mut self, at: u64, name: u64, flags: u64) -> Result<u64, Errno> {
        self.inode_at(AT_FDCWD as u64, at, flags, 0)?;
        self.no_attribute(name)
    }

    /// `fsetxattr`, `fgetxattr` and `fremovexattr`.
    ///
    /// # Errors
    ///
    /// As of [`attribute_at`](Self::attribute_at).
    pub(super) fn attribute_of(&mut self, descriptor: u64, name: u64) -> Result<u64, Errno> {
        self.file(descriptor)?;
        self.no_attribute(name)
    }

    fn no_attribute(&mut self, name: u64) -> Result<u64, Errno> {
        match self.read_text(name, &mut [0; ATTRIBUTE_NAME + 1]) {
            Ok(0) | Err(Errno::ENAMETOOLONG) => Err(Errno::ERANGE),
            Ok(_) => Err(Errno::EOPNOTSUPP),
            Err(e) => Err(e),
        }
    }

    /// `listxattr` and `llistxattr`: an empty list.
    pub(super) fn list_attributes(&mut self, at: u64, flags: u64) -> Result<u64, Errno> {
        self.inode_at(AT_FDCWD as u64, at, flags, 0).map(|_| 0)
    }

    /// `fchmod`.
    pub(super) fn change_mode(&mut self, descriptor: u64, mode: u64) -> Result<u64, Errno> {
        if let Some(inode) = self.inode_of_open(descriptor)? {
            self.set_mode(inode, mode);
        }
        Ok(0)
    }

    /// `utimensat`.
    pub(super) fn set_times(
        &mut self,
        [directory, at, times, flags, ..]: [u64; 6],
        width: Width,
    ) -> Result<u64, Errno> {
        let mut time = NewTime::Now;
        if times != 0 {
            let size = width.bytes::<A>();
            let numbers = self.read_numbers::<4>(times, size)?;
            let signed = |n: u64| if size == 4 { i64::from(n as i32) } else { n as i64 };
            let access = new_time(signed(numbers[0]), numbers[1])?;
            time = new_time(signed(numbers[2]), numbers[3])?;
            if access == NewTime::Stays && time == NewTime::Stays {
                return Ok(0);
            }
        }
        // Without a path it is the descriptor.
        let inode = if at == 0 && directory as i32 != AT_FDCWD {
            Errno::EINVAL.when(flags != 0)?;
            self.inode_of_open(directory)?
        } else {
            self.inode_at(directory, at, flags, 0)?
        };
        if let Some(inode) = inode {
            let now = self.wall_time();
            let changed = &mut self.state.tree.get_mut(inode).changed;
            match time {
                NewTime::Now => *changed = now,
                NewTime::At(time) => *changed = time,
                NewTime::Stays => {}
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_set_kept_or_refused() {
        assert_eq!(new_time(3, 5), Ok(NewTime::At(3 * SECOND + 5)));
        assert_eq!(new_time(-3, 5), Ok(NewTime::At(0)));
        assert_eq!(new_time(i64::MAX, 5), Ok(NewTime::At(u64::MAX)));
        assert_eq!(new_time(-1, UTIME_NOW), Ok(NewTime::Now));
        assert_eq!(new_time(-1, UTIME_OMIT), Ok(NewTime::Stays));
        assert_eq!(new_time(0, SECOND), Err(Errno::EINVAL));
        assert_eq!(new_time(0, u64::MAX), Err(Errno::EINVAL));
    }
}
