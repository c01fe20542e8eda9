//! `page-table-generic`: real range operations, empty tables freed at once, no entry format of its
//! own.

use std::hint::black_box;
use std::ptr;

use page_table_generic::{
    FrameAllocator, MapConfig, PageTable, PageTableEntry, PhysAddr, TableMeta, UnmapConfig, VirtAddr,
};

use ptarmigan_bench::table::contender::{
    CasePages, DEVICE, ForkShape, PAGE, PAGES, PHYS, STRIDE, TableContender, VIRT, contiguous,
};
use ptarmigan_bench::table::peer_pool;

/// Present, writable, user.
pub const FLAGS: u64 = 7;
/// PCD and PWT.
const UNCACHED: u64 = 0x18;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const HUGE: u64 = 1 << 7;

/// Frames from the pool.
#[derive(Clone, Copy)]
pub struct Frames;

impl FrameAllocator for Frames {
    // The library zeroes its tables itself.
    #[inline]
    fn alloc_frame(&self) -> Option<PhysAddr> {
        Some(PhysAddr::from_usize(peer_pool::alloc_raw()))
    }

    #[inline]
    fn dealloc_frame(&self, frame: PhysAddr) {
        peer_pool::free(frame.as_usize());
    }

    #[inline]
    fn phys_to_virt(&self, frame: PhysAddr) -> *mut u8 {
        ptr::with_exposed_provenance_mut(frame.as_usize())
    }
}

/// An x86-64 entry, as short as the trait allows.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Entry(u64);

impl PageTableEntry for Entry {
    type PteConfig = u64;

    #[inline]
    fn new_page(frame: PhysAddr, flags: u64, huge: bool) -> Self {
        Entry(frame.as_usize() as u64 & ADDRESS | flags | if huge { HUGE } else { 0 })
    }

    #[inline]
    fn new_table(frame: PhysAddr) -> Self {
        Entry(frame.as_usize() as u64 | FLAGS)
    }

    #[inline]
    fn paddr(&self, _directory: bool) -> PhysAddr {
        PhysAddr::from_usize((self.0 & ADDRESS) as usize)
    }

    #[inline]
    fn config(&self, _directory: bool) -> u64 {
        self.0 & !ADDRESS & !HUGE
    }

    #[inline]
    fn present(&self) -> bool {
        self.0 & 1 != 0
    }

    #[inline]
    fn huge(&self, directory: bool) -> bool {
        directory && self.0 & HUGE != 0
    }

    #[inline]
    fn unused(&self) -> bool {
        self.0 == 0
    }

    #[inline]
    fn clear(&mut self) {
        self.0 = 0;
    }
}

/// x86-64.
#[derive(Clone, Copy)]
pub struct FourLevels;

impl TableMeta for FourLevels {
    type P = Entry;
    const PAGE_SIZE: usize = PAGE;
    const LEVEL_BITS: &'static [usize] = &[9, 9, 9, 9];
    const MAX_BLOCK_LEVEL: usize = 3;

    #[inline]
    fn flush(_address: Option<VirtAddr>) {}
}

type Table = PageTable<FourLevels, Frames>;

/// The contender.
#[derive(Default)]
pub struct Generic {
    table: Option<Table>,
}

impl Generic {
    fn table(&mut self) -> &mut Table {
        self.table.as_mut().expect("open comes first")
    }
}

impl TableContender for Generic {
    fn name(&self) -> &'static str {
        "page-table-generic"
    }

    fn open(&mut self) {
        self.table = Some(Table::new(Frames).expect("a root table"));
    }

    fn map(&mut self) {
        let table = self.table();
        for (virt, phys) in contiguous() {
            table.map_page(VirtAddr::from_usize(virt), PhysAddr::from_usize(phys), PAGE, FLAGS).expect("map");
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
        let table = self.table();
        for (virt, _) in contiguous() {
            black_box(table.unmap_page(VirtAddr::from_usize(virt)).expect("unmap"));
        }
    }

    fn map_range(&mut self) {
        let range = MapConfig {
            vaddr: VirtAddr::from_usize(VIRT),
            paddr: PhysAddr::from_usize(PHYS),
            size: PAGES * PAGE,
            pte: FLAGS,
            allow_huge: false,
            flush: false,
        };
        self.table().map(&range).expect("map a range");
    }

    fn unmap_range(&mut self) {
        let range = UnmapConfig { start_vaddr: VirtAddr::from_usize(VIRT), size: PAGES * PAGE, flush: false };
        self.table().unmap_with_config(&range).expect("unmap a range");
    }

    // `map` would take pages of 1 GiB.
    fn large_map(&mut self) {
        let table = self.table();
        for (virt, phys) in CasePages::USUAL.large_pages() {
            table
                .map_page(VirtAddr::from_usize(virt), PhysAddr::from_usize(phys), STRIDE, FLAGS)
                .expect("map");
        }
    }

    fn large_unmap(&mut self) {
        self.unmap_range();
    }

    fn device(&mut self) {
        let table = self.table();
        for (virt, phys) in CasePages::USUAL.devices() {
            let device = MapConfig {
                vaddr: VirtAddr::from_usize(virt),
                paddr: PhysAddr::from_usize(phys),
                size: DEVICE * PAGE,
                pte: FLAGS | UNCACHED,
                allow_huge: false,
                flush: false,
            };
            table.map(&device).expect("map a device");
        }
    }

    fn large_split(&mut self) {
        let table = self.table();
        for (virt, _) in CasePages::USUAL.large_pages().take(CasePages::USUAL.split()) {
            table.split_huge_page(VirtAddr::from_usize(virt)).expect("split");
        }
    }

    // Unmapping a part takes the whole large page, so the caller splits it first.
    fn large_half(&mut self) {
        let table = self.table();
        for (virt, _) in CasePages::USUAL.large_pages().take(CasePages::USUAL.split()) {
            table.split_huge_page(VirtAddr::from_usize(virt)).expect("split");
            let start_vaddr = VirtAddr::from_usize(virt + STRIDE / 2);
            let half = UnmapConfig { start_vaddr, size: STRIDE / 2, flush: false };
            table.unmap_with_config(&half).expect("unmap a half");
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
            let mut table = Table::new(Frames).expect("a root table");
            for (virt, phys) in space.pages() {
                table
                    .map_page(VirtAddr::from_usize(virt), PhysAddr::from_usize(phys), PAGE, FLAGS)
                    .expect("map");
            }
            if way == 1 {
                for (virt, _) in space.pages() {
                    black_box(table.unmap_page(VirtAddr::from_usize(virt)).expect("unmap"));
                }
            }
            drop(table);
        }
    }
}
