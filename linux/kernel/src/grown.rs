//! Records by number, in frames that come when they are needed: there is no largest number.
//!
//! # Shape
//!
//! A tree of frames, as Linux's radix tree: the lowest hold records, those above hold links. A
//! number above all that the tree reaches gives it one more level, below which the old root is the
//! first frame.
//!
//! A [`Table`] has its first records in place, without frames, and says which numbers are free.

use core::marker::PhantomData;
use core::ptr::{NonNull, null_mut};

use ptarmigan::addr::{FRAME_SIZE, Pfn};

use crate::errno::Errno;
use crate::task::records::Place;

/// A page of zeroes that becomes a frame of the tree.
pub type Page = [u64; FRAME_SIZE / 8];

/// Makes a page of zeroes.
pub type NewPage = fn() -> Result<Place<Page>, Errno>;

/// Where a frame is. A page of zeroes has links to no frame.
#[derive(Clone, Copy)]
struct Link {
    at: *mut Page,
    frame: Pfn,
}

const NONE: Link = Link { at: null_mut(), frame: Pfn(0) };
/// Links in a frame, a power of two.
const LINKS: usize = FRAME_SIZE / size_of::<Link>();

/// Records by number.
pub struct Grown<T> {
    root: Link,
    /// Levels, that of records included.
    height: u32,
    /// Frames of records up to the last one, gaps among them.
    frames: usize,
    of: PhantomData<T>,
}

// SAFETY: 1. Its links lead to frames that no other code reaches (`Place::new`, point 2).
unsafe impl<T: Send> Send for Grown<T> {}

impl<T: Copy> Grown<T> {
    /// Records in a frame.
    pub const IN_PAGE: usize = FRAME_SIZE / size_of::<T>();

    /// Makes a tree without frames.
    pub const fn new() -> Self {
        const { assert!(LINKS.is_power_of_two() && align_of::<T>() <= align_of::<Page>()) };
        Grown { root: NONE, height: 0, frames: 0, of: PhantomData }
    }

    /// Whether there is no frame.
    pub fn is_empty(&self) -> bool {
        self.height == 0
    }

    /// Returns the place of a frame of level `level` in one above it.
    fn place(frame: usize, level: u32) -> usize {
        frame >> (level * LINKS.ilog2()) & (LINKS - 1)
    }

    /// Whether the tree is high enough for a frame of records.
    fn reaches(&self, frame: usize) -> bool {
        self.height > 0 && frame.checked_shr((self.height - 1) * LINKS.ilog2()).unwrap_or(0) == 0
    }

    /// Returns where the records of a frame are; null without it.
    fn records(&self, frame: usize) -> *mut T {
        if !self.reaches(frame) {
            return null_mut();
        }
        let mut link = self.root;
        for level in (0..self.height - 1).rev() {
            if link.at.is_null() {
                break;
            }
            // SAFETY: 1. A frame above those of records holds `LINKS` links, and zeroes are one
            // (`make`); it stays until `take_page` removes its link.
            link = unsafe { *link.at.cast::<Link>().add(Self::place(frame, level)) };
        }
        link.at.cast()
    }

    /// Returns a record, if there is a frame for it.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&T> {
        let records = NonNull::new(self.records(number / Self::IN_PAGE))?;
        // SAFETY: 1. The frame holds `IN_PAGE` records (`make`), and stays while `self` is
        // borrowed; no other code reaches it.
        Some(unsafe { records.add(number % Self::IN_PAGE).as_ref() })
    }

    /// Returns a record to be changed, if there is a frame for it.
    #[inline]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        let records = NonNull::new(self.records(number / Self::IN_PAGE))?;
        // SAFETY: 1. As in `get`; `self` is borrowed exclusively.
        Some(unsafe { records.add(number % Self::IN_PAGE).as_mut() })
    }

    /// Calls `f` with each frame of records, and the number of its first record.
    pub fn each_page(&self) -> impl Iterator<Item = (usize, &[T])> {
        (0..self.frames).filter_map(|frame| {
            let records = NonNull::new(self.records(frame))?;
            // SAFETY: 1. As in `get`, of all records of the frame.
            let all = unsafe { core::slice::from_raw_parts(records.as_ptr(), Self::IN_PAGE) };
            Some((frame * Self::IN_PAGE, all))
        })
    }

    /// Calls `f` with each record, to be changed.
    pub fn each_mut(&mut self, mut f: impl FnMut(&mut T)) {
        for frame in 0..self.frames {
            let Some(records) = NonNull::new(self.records(frame)) else { continue };
            for i in 0..Self::IN_PAGE {
                // SAFETY: 1. As in `get_mut`; the reference ends with the call.
                f(unsafe { records.add(i).as_mut() });
            }
        }
    }

    /// Makes the frame of a record, if it is missing, with copies of `fill`. Returns the record.
    ///
    /// # Errors
    ///
    /// Those of `new`; frames that were made stay.
    #[cold]
    #[inline(never)]
    pub fn make(
        &mut self,
        number: usize,
        fill: T,
        mut new: impl FnMut() -> Result<Place<Page>, Errno>,
    ) -> Result<&mut T, Errno> {
        let mut page = || new().map(|place| Link { at: place.at().as_ptr(), frame: place.frame });
        let frame = number / Self::IN_PAGE;
        while self.height > 0 && !self.reaches(frame) {
            let root = page()?;
            // SAFETY: 1. A page of zeroes that is this tree's alone has room for `LINKS` links.
            unsafe { root.at.cast::<Link>().write(self.root) };
            (self.root, self.height) = (root, self.height + 1);
        }
        if self.height == 0 {
            // As high as it has to be: the frames on the way come below.
            let mut height = 1;
            while frame.checked_shr((height - 1) * LINKS.ilog2()).unwrap_or(0) > 0 {
                height += 1;
            }
            let root = page()?;
            (self.root, self.height) = (root, height);
            if height == 1 {
                Self::fill(root.at, fill);
            }
        }
        let mut link = self.root;
        for level in (0..self.height - 1).rev() {
            // SAFETY: 1. As in `records`; `self` is borrowed exclusively.
            let below = unsafe { &mut *link.at.cast::<Link>().add(Self::place(frame, level)) };
            if below.at.is_null() {
                *below = page()?;
                if level == 0 {
                    Self::fill(below.at, fill);
                }
            }
            link = *below;
        }
        self.frames = self.frames.max(frame + 1);
        self.get_mut(number).ok_or(Errno::ENOMEM)
    }

    /// Makes a page one of records.
    fn fill(at: *mut Page, fill: T) {
        for i in 0..Self::IN_PAGE {
            // SAFETY: 1. The page is the tree's alone, and has room for `IN_PAGE` records, whose
            // alignment is not larger than its own (`new`).
            unsafe { at.cast::<T>().add(i).write(fill) };
        }
    }

    /// Takes a frame out: of a tree that is not used any more.
    #[must_use = "the frame is lost if it is not given back"]
    pub fn take_page(&mut self) -> Option<Place<Page>> {
        self.frames = 0;
        let mut at = &raw mut self.root;
        let mut level = self.height;
        loop {
            // SAFETY: 1. It is the root's link, or one in a frame of links, which `self`, borrowed
            // exclusively, leads to.
            let link = unsafe { *at };
            let frame = NonNull::new(link.at)?;
            let links = link.at.cast::<Link>();
            // SAFETY: 1. As in `records`.
            let is_there = |i: &usize| unsafe { !(*links.add(*i)).at.is_null() };
            match (0..if level > 1 { LINKS } else { 0 }).find(is_there) {
                Some(below) => {
                    // SAFETY: 1. As in `records`.
                    at = unsafe { links.add(below) };
                    level -= 1;
                }
                None => {
                    // SAFETY: 1. As above.
                    unsafe { *at = NONE };
                    if level == self.height {
                        self.height = 0;
                    }
                    // SAFETY: 1. It was a page when it came, and has no link any more. 2. As `new`
                    // of `make` gave it.
                    return Some(unsafe { Place::new(frame, link.frame) });
                }
            }
        }
    }
}

/// A record of a [`Table`], which is free or not.
pub trait Record: Copy {
    /// A free one.
    const FREE: Self;
    /// Makes the record a free one, in front of another free one; 0 without one.
    fn set_free(&mut self, next: u32);
    /// Returns the free one that [`set_free`](Self::set_free) named.
    fn next_free(&self) -> u32;
}

/// Records with numbers from 1 on: the first `N` in place, others in frames.
pub struct Table<T, const N: usize> {
    first: [T; N],
    more: Grown<T>,
    /// Numbers up to this one were given out.
    used: u32,
    /// The first free one of them.
    free: u32,
}

impl<T: Record, const N: usize> Table<T, N> {
    /// Makes a table without records.
    pub const fn new() -> Self {
        Table { first: [T::FREE; N], more: Grown::new(), used: 0, free: 0 }
    }

    /// Returns a record.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        let index = (number as usize).wrapping_sub(1);
        match self.first.get(index) {
            Some(record) => Some(record),
            None => self.grown(index),
        }
    }

    #[cold]
    #[inline(never)]
    fn grown(&self, index: usize) -> Option<&T> {
        self.more.get(index.wrapping_sub(N))
    }

    /// Returns a record to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = (number as usize).wrapping_sub(1);
        if index < N { self.first.get_mut(index) } else { self.grown_mut(index) }
    }

    #[cold]
    #[inline(never)]
    fn grown_mut(&mut self, index: usize) -> Option<&mut T> {
        self.more.get_mut(index.wrapping_sub(N))
    }

    /// Takes a free number for a record. `new` makes a page of zeroes if there is no room.
    ///
    /// # Errors
    ///
    /// Those of `new`.
    pub fn claim(
        &mut self,
        record: T,
        new: impl FnMut() -> Result<Place<Page>, Errno>,
    ) -> Result<u32, Errno> {
        let number = if self.free == 0 { self.used + 1 } else { self.free };
        let place = match self.get_mut(number) {
            Some(place) => place,
            None => self.more.make(number as usize - 1 - N, T::FREE, new)?,
        };
        let next = core::mem::replace(place, record).next_free();
        if self.free == 0 {
            self.used = number;
        } else {
            self.free = next;
        }
        Ok(number)
    }

    /// Makes a number free that was taken.
    pub fn release(&mut self, number: u32) {
        let next = self.free;
        if let Some(record) = self.get_mut(number) {
            record.set_free(next);
            self.free = number;
        }
    }

    /// Returns all records with their numbers, free ones among them.
    pub fn each(&self) -> impl Iterator<Item = (u32, &T)> {
        let pages = self.more.each_page().map(|(first, page)| (first + N, page));
        let all = core::iter::once((0, &self.first[..])).chain(pages);
        let numbered = all.flat_map(|(first, page)| (first as u32 + 1..).zip(page));
        numbered.take(self.used as usize)
    }

    /// Calls `f` with each record, to be changed, free ones among them.
    pub fn each_mut(&mut self, mut f: impl FnMut(&mut T)) {
        self.first.iter_mut().for_each(&mut f);
        self.more.each_mut(f);
    }

    /// Takes a frame out: of a table that is not used any more. Its records but the first are gone.
    #[must_use = "the frame is lost if it is not given back"]
    pub fn take_page(&mut self) -> Option<Place<Page>> {
        (self.used, self.free) = (0, 0);
        self.more.take_page()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::boxed::Box;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use super::*;

    /// A page on the heap, which is leaked.
    pub(crate) fn page() -> Result<Place<Page>, Errno> {
        let page = NonNull::from(Box::leak(Box::new([0; FRAME_SIZE / 8])));
        // SAFETY: 1. and 2. It is on the heap, and leaked.
        Ok(unsafe { Place::new(page, Pfn(1)) })
    }

    #[test]
    fn numbers_of_any_size_have_records_of_their_own() {
        let (mut grown, mut model, mut pages) = (Grown::<[u32; 26]>::new(), BTreeMap::new(), 0);
        assert!(grown.is_empty() && grown.get(0).is_none() && grown.get(usize::MAX).is_none());
        let in_page = Grown::<[u32; 26]>::IN_PAGE;
        let near = |n: usize| [n.saturating_sub(1), n, n + 1];
        let borders = [0, in_page, in_page * LINKS, in_page * LINKS * LINKS].map(near);
        for (i, number) in borders.into_iter().flatten().enumerate() {
            let made = grown.make(number, [7; 26], || {
                pages += 1;
                page()
            });
            let record = made.expect("a page");
            assert!(record[25] == 7 || model.contains_key(&number));
            record[25] = 100 + i as u32;
            model.insert(number, 100 + i as u32);
            for (number, value) in &model {
                assert_eq!(grown.get(*number).map(|record| record[25]), Some(*value), "{number}");
            }
        }
        let seen: Vec<usize> = grown
            .each_page()
            .flat_map(|(first, page)| (first..).zip(page).filter(|(_, r)| r[25] >= 100).map(|(n, _)| n))
            .collect();
        assert_eq!(seen, model.keys().copied().collect::<Vec<_>>());
        grown.each_mut(|record| record[0] = 3);
        assert!(model.keys().all(|number| grown.get(*number).is_some_and(|record| record[0] == 3)));
        assert_eq!(core::iter::from_fn(|| grown.take_page()).count(), pages);
        assert!(grown.is_empty() && grown.take_page().is_none());
    }

    #[test]
    fn without_a_page_nothing_is_lost() {
        let mut grown = Grown::<u64>::new();
        let mut left = 0;
        let some = |left: &mut i32| {
            *left -= 1;
            if *left < 0 { Err(Errno::ENOMEM) } else { page() }
        };
        let far = Grown::<u64>::IN_PAGE * LINKS * 3;
        *grown.make(5, 1, page).expect("a page") = 9;
        for pages in 0..5 {
            left = pages;
            let made = grown.make(far, 1, || some(&mut left)).is_ok();
            assert_eq!((made, grown.get(5), grown.get(6)), (pages > 0 && made, Some(&9), Some(&1)));
        }
        assert_eq!(grown.get(far), Some(&1));
        let mut taken = 0;
        while grown.take_page().is_some() {
            taken += 1;
        }
        assert_eq!((taken, left), (5, 4));
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Number(u32, bool);

    impl Record for Number {
        const FREE: Self = Number(0, false);

        fn set_free(&mut self, next: u32) {
            *self = Number(next, false);
        }

        fn next_free(&self) -> u32 {
            self.0
        }
    }

    #[test]
    fn a_table_gives_each_number_out_once() {
        let (mut table, mut taken) = (Table::<Number, 4>::new(), BTreeMap::new());
        let mut random = 1u64;
        for turn in 0..6_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let picked = taken.keys().nth((random >> 33) as usize % 300).copied();
            match picked.filter(|_| random >> 62 == 0 || turn > 10_000) {
                Some(number) => {
                    taken.remove(&number);
                    table.release(number);
                }
                None => {
                    let number = table.claim(Number(turn, true), page).expect("a page");
                    assert_eq!(taken.insert(number, turn), None, "{number}");
                }
            }
        }
        let there: Vec<_> = table.each().filter(|(_, r)| r.1).map(|(n, r)| (n, r.0)).collect();
        assert!(there.len() > 100 && there == taken.into_iter().collect::<Vec<_>>());
        assert_eq!((table.get(0), table.get(u32::MAX)), (None, None));
        assert_eq!(table.get_mut(0), None);
        // Without pages, those in place are all that there are.
        let mut table = Table::<Number, 4>::new();
        let all = core::iter::from_fn(|| table.claim(Number(1, true), || Err(Errno::ENOMEM)).ok());
        assert_eq!(all.collect::<Vec<_>>(), [1, 2, 3, 4]);
        table.release(3);
        assert_eq!(table.claim(Number(2, true), || Err(Errno::ENOMEM)), Ok(3));
    }
}
