//! `page_table_multiarch`: one generic 64-bit table, static allocator hooks, tables freed on drop.

use std::hint::black_box;

use memory_addr::{PhysAddr, VirtAddr};
use page_table_multiarch::{MappingFlags, PageSize, PagingHandler, x86_64::X64PageTable};

use ptarmigan_bench::table::contender::{
    CasePages, DEVICE, ForkShape, PAGE, PAGES, PHYS, TableCase, TableContender, VIRT, contiguous,
};
use ptarmigan_bench::table::peer_pool;

/// Frames from the pool.
pub struct Handler;

impl PagingHandler for Handler {
    // The library zeroes its tables itself.
    #[inline]
    fn alloc_frame() -> Option<PhysAddr> {
        Some(PhysAddr::from_usize(peer_pool::alloc_raw()))
    }

    fn alloc_frames(frames: usize, _align: usize) -> Option<PhysAddr> {
        if frames == 1 { Self::alloc_frame() } else { None }
    }

    #[inline]
    fn dealloc_frame(frame: PhysAddr) {
        peer_pool::free(frame.as_usize());
    }

    fn dealloc_frames(frame: PhysAddr, _frames: usize) {
        Self::dealloc_frame(frame);
    }

    #[inline]
    fn phys_to_virt(frame: PhysAddr) -> VirtAddr {
        VirtAddr::from_usize(frame.as_usize())
    }
}

type Table = X64PageTable<Handler>;

pub fn flags() -> MappingFlags {
    MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER
}

/// The contender.
#[derive(Default)]
pub struct Multiarch {
    table: Option<Table>,
}

impl Multiarch {
    fn table(&mut self) -> &mut Table {
        self.table.as_mut().expect("open comes first")
    }
}

impl TableContender for Multiarch {
    fn name(&self) -> &'static str {
        "page_table_multiarch"
    }

    // It cannot split: a call for a part of a large page unmaps all of it.
    fn cases(&self) -> &'static [TableCase] {
        &[
            TableCase::Map,
            TableCase::Query,
            TableCase::Unmap,
            TableCase::MapRange,
            TableCase::UnmapRange,
            TableCase::ForkShape,
            TableCase::LargeMap,
            TableCase::LargeUnmap,
            TableCase::Device,
        ]
    }

    fn open(&mut self) {
        self.table = Some(Table::try_new().expect("a root table"));
    }

    fn map(&mut self) {
        let mut cursor = self.table().cursor();
        for (virt, phys) in contiguous() {
            cursor
                .map(VirtAddr::from_usize(virt), PhysAddr::from_usize(phys), PageSize::Size4K, flags())
                .expect("map");
        }
    }

    fn query(&mut self) -> usize {
        let table = self.table();
        let mut sum = 0_usize;
        for (virt, _) in contiguous() {
            if let Ok((phys, _, _)) = table.query(VirtAddr::from_usize(virt)) {
                sum = sum.wrapping_add(phys.as_usize());
            }
        }
        sum
    }

    fn unmap(&mut self) {
        let mut cursor = self.table().cursor();
        for (virt, _) in contiguous() {
            black_box(cursor.unmap(VirtAddr::from_usize(virt)).expect("unmap"));
        }
    }

    fn map_range(&mut self) {
        let frame = |virt: VirtAddr| PhysAddr::from_usize(virt.as_usize() - VIRT + PHYS);
        self.table()
            .cursor()
            .map_region(VirtAddr::from_usize(VIRT), frame, PAGES * PAGE, flags(), false)
            .expect("map a range");
    }

    fn unmap_range(&mut self) {
        self.table().cursor().unmap_region(VirtAddr::from_usize(VIRT), PAGES * PAGE).expect("unmap a range");
    }

    fn device(&mut self) {
        let mut cursor = self.table().cursor();
        for (virt, phys) in CasePages::USUAL.devices() {
            let frame = |at: VirtAddr| PhysAddr::from_usize(at.as_usize() - virt + phys);
            cursor
                .map_region(
                    VirtAddr::from_usize(virt),
                    frame,
                    DEVICE * PAGE,
                    flags() | MappingFlags::DEVICE,
                    false,
                )
                .expect("map a device");
        }
    }

    // `map_region` would take pages of 1 GiB.
    fn large_map(&mut self) {
        let mut cursor = self.table().cursor();
        for (virt, phys) in CasePages::USUAL.large_pages() {
            cursor
                .map(VirtAddr::from_usize(virt), PhysAddr::from_usize(phys), PageSize::Size2M, flags())
                .expect("map");
        }
    }

    fn large_unmap(&mut self) {
        let mut cursor = self.table().cursor();
        for (virt, _) in CasePages::USUAL.large_pages() {
            black_box(cursor.unmap(VirtAddr::from_usize(virt)).expect("unmap"));
        }
    }

    fn close(&mut self) {
        self.table = None;
    }

    fn fork_ways(&self) -> &'static [&'static str] {
        &["drop", "unmap"]
    }

    fn fork_shape(&mut self, way: usize, shape: &ForkShape) {
        for space in shape.spaces() {
            let mut table = Table::try_new().expect("a root table");
            let mut cursor = table.cursor();
            for (virt, phys) in space.pages() {
                cursor
                    .map(VirtAddr::from_usize(virt), PhysAddr::from_usize(phys), PageSize::Size4K, flags())
                    .expect("map");
            }
            if way == 1 {
                for (virt, _) in space.pages() {
                    black_box(cursor.unmap(VirtAddr::from_usize(virt)).expect("unmap"));
                }
            }
            drop(cursor);
            drop(table);
        }
    }
}
