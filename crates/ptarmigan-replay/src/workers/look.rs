//! Shows a space to observers.
use ptarmigan::addr::{PhysAddr, VirtAddr, VirtRange};
use ptarmigan::format::Format;
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::space::{Area, AreaFlags, Space};
use std::ops::Range;

/// When an observer looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the operation.
    Before,
    /// At the space that a fork or an `execve` made.
    Made,
    /// After it.
    After,
}

/// A leaf table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafTable {
    /// The first address that it maps.
    pub start: u64,
    /// Its frame.
    pub at: PhysAddr,
    /// The pages that it maps; 0 if it was left empty.
    pub entries: u32,
}

/// A space, as an observer sees it.
pub trait Look {
    /// Returns the area at an address.
    fn area(&self, va: u64) -> Option<Area>;

    /// Calls `each` with every area.
    fn areas(&self, each: &mut dyn FnMut(&Area));

    /// Returns the binary logarithm of the bytes that a leaf table maps.
    fn leaf_shift(&self) -> u32;

    /// Calls `each` with every leaf table in `range`.
    fn leaf_tables(&self, range: VirtRange, each: &mut dyn FnMut(LeafTable));

    /// Calls `each` with the pages of `range` that are mapped, as runs of page numbers, in order.
    fn mapped(&self, range: VirtRange, each: &mut dyn FnMut(Range<u64>));

    /// Returns whether the page at an address is mapped.
    fn is_mapped(&self, va: u64) -> bool;

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

    fn leaf_tables(&self, range: VirtRange, each: &mut dyn FnMut(LeafTable)) {
        let tree = self.space.tree().on(self.on);
        debug_assert!(tree.is_ok(), "the space is of this machine");
        if let Ok(tree) = tree {
            tree.leaf_tables(range, |va, at, entries| each(LeafTable { start: va.0, at, entries }));
        }
    }

    fn mapped(&self, range: VirtRange, each: &mut dyn FnMut(Range<u64>)) {
        let mut run = 0..0;
        let walked = self.space.tree().walk(self.on, range, |va, _, _| {
            let page = va.0 >> F::PAGE_SHIFT;
            if page != run.end || run.is_empty() {
                if !run.is_empty() {
                    each(run.clone());
                }
                run.start = page;
            }
            run.end = page + 1;
        });
        debug_assert!(walked.is_ok(), "the space is of this machine");
        if !run.is_empty() {
            each(run);
        }
    }

    fn is_mapped(&self, va: u64) -> bool {
        let tree = self.space.tree().on(self.on);
        debug_assert!(tree.is_ok(), "the space is of this machine");
        tree.is_ok_and(|tree| tree.query(VirtAddr(va)).is_some())
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
