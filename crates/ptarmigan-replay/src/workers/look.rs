//! Shows a space to observers.
use ptarmigan::addr::{PhysAddr, VirtRange};
use ptarmigan::format::Format;
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
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

    /// Calls `each` with every area.
    fn areas(&self, each: &mut dyn FnMut(&Area));

    /// Returns the binary logarithm of the bytes that a leaf table maps.
    fn leaf_shift(&self) -> u32;

    /// Calls `each` with every leaf table in `range`, and the number of its entries.
    fn leaf_tables(&self, range: VirtRange, each: &mut dyn FnMut(PhysAddr, u32));

    /// Returns how many pages of `range` are mapped.
    fn pages(&self, range: VirtRange) -> u64;

    /// Returns how many pages are mapped that the space may have written for itself: those of its
    /// private areas, but for files that it may not write.
    fn private_pages(&self) -> u64;
}

/// A space of the library.
pub struct SpaceLook<'a, F: Format, M> {
    pub space: &'a Space<F>,
    pub on: On<'a, M>,
}

impl<F: Format, M: Machine> Look for SpaceLook<'_, F, M> {
    fn area(&self, va: u64) -> Option<Area> {
        self.space.areas().find(self.on, va)
    }

    fn areas(&self, each: &mut dyn FnMut(&Area)) {
        let all = VirtRange::up_to(u64::MAX);
        let seen = self.space.areas().each(self.on, all, |area| each(area));
        debug_assert!(seen.is_ok(), "the space is of this machine");
    }

    fn leaf_shift(&self) -> u32 {
        F::shift(Level(1))
    }

    fn leaf_tables(&self, range: VirtRange, each: &mut dyn FnMut(PhysAddr, u32)) {
        let tree = self.space.tree().on(self.on);
        debug_assert!(tree.is_ok(), "the space is of this machine");
        if let Ok(tree) = tree {
            tree.leaf_tables(range, |_, at, entries| each(at, entries));
        }
    }

    fn pages(&self, range: VirtRange) -> u64 {
        let mut pages = 0;
        let walked = self.space.tree().walk(self.on, range, |_, _, _| pages += 1);
        debug_assert!(walked.is_ok(), "the space is of this machine");
        pages
    }

    fn private_pages(&self) -> u64 {
        let mut ranges = Vec::new();
        self.areas(&mut |area| {
            let file = area.flags.has(AreaFlags::BACKED) && !area.flags.has(AreaFlags::WRITE);
            if !area.flags.has(AreaFlags::SHARED) && !file {
                ranges.push(area.range());
            }
        });
        ranges.into_iter().map(|range| self.pages(range)).sum()
    }
}
