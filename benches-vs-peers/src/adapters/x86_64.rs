//! `x86_64`: `MappedPageTable`, released and with hooks, and `Space`.
//!
//! The crate has no end of a tree. So its user unmaps the pages, has the empty tables cleaned up in
//! the range that was mapped, and frees the root.
use std::hint::black_box;

use ptarmigan::addr::PhysAddr as OurAddr;
use ptarmigan_adapters::x86_64::{Frames, Space};
use ptarmigan_bench::table::contender::{PAGE, SPARSE, STRIDE, VIRT};
use ptarmigan_bench::table::peer_pool;
use x86_64::structures::paging::mapper::{CleanUp, MappedPageTable, Mapper, PageTableFrameMapping};
use x86_64::structures::paging::{FrameAllocator, FrameDeallocator, Page, PageTable, PhysFrame, Size4KiB};

use super::Way;
use super::ours::OurPages;
use super::work::Work;
use crate::peers::x86_64::{FLAGS, Frames as Pool, Identity, frame, page};

/// Reaches the tables of our pages.
struct Reach<'a>(&'a OurPages);

// SAFETY: the direct map reaches all of them.
unsafe impl PageTableFrameMapping for Reach<'_> {
    #[inline]
    fn frame_to_pointer(&self, frame: PhysFrame) -> *mut PageTable {
        self.0.pointer(OurAddr(frame.start_address().as_u64())).cast()
    }
}

/// Makes one tree after the other on zeroed roots from `root`.
fn mapper<A, M>(work: &Work, frames: &mut A, root: impl Fn(&mut A) -> PhysFrame, reach: impl Fn() -> M)
where
    A: FrameAllocator<Size4KiB> + FrameDeallocator<Size4KiB>,
    M: PageTableFrameMapping,
{
    let end = work.range.map_or(SPARSE * STRIDE, |range| range.bytes);
    let all = Page::range_inclusive(page(VIRT), page(VIRT + end - PAGE));
    for pages in work.spaces() {
        let root = root(frames);
        // SAFETY: a zeroed table, which no other code has.
        let mut mapper = unsafe { MappedPageTable::new(&mut *reach().frame_to_pointer(root), reach()) };
        let pages = || pages.iter().copied().chain(work.range.into_iter().flat_map(|range| range.pages()));
        for (at, to) in pages() {
            // SAFETY: the frames are pretended, and no MMU loads the tree.
            unsafe { mapper.map_to(page(at), frame(to), FLAGS, frames) }.expect("map").ignore();
        }
        for (at, _) in pages() {
            let (frame, flush) = mapper.unmap(page(at)).expect("unmap");
            flush.ignore();
            black_box(frame);
        }
        // SAFETY: no other tree shares these tables and no MMU walks them.
        unsafe { mapper.clean_up_addr_range(all, frames) };
        // SAFETY: the tree is empty.
        unsafe { frames.deallocate_frame(root) };
    }
}

fn space(work: &Work, ours: &OurPages) {
    for pages in work.spaces() {
        let mut space = Space::new(ours).expect("a root table");
        let range = work.range.into_iter().flat_map(|range| range.pages());
        for (at, to) in pages.iter().copied().chain(range) {
            // SAFETY: the frames are pretended, and no MMU loads the tree.
            unsafe { space.map_to(page(at), frame(to), FLAGS) }.expect("map").ignore();
        }
    }
}

#[inline(never)]
pub fn run(way: Way, work: &Work, ours: &OurPages) {
    match way {
        Way::Released => mapper(work, &mut Pool, |_| frame(peer_pool::alloc_zeroed()), || Identity),
        Way::Hooks => {
            // SAFETY: 1. tables come and go, no data.
            let mut frames = unsafe { Frames::new(ours) };
            // A page of the lists is zero.
            mapper(work, &mut frames, |frames| frames.allocate_frame().expect("a root"), || Reach(ours));
        }
        Way::Space => space(work, ours),
    }
}
