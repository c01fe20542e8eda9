//! Counts the pages that a space shows: of each object, and in all.
//!
//! Every change of areas takes away the pages that its range showed before and adds those that it
//! shows afterwards ([`Shown::remove`], [`Shown::add`]). So the time of a call depends on the areas
//! in its own range only.

use ptarmigan::addr::{FRAME_SIZE, VirtRange};
use ptarmigan::space::{Area, AreaFlags};

use crate::errno::Errno;

/// Objects that a space can show at a time.
pub const MAPPED: usize = 64;

#[derive(Clone, Copy)]
struct Part {
    object: u32,
    pages: u64,
}

/// Counts of the pages that the areas of a space show.
pub struct Shown {
    parts: [Part; MAPPED],
    len: usize,
    pages: u64,
}

impl Shown {
    /// Makes the counts of a space without areas.
    pub const fn new() -> Self {
        Shown { parts: [Part { object: 0, pages: 0 }; MAPPED], len: 0, pages: 0 }
    }

    fn used(&self) -> &[Part] {
        self.parts.get(..self.len).unwrap_or_default()
    }

    /// Makes the counts those of `other`.
    pub fn copy_from(&mut self, other: &Shown) {
        let used = other.used();
        if let Some(parts) = self.parts.get_mut(..used.len()) {
            parts.copy_from_slice(used);
        }
        (self.len, self.pages) = (other.len, other.pages);
    }

    /// Returns the objects.
    pub fn objects(&self) -> impl Iterator<Item = u32> + '_ {
        self.used().iter().map(|part| part.object)
    }

    /// Returns how many pages all areas have, without those that grow: the library lets stacks grow
    /// at faults.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Makes a place for an object; true if it had no place.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOMEM`] if there are too many.
    pub fn begin(&mut self, object: u32) -> Result<bool, Errno> {
        if self.used().iter().any(|part| part.object == object) {
            return Ok(false);
        }
        *self.parts.get_mut(self.len).ok_or(Errno::ENOMEM)? = Part { object, pages: 0 };
        self.len += 1;
        Ok(true)
    }

    /// Makes the counts those of a space without areas, with a place for one object.
    pub fn begin_only(&mut self, object: u32) {
        (self.parts[0], self.len, self.pages) = (Part { object, pages: 0 }, 1, 0);
    }

    /// Begins to count again: all objects keep their places, and have no pages.
    pub fn restart(&mut self) {
        let len = self.len;
        for part in self.parts.iter_mut().take(len) {
            part.pages = 0;
        }
        self.pages = 0;
    }

    fn part(&mut self, object: u32) -> Option<&mut Part> {
        self.parts.get_mut(..self.len)?.iter_mut().find(|part| part.object == object)
    }

    /// Adds the pages that an area shows in `range`. There is a place for its object.
    pub fn add(&mut self, area: &Area, range: VirtRange) {
        self.change(area, range, |all, pages| all + pages);
    }

    /// Takes away the pages that an area shows in `range`.
    pub fn remove(&mut self, area: &Area, range: VirtRange) {
        self.change(area, range, u64::saturating_sub);
    }

    fn change(&mut self, area: &Area, range: VirtRange, by: impl Fn(u64, u64) -> u64) {
        let pages = area.range().and(range).len() / FRAME_SIZE as u64;
        if !area.flags.has(AreaFlags::GROWS_DOWN) {
            self.pages = by(self.pages, pages);
        }
        if area.object != 0
            && let Some(part) = self.part(area.object)
        {
            part.pages = by(part.pages, pages);
        }
    }

    /// Takes out an object of which no page is shown any more.
    pub fn take_gone(&mut self) -> Option<u32> {
        let at = self.used().iter().position(|part| part.pages == 0)?;
        self.take(at)
    }

    /// Takes out any object.
    pub fn take_any(&mut self) -> Option<u32> {
        self.take(self.len.checked_sub(1)?)
    }

    fn take(&mut self, at: usize) -> Option<u32> {
        let last = *self.parts.get(self.len.checked_sub(1)?)?;
        let gone = core::mem::replace(self.parts.get_mut(at)?, last);
        self.len -= 1;
        Some(gone.object)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const PAGE: u64 = FRAME_SIZE as u64;

    fn range(first: u64, last: u64) -> VirtRange {
        VirtRange { start: first * PAGE, end: last * PAGE }
    }

    fn area(first: u64, last: u64, object: u32) -> Area {
        Area::new(range(first, last), AreaFlags::READ.with(AreaFlags::SHARED), object)
    }

    #[test]
    fn an_object_goes_with_its_last_page_and_not_before() {
        let mut shown = Shown::new();
        assert_eq!(shown.begin(7), Ok(true));
        shown.add(&area(10, 20, 7), range(0, 100));
        assert_eq!(shown.begin(7), Ok(false));
        // The middle goes: two areas are left.
        shown.remove(&area(10, 20, 7), range(12, 18));
        assert_eq!((shown.take_gone(), shown.pages()), (None, 4));
        shown.remove(&area(10, 12, 7), range(0, 12));
        assert_eq!((shown.take_gone(), shown.pages()), (None, 2));
        shown.remove(&area(18, 20, 7), range(18, 20));
        assert_eq!((shown.take_gone(), shown.take_gone(), shown.pages()), (Some(7), None, 0));
    }

    #[test]
    fn a_space_shows_so_many_objects_and_then_others_in_their_places() {
        let mut shown = Shown::new();
        let all = MAPPED as u32;
        for object in 1..=all {
            assert_eq!(shown.begin(object), Ok(true));
            shown.add(&area(u64::from(object), u64::from(object) + 1, object), range(0, 1 << 20));
        }
        assert_eq!(shown.begin(all + 1), Err(Errno::ENOMEM));
        assert_eq!(shown.begin(all), Ok(false));
        shown.remove(&area(3, 4, 3), range(3, 4));
        assert_eq!(shown.take_gone(), Some(3));
        assert_eq!(shown.begin(all + 1), Ok(true));
        // One that never showed a page goes, too.
        assert_eq!(shown.take_gone(), Some(all + 1));
        let mut copy = Shown::new();
        copy.copy_from(&shown);
        let objects: Vec<u32> = copy.objects().collect();
        assert_eq!((objects.len(), copy.pages()), (MAPPED - 1, shown.pages()));
        assert_eq!(std::iter::from_fn(|| copy.take_any()).count(), MAPPED - 1);
    }

    #[test]
    fn stacks_are_not_counted_as_the_library_lets_them_grow() {
        let mut shown = Shown::new();
        let stack = Area::new(range(5, 9), AreaFlags::WRITE.with(AreaFlags::GROWS_DOWN), 0);
        shown.add(&stack, range(0, 100));
        assert_eq!(shown.pages(), 0);
        let larger = Area { start: 2 * PAGE, ..stack };
        shown.remove(&larger, range(0, 100));
        assert_eq!(shown.pages(), 0);
    }
}
