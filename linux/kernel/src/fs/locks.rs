//! Locks of files: on ranges of bytes (`fcntl`), and on whole files (`flock`).
//!
//! A lock belongs to a process, or to an open file. Locks of one owner never conflict. Locks on
//! ranges conflict with each other, whoever has them, and never with locks on whole files.
//!
//! The locks of one owner on one file do not overlap, and two of one kind do not touch: they are
//! one lock.

use crate::errno::Errno;

/// Locks at the most.
pub const LOCKS: usize = 256;
/// The last byte that a lock can be on.
pub const LAST: u64 = i64::MAX as u64;

/// The owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A process, by its slot (`F_SETLK`).
    Process(u16),
    /// An open file (`F_OFD_SETLK`).
    Open(u16),
    /// An open file, which has locked the whole file (`flock`).
    Whole(u16),
}

impl Owner {
    fn is_whole(self) -> bool {
        matches!(self, Owner::Whole(_))
    }
}

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// The name of the file.
    pub file: u32,
    /// The owner.
    pub owner: Owner,
    /// The first byte.
    pub first: u64,
    /// The last byte.
    pub last: u64,
    /// No other owner may have a lock there.
    pub exclusive: bool,
}

impl FileLock {
    fn has_owner_of(&self, other: &FileLock) -> bool {
        self.file == other.file && self.owner == other.owner
    }

    fn overlaps(&self, other: &FileLock) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    fn touches(&self, other: &FileLock) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    fn conflicts_with(&self, other: &FileLock) -> bool {
        self.file == other.file
            && self.owner != other.owner
            && self.owner.is_whole() == other.owner.is_whole()
            && (self.exclusive || other.exclusive)
            && self.overlaps(other)
    }
}

/// All locks.
pub struct Locks {
    all: [Option<FileLock>; LOCKS],
    count: usize,
}

impl Locks {
    /// Makes a table without locks.
    pub const fn new() -> Self {
        Locks { all: [None; LOCKS], count: 0 }
    }

    /// Returns the first lock, by its first byte, that conflicts with one.
    pub fn conflict(&self, wanted: &FileLock) -> Option<FileLock> {
        let conflicts = self.all.iter().flatten().filter(|lock| lock.conflicts_with(wanted));
        conflicts.min_by_key(|lock| lock.first).copied()
    }

    /// Sets a lock that conflicts with no other. It replaces those of its owner in its range.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOLCK`] if there are too many; the locks are as they were then.
    pub fn set(&mut self, mut lock: FileLock) -> Result<(), Errno> {
        self.cut(&lock, |old| old.exclusive != lock.exclusive, 1)?;
        // Those that are left and touch it are of its kind.
        for place in &mut self.all {
            if let Some(old) = place
                && old.has_owner_of(&lock)
                && old.exclusive == lock.exclusive
                && old.touches(&lock)
            {
                (lock.first, lock.last) = (lock.first.min(old.first), lock.last.max(old.last));
                *place = None;
                self.count -= 1;
            }
        }
        self.add(lock);
        Ok(())
    }

    /// Takes the locks of an owner away from a range; the kind of `range` is not looked at.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOLCK`] if one is cut in two and there are too many; the locks are as they were
    /// then.
    pub fn remove(&mut self, range: &FileLock) -> Result<(), Errno> {
        self.cut(range, |_| true, 0)
    }

    /// Cuts a range out of those locks of its owner for which `which` returns true. There is a
    /// place for `more` locks afterwards.
    fn cut(&mut self, range: &FileLock, which: impl Fn(&FileLock) -> bool, more: usize) -> Result<(), Errno> {
        let is_cut = |lock: &FileLock| lock.has_owner_of(range) && lock.overlaps(range) && which(lock);
        let is_split = |lock: &FileLock| lock.first < range.first && lock.last > range.last;
        let split = self.all.iter().flatten().any(|lock| is_cut(lock) && is_split(lock));
        Errno::ENOLCK.when(LOCKS - self.count < more + usize::from(split))?;
        let mut second = None;
        for place in &mut self.all {
            let Some(old) = place.filter(is_cut) else { continue };
            let before = (old.first < range.first).then(|| FileLock { last: range.first - 1, ..old });
            let behind = (old.last > range.last).then(|| FileLock { first: range.last + 1, ..old });
            *place = before.or(behind);
            self.count -= usize::from(place.is_none());
            // Locks of one owner do not overlap: one is cut in two at the most.
            if before.is_some() && behind.is_some() {
                second = behind;
            }
        }
        if let Some(second) = second {
            self.add(second);
        }
        Ok(())
    }

    fn add(&mut self, lock: FileLock) {
        if let Some(place) = self.all.iter_mut().find(|place| place.is_none()) {
            *place = Some(lock);
            self.count += 1;
        }
    }

    /// Removes all locks of an owner on a file; whether there was one.
    pub fn release(&mut self, file: u32, owner: Owner) -> bool {
        let before = self.count;
        if before > 0 {
            for place in &mut self.all {
                if place.is_some_and(|lock| lock.file == file && lock.owner == owner) {
                    *place = None;
                    self.count -= 1;
                }
            }
        }
        self.count < before
    }

    /// Removes the lock of an owner on a whole file if it is of another kind than `lock`; whether
    /// it was.
    pub fn change_kind(&mut self, lock: &FileLock) -> bool {
        let differs = |old: &FileLock| old.has_owner_of(lock) && old.exclusive != lock.exclusive;
        self.all.iter().flatten().any(differs) && self.release(lock.file, lock.owner)
    }

    /// Whether there is a lock.
    pub fn any(&self) -> bool {
        self.count > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: Owner, first: u64, last: u64, exclusive: bool) -> FileLock {
        FileLock { file: 1, owner, first, last, exclusive }
    }

    #[test]
    fn locks_conflict_if_owners_differ_and_one_is_exclusive() {
        let mut locks = Locks::new();
        let (one, two) = (Owner::Process(1), Owner::Open(1));
        assert_eq!(locks.set(lock(one, 10, 19, false)), Ok(()));
        assert_eq!(locks.conflict(&lock(two, 0, LAST, false)), None);
        assert_eq!(locks.conflict(&lock(two, 0, LAST, true)), Some(lock(one, 10, 19, false)));
        assert_eq!(locks.conflict(&lock(one, 0, LAST, true)), None);
        assert_eq!(locks.conflict(&lock(two, 0, 9, true)), None);
        assert_eq!(locks.conflict(&lock(two, 20, LAST, true)), None);
        assert_eq!(locks.conflict(&FileLock { file: 2, ..lock(two, 0, LAST, true) }), None);
        assert_eq!(locks.conflict(&lock(Owner::Whole(7), 0, LAST, true)), None);
        assert_eq!(locks.set(lock(Owner::Whole(7), 0, LAST, false)), Ok(()));
        assert!(locks.conflict(&lock(Owner::Whole(8), 0, LAST, true)).is_some());
        assert!(!locks.change_kind(&lock(Owner::Whole(7), 0, LAST, false)));
        assert!(!locks.change_kind(&lock(Owner::Whole(8), 0, LAST, true)));
        assert!(locks.change_kind(&lock(Owner::Whole(7), 0, LAST, true)));
        assert_eq!(locks.set(lock(Owner::Whole(7), 0, LAST, true)), Ok(()));
        assert!(locks.release(1, Owner::Whole(7)) && !locks.release(1, Owner::Whole(7)));
        assert!(locks.release(1, one) && !locks.any());
    }

    #[test]
    fn a_full_table_refuses_locks_and_splits_and_changes_nothing() {
        let mut locks = Locks::new();
        let one = Owner::Process(1);
        assert_eq!(locks.set(lock(one, 0, 9, true)), Ok(()));
        for n in 1..LOCKS as u64 {
            assert_eq!(locks.set(lock(one, 20 * n, 20 * n, true)), Ok(()));
        }
        assert_eq!(locks.set(lock(one, 15, 15, true)), Err(Errno::ENOLCK));
        assert_eq!(locks.remove(&lock(one, 5, 5, false)), Err(Errno::ENOLCK));
        assert_eq!(locks.set(lock(one, 5, 5, false)), Err(Errno::ENOLCK));
        let other = Owner::Process(2);
        assert_eq!(locks.conflict(&lock(other, 0, 15, true)), Some(lock(one, 0, 9, true)));
        assert_eq!(locks.remove(&lock(one, 5, 9, false)), Ok(()));
        assert_eq!(locks.conflict(&lock(other, 0, 15, true)), Some(lock(one, 0, 4, true)));
    }

    /// Compares with a list of the kind of lock that each owner has on each byte.
    #[test]
    fn ranges_are_those_of_a_list_of_bytes() {
        const BYTES: usize = 24;
        let owners = [Owner::Process(3), Owner::Process(4), Owner::Open(3)];
        let (mut locks, mut model) = (Locks::new(), [[None; BYTES]; 3]);
        let mut seed = 1u64;
        let mut next = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..20_000 {
            let (n, first) = (next(3) as usize, next(BYTES as u64));
            let last = first + next(BYTES as u64 - first);
            let wanted = lock(owners[n], first, last, next(2) == 0);
            let bytes = first as usize..=last as usize;
            let conflicts = (0..3).filter(|other| *other != n).any(|other| {
                let taken: &[Option<bool>] = &model[other][bytes.clone()];
                taken.iter().flatten().any(|exclusive| *exclusive || wanted.exclusive)
            });
            assert_eq!(locks.conflict(&wanted).is_some(), conflicts);
            if next(3) == 0 {
                assert_eq!(locks.remove(&wanted), Ok(()));
                model[n][bytes].fill(None);
            } else if !conflicts {
                assert_eq!(locks.set(wanted), Ok(()));
                model[n][bytes].fill(Some(wanted.exclusive));
            }
            // As many locks as there are runs of one kind.
            let runs = model.iter().map(|bytes| {
                let begins = |i: &usize| bytes[*i].is_some() && (*i == 0 || bytes[*i - 1] != bytes[*i]);
                (0..BYTES).filter(begins).count()
            });
            assert_eq!(locks.count, runs.sum::<usize>());
            assert_eq!(locks.count, locks.all.iter().flatten().count());
        }
    }
}
