//! Limits that programs set for themselves (`setrlimit`).

use crate::errno::Errno;
use crate::fs::DESCRIPTORS;

/// No limit.
pub const INFINITY: u64 = u64::MAX;
/// `RLIMIT_CPU`.
const CPU: u64 = 0;
/// `RLIMIT_FSIZE`.
const FILE: u64 = 1;
/// `RLIMIT_DATA`.
const DATA: u64 = 2;
/// `RLIMIT_STACK`.
const STACK: u64 = 3;
/// `RLIMIT_CORE`.
const CORE: u64 = 4;
/// `RLIMIT_RSS`, which has no effect under Linux either.
const RESIDENT: u64 = 5;
/// `RLIMIT_NPROC`, which the superuser may exceed.
const PROCESSES: u64 = 6;
/// `RLIMIT_MEMLOCK`, which the superuser may exceed.
const LOCKED: u64 = 8;
/// `RLIMIT_NOFILE`.
const FILES: u64 = 7;
/// `RLIMIT_AS`.
const SPACE: u64 = 9;
/// Limits are numbered from 0 to this.
const LAST: u64 = 15;

/// A limit: the one that holds, and the highest that a program may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The one that holds.
    pub soft: u64,
    /// The highest that a program may choose. User 0 may choose a higher one.
    pub hard: u64,
}

/// The limits of a process.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Seconds that its tasks run in user mode.
    pub cpu: Limit,
    /// Bytes of a file that it makes longer.
    pub file: Limit,
    /// Bytes of all areas but those that grow.
    pub space: Limit,
    /// Bytes of private memory that can be written, but for stacks.
    pub data: Limit,
    /// Bytes of a stack.
    pub stack: Limit,
    /// Bytes of a core file, which is never written.
    core: Limit,
    /// Bytes in memory.
    resident: Limit,
    /// Processes of a user.
    processes: Limit,
    /// Bytes that stay in memory.
    locked: Limit,
    /// Descriptors.
    pub files: Limit,
}

const UNLIMITED: Limit = Limit { soft: INFINITY, hard: INFINITY };

impl Limits {
    /// The limits of process 1.
    pub const NONE: Limits = Limits {
        cpu: UNLIMITED,
        file: UNLIMITED,
        space: UNLIMITED,
        data: UNLIMITED,
        stack: Limit { soft: 8 << 20, hard: INFINITY },
        core: UNLIMITED,
        resident: UNLIMITED,
        processes: UNLIMITED,
        locked: Limit { soft: 8 << 20, hard: 8 << 20 },
        files: Limit { soft: DESCRIPTORS as u64, hard: DESCRIPTORS as u64 },
    };

    /// Returns a limit by its number.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if there is no such limit.
    pub fn get(&self, what: u64) -> Result<Limit, Errno> {
        match what {
            CPU => Ok(self.cpu),
            FILE => Ok(self.file),
            SPACE => Ok(self.space),
            DATA => Ok(self.data),
            STACK => Ok(self.stack),
            CORE => Ok(self.core),
            RESIDENT => Ok(self.resident),
            PROCESSES => Ok(self.processes),
            LOCKED => Ok(self.locked),
            FILES => Ok(self.files),
            _ if what <= LAST => Ok(UNLIMITED),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Sets a limit by its number.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if there is no such limit, if the soft one is above the hard one, and if
    /// the kernel does not keep this one; [`Errno::EPERM`] for more descriptors than there are.
    pub fn set(&mut self, what: u64, new: Limit) -> Result<(), Errno> {
        let old = self.get(what)?;
        Errno::EINVAL.when(new.soft > new.hard)?;
        match what {
            CPU => self.cpu = new,
            FILE => self.file = new,
            SPACE => self.space = new,
            DATA => self.data = new,
            STACK => self.stack = new,
            CORE => self.core = new,
            // The one user is the superuser.
            RESIDENT => self.resident = new,
            PROCESSES => self.processes = new,
            LOCKED => self.locked = new,
            FILES if new.hard > DESCRIPTORS as u64 => return Err(Errno::EPERM),
            FILES => self.files = new,
            // A limit without enforcement is no limit.
            _ if new.soft < old.soft => return Err(Errno::EINVAL),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_kept_or_refused() {
        let mut limits = Limits::NONE;
        for what in 0..=LAST {
            let new = Limit { soft: 16, hard: if what == FILES { 100 } else { 1 << 30 } };
            let kept = limits.set(what, new).is_ok();
            assert_eq!(kept, matches!(what, 0..=9), "{what}");
            assert_eq!(limits.get(what) == Ok(new), kept, "{what}");
        }
        let all = Limit { soft: INFINITY, hard: INFINITY };
        assert_eq!(limits.set(LAST, all), Ok(()));
        assert_eq!(limits.set(FILES, all), Err(Errno::EPERM));
        let most = DESCRIPTORS as u64;
        assert_eq!(limits.set(FILES, Limit { soft: 0, hard: most + 1 }), Err(Errno::EPERM));
        assert_eq!(limits.set(FILES, Limit { soft: most, hard: most }), Ok(()));
        assert_eq!(limits.set(SPACE, Limit { soft: 2, hard: 1 }), Err(Errno::EINVAL));
        assert_eq!(limits.get(LAST + 1), Err(Errno::EINVAL));
        assert_eq!(limits.set(LAST + 1, all), Err(Errno::EINVAL));
    }
}
