//! Records in frames: a task's, a process's, a space's.
//!
//! A record takes a frame when it is made and gives it back when it goes, so that memory is used
//! for live tasks alone. A few frames are kept for the next records ([`SPARE`]): a shell makes and
//! ends one task after the other.

use core::ptr::NonNull;

use ptarmigan::addr::Pfn;

/// Frames of each kind that are kept.
const SPARE: usize = 8;

/// A frame that begins with a record.
pub struct Place<T> {
    at: NonNull<T>,
    /// The frame.
    pub frame: Pfn,
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<T> {}

// SAFETY: 1. No other code reaches the record (`new`, point 2): it goes where its place goes.
unsafe impl<T: Send> Send for Place<T> {}

impl<T> Place<T> {
    /// Names a frame and the record at its beginning.
    ///
    /// # Safety
    ///
    /// 1. A record is at `at`, valid for reads and writes until the place is given up.
    /// 2. No other code reaches it meanwhile, but for bytes of the frame behind it.
    pub unsafe fn new(at: NonNull<T>, frame: Pfn) -> Self {
        Place { at, frame }
    }

    /// Returns where the record is.
    pub fn at(&self) -> NonNull<T> {
        self.at
    }
}

/// Records of one kind by number, below `N`.
///
/// Where they are and their frames are in tables of their own: to find a record takes one load.
pub struct Records<T, const N: usize> {
    at: [NonNull<T>; N],
    frames: [Pfn; N],
    spare: [Option<Place<T>>; SPARE],
    spares: usize,
    /// The record that stands for all that are not there.
    none: NonNull<T>,
}

// SAFETY: 1. Its pointers lead to records that no other code reaches (`Place::new`, point 2; `new`,
// point 1).
unsafe impl<T: Send, const N: usize> Send for Records<T, N> {}

impl<T, const N: usize> Records<T, N> {
    /// Makes an empty table. `none` stands for records that are not there, which no code changes.
    ///
    /// # Safety
    ///
    /// 1. `none` is a record, valid for reads and writes for good, that no other code reaches.
    pub const unsafe fn new(none: NonNull<T>) -> Self {
        Records { at: [none; N], frames: [Pfn(0); N], spare: [const { None }; SPARE], spares: 0, none }
    }

    /// Returns where a record is, or the one that stands for it.
    #[inline]
    fn at(&self, number: usize) -> NonNull<T> {
        if N.is_power_of_two() {
            self.at[number % N]
        } else {
            self.at.get(number).copied().unwrap_or(self.none)
        }
    }

    fn is_there(&self, number: usize) -> bool {
        number < N && self.at(number) != self.none
    }

    /// Returns a record.
    #[inline]
    pub fn get(&self, number: usize) -> &T {
        // SAFETY: 1. It is a place of the table's (`Place::new`) or `none` (`new`, point 1); the
        // table is borrowed.
        unsafe { self.at(number).as_ref() }
    }

    /// Returns a record, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: usize) -> &mut T {
        debug_assert!(self.is_there(number), "record {number} is not there");
        // SAFETY: 1. It is a place of the table's (`Place::new`) or `none` (`new`, point 1); the
        // table is borrowed exclusively.
        unsafe { self.at(number).as_mut() }
    }

    /// Returns two records, the first to be changed; `None` if they are one or are not there.
    pub fn pair(&mut self, to: usize, from: usize) -> Option<(&mut T, &T)> {
        if to == from || !self.is_there(to) || !self.is_there(from) {
            return None;
        }
        // SAFETY: 1. Both places are the table's, which is borrowed exclusively. 2. They have
        // different numbers, and so different frames.
        Some(unsafe { (self.at(to).as_mut(), self.at(from).as_ref()) })
    }

    /// Gives `number` a frame that was kept, with whatever record was there last; returns it.
    pub fn reuse(&mut self, number: usize) -> Option<Place<T>> {
        let last = self.spares.checked_sub(1)?;
        let place = self.spare.get_mut(last)?.take()?;
        self.spares = last;
        self.set(number, place);
        Some(place)
    }

    /// Gives `number`, which has none, a record.
    pub fn set(&mut self, number: usize, place: Place<T>) {
        if let (Some(at), Some(frame)) = (self.at.get_mut(number), self.frames.get_mut(number)) {
            (*at, *frame) = (place.at, place.frame);
        }
    }

    /// Removes a record. Returns its frame, unless it is kept.
    #[must_use = "the frame is lost if it is not given back"]
    pub fn remove(&mut self, number: usize) -> Option<Place<T>> {
        let place = self.take(number)?;
        match self.spare.get_mut(self.spares) {
            Some(spare) => {
                *spare = Some(place);
                self.spares += 1;
                None
            }
            None => Some(place),
        }
    }

    fn take(&mut self, number: usize) -> Option<Place<T>> {
        let at = core::mem::replace(self.at.get_mut(number)?, self.none);
        (at != self.none).then_some(Place { at, frame: *self.frames.get(number)? })
    }

    /// Removes any record, or a frame that is kept: for the kernel's end.
    #[must_use = "the frame is lost if it is not given back"]
    pub fn remove_any(&mut self) -> Option<Place<T>> {
        self.spares = 0;
        if let Some(kept) = self.spare.iter_mut().find_map(Option::take) {
            return Some(kept);
        }
        self.take(self.at.iter().position(|at| *at != self.none)?)
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;

    use super::*;

    fn record(value: u64) -> NonNull<u64> {
        NonNull::from(Box::leak(Box::new(value)))
    }

    fn place(value: u64) -> Place<u64> {
        // SAFETY: 1. and 2. It is on the heap, and leaked.
        unsafe { Place::new(record(value), Pfn(value as u32)) }
    }

    fn records<const N: usize>() -> Records<u64, N> {
        // SAFETY: 1. It is on the heap, and leaked.
        unsafe { Records::new(record(7)) }
    }

    #[test]
    fn a_record_that_is_not_there_is_none() {
        let mut records = records::<5>();
        assert_eq!((*records.get(1), *records.get(2), *records.get(usize::MAX)), (7, 7, 7));
        records.set(1, place(5));
        *records.get_mut(1) += 1;
        assert_eq!((*records.get(1), *records.get(2)), (6, 7));
        assert!(records.remove(1).is_none() && records.remove(1).is_none() && records.remove(9).is_none());
        assert_eq!(*records.get(1), 7);
    }

    #[test]
    fn two_records_are_two() {
        let mut records = records::<4>();
        records.set(0, place(10));
        records.set(3, place(13));
        assert!(records.pair(0, 0).is_none());
        assert!(records.pair(0, 1).is_none());
        assert!(records.pair(4, 0).is_none());
        let (to, from) = records.pair(3, 0).expect("two records");
        *to = *from;
        assert_eq!(*records.get(3), 10);
    }

    #[test]
    fn some_frames_are_kept_and_all_come_back_at_the_end() {
        let mut records = records::<64>();
        let all = SPARE + 5;
        (0..all).for_each(|number| records.set(number, place(number as u64)));
        let back = (0..all - 1).filter_map(|number| records.remove(number)).count();
        assert_eq!(back, all - 1 - SPARE);
        assert!(records.remove(0).is_none());
        let reused = records.reuse(2).expect("one is kept");
        assert_eq!(*records.get(2), u64::from(reused.frame.0));
        assert_eq!(core::iter::from_fn(|| records.remove_any()).count(), 1 + SPARE);
        assert!(records.reuse(0).is_none());
    }
}
