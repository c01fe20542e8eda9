//! Shows a space to observers.
use ptarmigan::addr::VirtRange;
use ptarmigan::format::Format;
use ptarmigan::machine::{Machine, On};
use ptarmigan::space::{Area, AreaFlags, Space};

/// When an observer looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the operation.
    Before,
    /// After it.
    After,
}

/// A space, as an observer sees it.
pub trait Look {
    /// Returns the area at an address.
    fn area(&self, va: u64) -> Option<Area>;

    /// Returns how many pages of `range` are mapped.
    fn pages(&self, range: VirtRange) -> u64;

    /// Returns how many pages are mapped that the space may have written for itself: those of its
    /// private areas, but for files that it may not write.
    fn private_pages(&self) -> u64;
}

/// A space of the library.
pub(crate) struct SpaceLook<'a, F: Format, M> {
    pub space: &'a Space<F>,
    pub on: On<'a, M>,
}

impl<F: Format, M: Machine> Look for SpaceLook<'_, F, M> {
    fn area(&self, va: u64) -> Option<Area> {
        self.space.areas().find(self.on, va)
    }

    fn pages(&self, range: VirtRange) -> u64 {
        let mut pages = 0;
        let walked = self.space.tree().walk(self.on, range, |_, _, _| pages += 1);
        debug_assert!(walked.is_ok(), "the space is of this machine");
        pages
    }

    fn private_pages(&self) -> u64 {
        let mut ranges = Vec::new();
        let all = VirtRange { start: 0, end: u64::MAX };
        let seen = self.space.areas().each(self.on, all, |area| {
            let file = area.flags.has(AreaFlags::BACKED) && !area.flags.has(AreaFlags::WRITE);
            if !area.flags.has(AreaFlags::SHARED) && !file {
                ranges.push(VirtRange { start: area.start, end: area.end });
            }
        });
        debug_assert!(seen.is_ok(), "the space is of this machine");
        ranges.into_iter().map(|range| self.pages(range)).sum()
    }
}
