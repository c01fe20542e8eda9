//! Shared memory with keys (`shmget`): segments, each of which is an object.

use crate::errno::Errno;

/// Segments at the most.
pub const SEGMENTS: usize = 64;
/// `IPC_PRIVATE`: a segment that no key leads to.
const PRIVATE: i32 = 0;
/// A number has the place in its lowest bits, and above them how often that was used.
const PLACE_BITS: u32 = 15;

/// A segment.
#[derive(Clone, Copy)]
pub struct Keyed {
    is_used: bool,
    /// Its key.
    pub key: i32,
    /// Its pages.
    pub object: u32,
    /// Its size in bytes, as it was asked for.
    pub size: u64,
    /// Permissions.
    pub mode: u16,
    /// How often its place was used before.
    pub turn: u16,
    /// It goes with the last space that shows it.
    pub is_removed: bool,
    /// The process that made it.
    pub creator: i32,
    /// The process that attached or detached it last; 0 for none.
    pub last: i32,
    /// When it was attached, detached and changed last, in nanoseconds since boot; 0 for never.
    pub times: [u64; 3],
}

impl Keyed {
    const NONE: Keyed = Keyed {
        is_used: false,
        key: PRIVATE,
        object: 0,
        size: 0,
        mode: 0,
        turn: 0,
        is_removed: false,
        creator: 0,
        last: 0,
        times: [0; 3],
    };
}

/// All segments.
pub struct KeyedMemory {
    all: [Keyed; SEGMENTS],
    /// Those that were removed and are there still.
    removed: u32,
}

impl KeyedMemory {
    /// Makes an empty table.
    pub const fn new() -> Self {
        KeyedMemory { all: [Keyed::NONE; SEGMENTS], removed: 0 }
    }

    /// Returns the number of the segment of a key.
    pub fn find(&self, key: i32) -> Option<i32> {
        let has_key = |one: &Keyed| one.is_used && !one.is_removed && key != PRIVATE && one.key == key;
        self.all.iter().position(has_key).map(|place| self.number(place))
    }

    fn number(&self, place: usize) -> i32 {
        i32::from(self.all[place].turn) << PLACE_BITS | place as i32
    }

    /// Returns the number of the segment in a place.
    pub fn number_at(&self, place: u64) -> Option<i32> {
        let place = usize::try_from(place).ok().filter(|place| *place < SEGMENTS)?;
        self.all[place].is_used.then(|| self.number(place))
    }

    /// Returns the highest place that is used, and the number of segments.
    pub fn used(&self) -> (usize, usize) {
        let highest = self.all.iter().rposition(|one| one.is_used).unwrap_or(0);
        (highest, self.all.iter().filter(|one| one.is_used).count())
    }

    /// Adds a segment, whose user of `object` the table becomes; returns its number.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOSPC`] if there are too many.
    pub fn add(&mut self, segment: Keyed) -> Result<i32, Errno> {
        let place = self.all.iter().position(|one| !one.is_used).ok_or(Errno::ENOSPC)?;
        // Numbers are positive.
        let turn = self.all[place].turn.wrapping_add(1) & 0x7fff;
        self.all[place] = Keyed { is_used: true, turn, ..segment };
        Ok(self.number(place))
    }

    /// Makes a segment that is not in the table yet.
    pub fn describe(key: i32, object: u32, size: u64, mode: u16, creator: i32, now: u64) -> Keyed {
        Keyed { key, object, size, mode, creator, times: [0, 0, now], ..Keyed::NONE }
    }

    /// Returns a segment by number.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if there is none.
    pub fn get(&mut self, number: i32) -> Result<&mut Keyed, Errno> {
        let place = number as usize % (1 << PLACE_BITS);
        let is_it = number >= 0 && place < SEGMENTS && self.all[place].is_used;
        Errno::EINVAL.when(!is_it || self.number(place) != number)?;
        Ok(&mut self.all[place])
    }

    /// Returns the segment with an object.
    pub fn of_object(&mut self, object: u32) -> Option<&mut Keyed> {
        self.all.iter_mut().find(|one| one.is_used && one.object == object)
    }

    /// Removes a segment: it goes as soon as no space shows it.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn remove(&mut self, number: i32) -> Result<(), Errno> {
        let one = self.get(number)?;
        if !core::mem::replace(&mut one.is_removed, true) {
            one.key = PRIVATE;
            self.removed += 1;
        }
        Ok(())
    }

    /// Whether segments wait for the last space that shows them.
    pub fn has_removed(&self) -> bool {
        self.removed > 0
    }

    /// Takes a removed segment out that `is_shown` says no space shows; returns its object, of
    /// which the table was a user.
    pub fn take_gone(&mut self, is_shown: impl Fn(u32) -> bool) -> Option<u32> {
        let gone = |one: &&mut Keyed| one.is_used && one.is_removed && !is_shown(one.object);
        let one = self.all.iter_mut().find(gone)?;
        one.is_used = false;
        self.removed -= 1;
        Some(one.object)
    }

    /// Takes any segment out: for the kernel's end.
    pub fn take_any(&mut self) -> Option<u32> {
        let one = self.all.iter_mut().find(|one| one.is_used)?;
        one.is_used = false;
        Some(one.object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: i32, object: u32) -> Keyed {
        KeyedMemory::describe(key, object, 4096, 0o600, 1, 5)
    }

    #[test]
    fn numbers_do_not_lead_to_later_segments_of_their_place() {
        let mut all = KeyedMemory::new();
        let first = all.add(one(7, 1)).unwrap();
        assert_eq!((all.find(7), all.find(8), all.find(PRIVATE)), (Some(first), None, None));
        all.remove(first).unwrap();
        all.remove(first).unwrap();
        assert!(all.has_removed() && all.get(first).is_ok());
        assert_eq!((all.find(7), all.take_gone(|_| true), all.take_gone(|_| false)), (None, None, Some(1)));
        assert!(!all.has_removed());
        let second = all.add(one(7, 2)).unwrap();
        assert!(second != first && all.get(first).is_err());
        assert_eq!(all.get(second).unwrap().object, 2);
        for wrong in [-1, i32::MAX, i32::MIN, 1] {
            assert!(all.get(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let mut all = KeyedMemory::new();
        while all.add(one(PRIVATE, 3)).is_ok() {}
        assert_eq!(all.used(), (SEGMENTS - 1, SEGMENTS));
        assert_eq!(all.add(one(9, 4)), Err(Errno::ENOSPC));
        let taken = std::iter::from_fn(|| all.take_any()).count();
        assert_eq!((taken, all.used()), (SEGMENTS, (0, 0)));
    }
}
