//! Locks of directories, by which a recorder shows that it is alive.
//!
//! The number of a process in a name does not show that: another process may have the number by
//! now, and another namespace has numbers of its own. The kernel gives a lock up when its process
//! ends, whatever ended it.
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::path::Path;

/// A directory that is locked until this is dropped.
pub(crate) struct Held {
    _directory: File,
}

impl Held {
    /// Locks a directory that this recorder has made. File systems without locks leave it unlocked.
    pub(crate) fn new(directory: &Path) -> io::Result<Self> {
        let file = File::open(directory)?;
        // Another recorder locks it for a moment, to see whether this one is alive.
        while let Err(rustix::io::Errno::INTR) = flock(&file, FlockOperation::LockExclusive) {}
        Ok(Self { _directory: file })
    }

    /// Locks a directory that no living recorder holds. `None` if one does, if the directory is
    /// gone, or if nothing can be told.
    pub(crate) fn of_none(directory: &Path) -> Option<Self> {
        let file = File::open(directory).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Self { _directory: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_held_until_the_drop() {
        let directory = std::env::temp_dir().join(format!("ptarmigan-held-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let held = Held::new(&directory).expect("our directory");
        assert!(Held::of_none(&directory).is_none());
        drop(held);
        assert!(Held::of_none(&directory).is_some());
        std::fs::remove_dir(&directory).expect("our directory");
        assert!(Held::of_none(&directory).is_none(), "it is gone");
    }
}
