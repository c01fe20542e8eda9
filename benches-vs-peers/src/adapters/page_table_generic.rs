//! `page-table-generic`: `PageTable`, released and with hooks, and `Space`.
use page_table_generic::{FrameAllocator, MapConfig, PageTable, PhysAddr, VirtAddr};
use ptarmigan_adapters::page_table_generic::{Frames, Space, TableEntry};
use ptarmigan_bench::table::contender::PAGE;

use super::Way;
use super::ours::{Here, OurPages};
use super::work::{Range, Work};
use crate::peers::page_table_generic::{Entry, FLAGS, FourLevels, Frames as Pool};

// SAFETY: 1. a transparent `u64`. 2. the flags are those of x86-64. 3. `huge` is bit 7, which
// `new_page` sets.
unsafe impl TableEntry for Entry {}

fn linear(range: Range) -> MapConfig<u64> {
    MapConfig {
        vaddr: VirtAddr::from_usize(range.virt),
        paddr: PhysAddr::from_usize(range.phys),
        size: range.bytes,
        pte: FLAGS,
        allow_huge: false,
        flush: false,
    }
}

fn table<A: FrameAllocator>(work: &Work, frames: A) {
    for pages in work.spaces() {
        let mut table = PageTable::<FourLevels, A>::new(frames.clone()).expect("a root table");
        for &(at, frame) in pages {
            let frame = PhysAddr::from_usize(frame);
            table.map_page(VirtAddr::from_usize(at), frame, PAGE, FLAGS).expect("map");
        }
        if let Some(range) = work.range {
            table.map(&linear(range)).expect("map a range");
        }
    }
}

fn space(work: &Work) {
    for pages in work.spaces() {
        let mut space = Space::<FourLevels, Here>::new().expect("a root table");
        for &(at, frame) in pages {
            let frame = PhysAddr::from_usize(frame);
            space.map_page(VirtAddr::from_usize(at), frame, PAGE, FLAGS).expect("map");
        }
        if let Some(range) = work.range {
            space.map(&linear(range)).expect("map a range");
        }
    }
}

#[inline(never)]
pub fn run(way: Way, work: &Work, _: &OurPages) {
    match way {
        Way::Released => table(work, Pool),
        Way::Hooks => table(work, Frames::<Here>::new()),
        Way::Space => space(work),
    }
}
