//! `page_table_multiarch`: `X64PageTable`, released and with hooks, and `Space`.
use memory_addr::{PhysAddr, VirtAddr};
use page_table_entry::x86_64::X64PTE;
use page_table_multiarch::x86_64::{X64PageTable, X64PagingMetaData};
use page_table_multiarch::{PageSize, PagingHandler};
use ptarmigan_adapters::page_table_multiarch::{Handler, Space};

use super::Way;
use super::ours::{Here, OurPages};
use super::work::{Range, Work};
use crate::peers::page_table_multiarch::{Handler as Pool, flags};

fn virt(at: usize) -> VirtAddr {
    VirtAddr::from_usize(at)
}

fn frame_of(range: Range) -> impl Fn(VirtAddr) -> PhysAddr {
    move |at| PhysAddr::from_usize(at.as_usize() - range.virt + range.phys)
}

fn table<H: PagingHandler>(work: &Work) {
    for pages in work.spaces() {
        let mut table = X64PageTable::<H>::try_new().expect("a root table");
        let mut cursor = table.cursor();
        for &(at, frame) in pages {
            cursor.map(virt(at), PhysAddr::from_usize(frame), PageSize::Size4K, flags()).expect("map");
        }
        if let Some(range) = work.range {
            let start = virt(range.virt);
            cursor.map_region(start, frame_of(range), range.bytes, flags(), false).expect("map a range");
        }
    }
}

fn space(work: &Work) {
    for pages in work.spaces() {
        let mut space = Space::<X64PagingMetaData, X64PTE, Here>::try_new().expect("a root table");
        let mut cursor = space.cursor();
        for &(at, frame) in pages {
            cursor.map(virt(at), PhysAddr::from_usize(frame), PageSize::Size4K, flags()).expect("map");
        }
        if let Some(range) = work.range {
            let start = virt(range.virt);
            cursor.map_region(start, frame_of(range), range.bytes, flags(), false).expect("map a range");
        }
    }
}

#[inline(never)]
pub fn run(way: Way, work: &Work, _: &OurPages) {
    match way {
        Way::Released => table::<Pool>(work),
        Way::Hooks => table::<Handler<Here>>(work),
        Way::Space => space(work),
    }
}
