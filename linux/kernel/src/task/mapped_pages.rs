//! Counts the pages that a space shows: of each object, and in all.
//!
//! Every change of areas takes away the pages that its range showed before
//! ([`MappedPages::remove`]) and adds the pages that it shows afterwards ([`MappedPages::add`]). So
//! the time of a call depends on the areas in its own range only.
//!
//! The first objects have places in the record of the space, [`INLINE`] of them. The others have
//! theirs in pages, by their numbers ([`Grown`]), so that a count is found without a search. A page
//! comes with the first object that needs it, and goes with the space.

use ptarmigan::addr::{FRAME_SIZE, VirtRange};
use ptarmigan::space::{Area, AreaFlags};

use super::records::Place;
use crate::errno::Errno;
use crate::grown::{Grown, Page};

/// Objects that have places in the record of the space.
const INLINE: usize = 64;
#[derive(Clone, Copy)]
struct ObjectPages {
    object: u32,
    pages: u64,
}

/// Counts of the pages that the areas of a space show.
pub struct MappedPages {
    parts: [ObjectPages; INLINE],
    len: usize,
    pages: u64,
    more: More,
}

/// The counts of objects without a place in the record. Few spaces have some, so that its methods
/// are out of the way of others.
struct More {
    /// One more than the pages that are shown of each object, or 0 if it has no place.
    counts: Grown<u64>,
    /// Objects that have a place.
    len: usize,
    /// Of them, those of which no page is shown.
    gone: usize,
}

impl More {
    const fn new() -> Self {
        More { counts: Grown::new(), len: 0, gone: 0 }
    }

    /// Returns the place of an object, taken or not, if there is a page for it.
    fn place(&mut self, object: u32) -> Option<&mut u64> {
        self.counts.get_mut(object as usize)
    }

    /// Returns all objects that have a place, and their counts.
    fn each(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.counts.each_page().flat_map(|(first, page)| {
            let numbered = (first as u32..).zip(page).filter(|(_, count)| **count > 0);
            numbered.map(|(object, count)| (object, count - 1))
        })
    }

    /// Whether an object has a place.
    #[cold]
    fn has(&mut self, object: u32) -> bool {
        self.place(object).is_some_and(|place| *place > 0)
    }

    /// Gives an object a place, in a page that `new` makes if there is none yet; true if it had no
    /// place.
    #[cold]
    fn begin(&mut self, object: u32, new: impl FnMut() -> Result<Place<Page>, Errno>) -> Result<bool, Errno> {
        let place = match self.counts.get_mut(object as usize) {
            Some(place) => place,
            None => self.counts.make(object as usize, 0, new)?,
        };
        if *place > 0 {
            return Ok(false);
        }
        *place = 1;
        (self.len, self.gone) = (self.len + 1, self.gone + 1);
        Ok(true)
    }

    /// Changes the count of an object that has a place.
    #[cold]
    fn change(&mut self, object: u32, by: impl FnOnce(u64) -> u64) {
        let Some(place) = self.place(object).filter(|place| **place > 0) else { return };
        let before = core::mem::replace(place, by(*place - 1) + 1);
        let is_gone = *place == 1;
        self.gone = self.gone + usize::from(is_gone) - usize::from(before == 1);
    }

    /// Takes the place of an object away of which no page is shown.
    #[cold]
    fn take_gone(&mut self) -> Option<u32> {
        let (object, _) = self.each().find(|(_, pages)| *pages == 0)?;
        *self.place(object)? = 0;
        (self.len, self.gone) = (self.len - 1, self.gone - 1);
        Some(object)
    }

    /// Gives the same objects places with the same counts. `new` makes pages of zeroes.
    #[cold]
    fn copy_from(
        &mut self,
        other: &More,
        mut new: impl FnMut() -> Result<Place<Page>, Errno>,
    ) -> Result<(), Errno> {
        for (object, pages) in other.each() {
            self.begin(object, &mut new)?;
            self.change(object, |_| pages);
        }
        Ok(())
    }

    /// Sets the counts of all objects to 0.
    #[cold]
    fn restart(&mut self) {
        self.counts.each_mut(|count| *count = (*count).min(1));
        self.gone = self.len;
    }
}

impl MappedPages {
    /// Makes the counts of a space without areas.
    pub const fn new() -> Self {
        MappedPages {
            parts: [ObjectPages { object: 0, pages: 0 }; INLINE],
            len: 0,
            pages: 0,
            more: More::new(),
        }
    }

    fn used(&self) -> &[ObjectPages] {
        self.parts.get(..self.len).unwrap_or_default()
    }

    /// Makes the counts, which have no object, those of `other`. `new` makes pages of zeroes.
    ///
    /// # Errors
    ///
    /// Those of `new`; some objects have no place then.
    pub fn copy_from(
        &mut self,
        other: &MappedPages,
        new: impl FnMut() -> Result<Place<Page>, Errno>,
    ) -> Result<(), Errno> {
        let used = other.used();
        if let Some(parts) = self.parts.get_mut(..used.len()) {
            parts.copy_from_slice(used);
        }
        (self.len, self.pages) = (other.len, other.pages);
        if other.more.len > 0 { self.more.copy_from(&other.more, new) } else { Ok(()) }
    }

    /// Calls `f` with each object.
    pub fn each_object(&self, mut f: impl FnMut(u32)) {
        for part in self.used() {
            f(part.object);
        }
        if self.more.len > 0 {
            self.more.each().for_each(|(object, _)| f(object));
        }
    }

    /// Whether an object has a place.
    pub fn has(&mut self, object: u32) -> bool {
        self.used().iter().any(|part| part.object == object) || (self.more.len > 0 && self.more.has(object))
    }

    /// Returns how many pages all areas have, without those that grow: the library lets stacks grow
    /// at faults.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Makes a place for an object; true if it had no place. `new` makes a page of zeroes.
    ///
    /// # Errors
    ///
    /// Those of `new`.
    pub fn begin(
        &mut self,
        object: u32,
        new: impl FnMut() -> Result<Place<Page>, Errno>,
    ) -> Result<bool, Errno> {
        if self.has(object) {
            return Ok(false);
        }
        let Some(part) = self.parts.get_mut(self.len) else { return self.more.begin(object, new) };
        *part = ObjectPages { object, pages: 0 };
        self.len += 1;
        Ok(true)
    }

    /// Makes the counts, which have no object, those of a space that shows no pages of two objects
    /// yet, or of one; true if they are two.
    pub fn begin_only(&mut self, object: u32, other: Option<u32>) -> bool {
        let other = other.filter(|other| *other != object);
        (self.parts[0], self.len, self.pages) = (ObjectPages { object, pages: 0 }, 1, 0);
        if let Some(object) = other {
            (self.parts[1], self.len) = (ObjectPages { object, pages: 0 }, 2);
        }
        other.is_some()
    }

    /// Begins to count again: all objects keep their places, and have no pages.
    pub fn restart(&mut self) {
        let len = self.len;
        for part in self.parts.iter_mut().take(len) {
            part.pages = 0;
        }
        self.pages = 0;
        if self.more.len > 0 {
            self.more.restart();
        }
    }

    fn part(&mut self, object: u32) -> Option<&mut ObjectPages> {
        self.parts.get_mut(..self.len)?.iter_mut().find(|part| part.object == object)
    }

    /// Adds the pages that an area shows in `range`. There is a place for its object.
    #[inline]
    pub fn add(&mut self, area: &Area, range: VirtRange) {
        self.change(area, range, |all, pages| all + pages);
    }

    /// Takes away the pages that an area shows in `range`.
    #[inline]
    pub fn remove(&mut self, area: &Area, range: VirtRange) {
        self.change(area, range, u64::saturating_sub);
    }

    #[inline]
    fn change(&mut self, area: &Area, range: VirtRange, by: impl Fn(u64, u64) -> u64) {
        let pages = area.range().and(range).len() / FRAME_SIZE as u64;
        if !area.flags.has(AreaFlags::GROWS_DOWN) {
            self.pages = by(self.pages, pages);
        }
        if area.object != 0 {
            self.change_object(area.object, |all| by(all, pages));
        }
    }

    fn change_object(&mut self, object: u32, by: impl FnOnce(u64) -> u64) {
        match self.part(object) {
            Some(part) => part.pages = by(part.pages),
            None => self.more.change(object, by),
        }
    }

    /// Takes out an object of which no page is shown any more.
    pub fn take_gone(&mut self) -> Option<u32> {
        if let Some(at) = self.used().iter().position(|part| part.pages == 0) {
            return self.take(at);
        }
        if self.more.gone == 0 { None } else { self.more.take_gone() }
    }

    /// Takes out all objects: of a space that ends. Its pages of counts have to be taken out next.
    pub fn clear(&mut self) {
        (self.len, self.pages, self.more.len, self.more.gone) = (0, 0, 0, 0);
    }

    fn take(&mut self, at: usize) -> Option<u32> {
        let last = *self.parts.get(self.len.checked_sub(1)?)?;
        let gone = core::mem::replace(self.parts.get_mut(at)?, last);
        self.len -= 1;
        Some(gone.object)
    }

    /// Takes out a page of counts: of a space that has ended ([`clear`](Self::clear)).
    pub fn take_page(&mut self) -> Option<Place<Page>> {
        debug_assert!(self.more.len == 0, "all objects are out");
        self.more.counts.take_page()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use super::*;
    use crate::grown::tests::page;

    /// Numbers of objects are below this one.
    const OBJECTS: u32 = 3 << 14;
    const PAGE: u64 = FRAME_SIZE as u64;

    fn range(first: u64, last: u64) -> VirtRange {
        VirtRange::new(first * PAGE, last * PAGE).expect("in order")
    }

    fn area(first: u64, last: u64, object: u32) -> Area {
        Area::new(range(first, last), AreaFlags::READ.with(AreaFlags::SHARED), object)
    }

    fn no_page() -> Result<Place<Page>, Errno> {
        Err(Errno::ENOMEM)
    }

    #[test]
    fn an_object_goes_with_its_last_page_and_not_before() {
        for others in [0, INLINE as u32] {
            let mut shown = MappedPages::new();
            for object in 1..=others {
                assert_eq!(shown.begin(object + 1000, page), Ok(true));
                shown.add(&area(0, 1, object + 1000), range(0, 1));
            }
            let pages = shown.pages();
            assert_eq!(shown.begin(7, page), Ok(true));
            shown.add(&area(10, 20, 7), range(0, 100));
            assert_eq!(shown.begin(7, no_page), Ok(false));
            // The middle goes: two areas are left.
            shown.remove(&area(10, 20, 7), range(12, 18));
            assert_eq!((shown.take_gone(), shown.pages()), (None, pages + 4));
            shown.remove(&area(10, 12, 7), range(0, 12));
            assert_eq!((shown.take_gone(), shown.pages()), (None, pages + 2));
            shown.remove(&area(18, 20, 7), range(18, 20));
            assert_eq!((shown.take_gone(), shown.take_gone(), shown.pages()), (Some(7), None, pages));
        }
    }

    #[test]
    fn a_space_shows_all_objects_that_there_are() {
        let (mut shown, mut model) = (MappedPages::new(), BTreeMap::new());
        let mut random = 1u64;
        for turn in 0..10_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let object = (random >> 33) as u32 % 3000 * (OBJECTS / 3000) + 1;
            let pages = random >> 60 | 1;
            let one = area(100, 100 + pages, object);
            if let Some(before) = model.remove(&object) {
                shown.remove(&area(100, 100 + before, object), range(0, 1000));
                assert_eq!((shown.take_gone(), shown.take_gone()), (Some(object), None), "{turn}");
            } else {
                assert_eq!(shown.begin(object, page), Ok(true));
                shown.add(&one, range(0, 1000));
                model.insert(object, pages);
                assert_eq!((shown.begin(object, no_page), shown.has(object)), (Ok(false), true));
            }
        }
        let all: Vec<u32> = model.keys().copied().collect();
        let sorted = |shown: &MappedPages| {
            let mut objects = Vec::new();
            shown.each_object(|object| objects.push(object));
            objects.sort_unstable();
            objects
        };
        assert!(all.len() > 1000 && sorted(&shown) == all);
        assert_eq!(shown.pages(), model.values().sum());
        let mut copy = MappedPages::new();
        assert_eq!(copy.copy_from(&shown, page), Ok(()));
        assert!(sorted(&copy) == all && copy.pages() == shown.pages() && copy.take_gone().is_none());
        copy.restart();
        assert_eq!(std::iter::from_fn(|| copy.take_gone()).count(), all.len());
        shown.clear();
        assert_eq!((shown.more.len, shown.pages()), (0, 0));
        let pages = 2999 * (OBJECTS as usize / 3000) / Grown::<u64>::IN_PAGE;
        assert!(std::iter::from_fn(|| shown.take_page()).count() >= pages);
        assert_eq!((shown.begin(1, no_page), shown.take_page().is_none()), (Ok(true), true));
    }

    #[test]
    fn without_memory_the_record_has_no_more_places_than_its_own() {
        let (mut shown, all) = (MappedPages::new(), INLINE as u32);
        for object in 1..=all {
            assert_eq!(shown.begin(object, no_page), Ok(true));
            shown.add(&area(u64::from(object), u64::from(object) + 1, object), range(0, 1 << 20));
        }
        assert_eq!(shown.begin(all + 1, no_page), Err(Errno::ENOMEM));
        assert_eq!(shown.begin(all, no_page), Ok(false));
        shown.remove(&area(3, 4, 3), range(3, 4));
        assert_eq!(shown.take_gone(), Some(3));
        // One that never showed a page goes, too.
        assert_eq!((shown.begin(all + 1, no_page), shown.take_gone()), (Ok(true), Some(all + 1)));
        // The copy of a space fails as a whole.
        assert_eq!((shown.begin(3, page), shown.begin(all + 1, page)), (Ok(true), Ok(true)));
        let mut copy = MappedPages::new();
        assert_eq!(copy.copy_from(&shown, no_page), Err(Errno::ENOMEM));
    }

    #[test]
    fn stacks_are_not_counted_as_the_library_lets_them_grow() {
        let mut shown = MappedPages::new();
        let stack = Area::new(range(5, 9), AreaFlags::WRITE.with(AreaFlags::GROWS_DOWN), 0);
        shown.add(&stack, range(0, 100));
        assert_eq!(shown.pages(), 0);
        let larger = Area { start: 2 * PAGE, ..stack };
        shown.remove(&larger, range(0, 100));
        assert_eq!(shown.pages(), 0);
    }
}
