//! Sets of open files that a program is interested in (`epoll`).
//!
//! The kernel looks at each file of a set when a program asks. A file that is to be told once for
//! each change (`EPOLLET`) has counts of its changes, and an interest remembers those that it has
//! told.

use crate::errno::Errno;
use crate::timer::Changes;

/// Sets at the most.
const SETS: usize = 64;
/// Interests of all sets at the most.
const INTERESTS: usize = 1024;
/// It can be read.
pub const IN: u32 = 1;
/// It can be written.
pub const OUT: u32 = 4;
/// An error: always told.
pub const ERR: u32 = 8;
/// The other side has closed: always told.
pub const HUP: u32 = 0x10;
/// As [`IN`].
pub const READ_NORMAL: u32 = 0x40;
/// As [`OUT`].
pub const WRITE_NORMAL: u32 = 0x100;
/// One of several waiting programs is told.
pub const EXCLUSIVE: u32 = 1 << 28;
/// Told once, until it is asked for again.
pub const ONESHOT: u32 = 1 << 30;
/// Told once for each change.
pub const EDGE: u32 = 1 << 31;
/// Flags that say how events are told: they are not events.
const FLAGS: u32 = EDGE | ONESHOT | 1 << 29 | EXCLUSIVE;

/// A program's interest in an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    set: u16,
    /// The open file.
    pub file: u16,
    /// The descriptor by which it was added.
    descriptor: u32,
    /// The events, and how they are told.
    events: u32,
    /// The word that the program gets with them.
    pub data: u64,
    /// The changes that were told; `None` before the first.
    told: Option<Changes>,
}

impl Interest {
    /// Returns the events to tell of a file that is ready in these ways.
    pub fn tells(&self, ready: u32, changes: Changes) -> u32 {
        let wanted = self.events & !FLAGS;
        if wanted == 0 {
            return 0;
        }
        let has_changed = self.told.is_none_or(|told| {
            let reads = wanted & (IN | READ_NORMAL) != 0 && told.0 != changes.0;
            reads || wanted & (OUT | WRITE_NORMAL) != 0 && told.1 != changes.1
        });
        if self.events & EDGE != 0 && !has_changed { 0 } else { ready & wanted }
    }

    /// Notes that events were told, or that changes brought no event.
    fn note(&mut self, events: u32, changes: Changes) {
        self.told = Some(changes);
        if events != 0 && self.events & ONESHOT != 0 {
            self.events &= FLAGS;
        }
    }
}

/// All sets.
pub struct Interests {
    all: [Option<Interest>; INTERESTS],
    sets: [bool; SETS],
    /// Where the next look at a set begins, so that no file is always behind others.
    first: [u16; SETS],
    count: usize,
}

impl Interests {
    /// Makes a table without sets.
    pub const fn new() -> Self {
        Interests { all: [None; INTERESTS], sets: [false; SETS], first: [0; SETS], count: 0 }
    }

    /// Makes an empty set.
    ///
    /// # Errors
    ///
    /// [`Errno::ENFILE`].
    pub fn create(&mut self) -> Result<u16, Errno> {
        let free = self.sets.iter().position(|used| !*used).ok_or(Errno::ENFILE)?;
        (self.sets[free], self.first[free]) = (true, 0);
        Ok(free as u16)
    }

    fn remove_if(&mut self, which: impl Fn(&Interest) -> bool) {
        for place in &mut self.all {
            if place.as_ref().is_some_and(&which) {
                *place = None;
                self.count -= 1;
            }
        }
    }

    /// Frees a set, with its interests.
    pub fn close(&mut self, set: u16) {
        self.remove_if(|interest| interest.set == set);
        self.sets[usize::from(set) % SETS] = false;
    }

    /// Removes the interests in an open file that is gone.
    pub fn forget(&mut self, file: u16) {
        if self.count > 0 {
            self.remove_if(|interest| interest.file == file);
        }
    }

    fn find(&mut self, set: u16, file: u16, descriptor: u32) -> Option<&mut Option<Interest>> {
        let is_it = |interest: &Interest| {
            (interest.set, interest.file, interest.descriptor) == (set, file, descriptor)
        };
        self.all.iter_mut().find(|place| place.as_ref().is_some_and(is_it))
    }

    /// Adds an interest to a set.
    ///
    /// # Errors
    ///
    /// [`Errno::EEXIST`]; [`Errno::ENOSPC`] if there are too many.
    pub fn add(&mut self, set: u16, file: u16, descriptor: u32, events: u32, data: u64) -> Result<(), Errno> {
        Errno::EEXIST.when(self.find(set, file, descriptor).is_some())?;
        let place = self.all.iter_mut().find(|place| place.is_none()).ok_or(Errno::ENOSPC)?;
        let events = events | ERR | HUP;
        *place = Some(Interest { set, file, descriptor, events, data, told: None });
        self.count += 1;
        Ok(())
    }

    /// Changes an interest of a set.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`]; [`Errno::EINVAL`] if it or the change is exclusive.
    pub fn change(
        &mut self,
        set: u16,
        file: u16,
        descriptor: u32,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        let interest = self.find(set, file, descriptor).and_then(Option::as_mut).ok_or(Errno::ENOENT)?;
        Errno::EINVAL.when((interest.events | events) & EXCLUSIVE != 0)?;
        (interest.events, interest.data, interest.told) = (events | ERR | HUP, data, None);
        Ok(())
    }

    /// Removes an interest from a set.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`].
    pub fn remove(&mut self, set: u16, file: u16, descriptor: u32) -> Result<(), Errno> {
        *self.find(set, file, descriptor).ok_or(Errno::ENOENT)? = None;
        self.count -= 1;
        Ok(())
    }

    /// Returns the interests of a set, each once, from the one that is next on.
    pub fn next(&self, set: u16, turn: usize) -> Option<(usize, Interest)> {
        let first = usize::from(self.first[usize::from(set) % SETS]);
        let order = (turn..INTERESTS).map(|n| (n, (first + n) % INTERESTS));
        let mut found = order.filter_map(|(n, at)| self.all[at].map(|interest| (n, interest)));
        found.find(|(_, interest)| interest.set == set)
    }

    /// Notes the events that were told of the interest that [`next`](Self::next) returned for a
    /// turn.
    pub fn note(&mut self, set: u16, turn: usize, events: u32, changes: Changes) {
        let first = usize::from(self.first[usize::from(set) % SETS]);
        if let Some(Some(interest)) = self.all.get_mut((first + turn) % INTERESTS) {
            interest.note(events, changes);
        }
    }

    /// Has the next look at a set begin after a turn.
    pub fn begin_after(&mut self, set: u16, turn: usize) {
        let first = &mut self.first[usize::from(set) % SETS];
        *first = ((usize::from(*first) + turn + 1) % INTERESTS) as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(events: u32) -> Interest {
        Interest { set: 0, file: 1, descriptor: 1, events: events | ERR | HUP, data: 0, told: None }
    }

    /// The events of looks at a file: how it is ready, and its changes.
    fn told<const N: usize>(mut interest: Interest, looks: [(u32, Changes); N]) -> [u32; N] {
        looks.map(|(ready, changes)| {
            let events = interest.tells(ready, changes);
            interest.note(events, changes);
            events
        })
    }

    #[test]
    fn levels_are_told_as_long_as_they_last() {
        let looks = [(0, (0, 0)), (IN, (1, 0)), (IN | OUT, (1, 0)), (OUT, (1, 0)), (HUP, (1, 0))];
        assert_eq!(told(one(IN), looks), [0, IN, IN, 0, HUP]);
    }

    #[test]
    fn edges_are_told_once_for_each_change() {
        let looks = [(IN, (1, 0)), (IN, (1, 0)), (IN, (2, 0)), (IN, (2, 5)), (0, (3, 5)), (IN, (3, 5))];
        assert_eq!(told(one(IN | EDGE), looks), [IN, 0, IN, 0, 0, 0]);
        let looks = [(OUT, (0, 0)), (OUT, (9, 0)), (OUT | IN, (9, 1))];
        assert_eq!(told(one(IN | OUT | EDGE), looks), [OUT, OUT, OUT | IN]);
        assert_eq!(told(one(OUT | EDGE), looks), [OUT, 0, OUT]);
    }

    #[test]
    fn one_shots_are_told_until_they_are_asked_for_again() {
        let looks = [(0, (0, 0)), (IN, (1, 0)), (IN | HUP, (2, 0))];
        assert_eq!(told(one(IN | ONESHOT), looks), [0, IN, 0]);
        let mut all = Interests::new();
        let set = all.create().unwrap();
        all.add(set, 1, 1, IN | ONESHOT, 5).unwrap();
        all.note(set, 0, IN, (1, 0));
        let tells = |all: &Interests| all.next(set, 0).unwrap().1.tells(IN, (1, 0));
        assert_eq!(tells(&all), 0);
        all.change(set, 1, 1, IN | EDGE, 6).unwrap();
        assert_eq!((tells(&all), all.next(set, 0).unwrap().1.data), (IN, 6));
    }

    #[test]
    fn a_set_has_each_descriptor_once_and_takes_turns() {
        let mut all = Interests::new();
        let (set, other) = (all.create().unwrap(), all.create().unwrap());
        for file in 0..4 {
            assert_eq!(all.add(set, file, file.into(), IN, 0), Ok(()));
            assert_eq!(all.add(other, file, 7, IN, 0), Ok(()));
        }
        assert_eq!(all.add(set, 2, 2, IN, 0), Err(Errno::EEXIST));
        assert_eq!(all.add(set, 2, 9, IN, 0), Ok(()));
        let files = |all: &Interests| {
            let (mut files, mut turn) = (std::vec::Vec::new(), 0);
            while let Some((n, interest)) = all.next(set, turn) {
                files.push(interest.file);
                turn = n + 1;
            }
            files
        };
        assert_eq!(files(&all), [0, 1, 2, 3, 2]);
        let turn = all.next(set, 1).unwrap().0;
        all.begin_after(set, turn);
        assert_eq!(files(&all), [2, 3, 2, 0, 1]);
        all.forget(2);
        assert_eq!(files(&all), [3, 0, 1]);
        assert_eq!(all.remove(set, 2, 2), Err(Errno::ENOENT));
        assert_eq!(all.remove(set, 0, 0), Ok(()));
        assert_eq!(all.change(set, 0, 0, OUT, 0), Err(Errno::ENOENT));
        all.close(set);
        assert_eq!((files(&all).len(), all.count), (0, 3));
        assert_eq!(all.create(), Ok(set));
    }
}
