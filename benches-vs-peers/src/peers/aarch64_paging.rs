//! `aarch64-paging`: all operations are on ranges; the allocator has to return zeroed tables.

use std::ptr::{self, NonNull};

use aarch64_paging::Mapping;
use aarch64_paging::descriptor::{El1Attributes, PhysicalAddress};
use aarch64_paging::paging::{
    Constraints, El1And0, MemoryRegion, PageTable, RootTable, Translation, VaRange,
};

use ptarmigan_bench::table::contender::{
    CasePages, DEVICE, ForkShape, PAGE, PAGES, PHYS, SPARSE, STRIDE, TableContender, VIRT, contiguous,
};
use ptarmigan_bench::table::peer_pool;

pub const FLAGS: El1Attributes = El1Attributes::VALID
    .union(El1Attributes::ACCESSED)
    .union(El1Attributes::NON_GLOBAL)
    .union(El1Attributes::ATTRIBUTE_INDEX_1)
    .union(El1Attributes::INNER_SHAREABLE)
    .union(El1Attributes::USER);

/// Index 0 is device memory.
const REGISTERS: El1Attributes = El1Attributes::VALID
    .union(El1Attributes::ACCESSED)
    .union(El1Attributes::NON_GLOBAL)
    .union(El1Attributes::ATTRIBUTE_INDEX_0)
    .union(El1Attributes::USER);

const PAGES_ONLY: Constraints = Constraints::NO_BLOCK_MAPPINGS;

/// Tables at their own addresses, cleared when they come.
pub struct Identity;

fn pointer(table: usize) -> NonNull<PageTable<El1Attributes>> {
    NonNull::new(ptr::with_exposed_provenance_mut(table)).expect("the pool is not at address 0")
}

impl Translation<El1Attributes> for Identity {
    #[inline]
    fn allocate_table(&mut self) -> (NonNull<PageTable<El1Attributes>>, PhysicalAddress) {
        let table = peer_pool::alloc_zeroed();
        (pointer(table), PhysicalAddress(table))
    }

    #[inline]
    unsafe fn deallocate_table(&mut self, table: NonNull<PageTable<El1Attributes>>) {
        peer_pool::free(table.as_ptr().addr());
    }

    #[inline]
    fn physical_to_virtual(&self, table: PhysicalAddress) -> NonNull<PageTable<El1Attributes>> {
        pointer(table.0)
    }
}

type Table = RootTable<El1And0, Identity>;

#[inline]
fn one(virt: usize) -> MemoryRegion {
    MemoryRegion::new(virt, virt + PAGE)
}

#[inline]
fn large(virt: usize) -> MemoryRegion {
    MemoryRegion::new(virt, virt + STRIDE)
}

fn everything() -> MemoryRegion {
    MemoryRegion::new(VIRT, VIRT + PAGES * PAGE)
}

/// The contender.
#[derive(Default)]
pub struct Aarch64 {
    table: Option<Table>,
}

impl Aarch64 {
    fn table(&mut self) -> &mut Table {
        self.table.as_mut().expect("open comes first")
    }
}

impl TableContender for Aarch64 {
    fn name(&self) -> &'static str {
        "aarch64-paging"
    }

    fn open(&mut self) {
        self.table = Some(RootTable::with_va_range(Identity, 0, El1And0, VaRange::Lower));
    }

    fn map(&mut self) {
        let table = self.table();
        for (virt, phys) in contiguous() {
            table.map_range(&one(virt), PhysicalAddress(phys), FLAGS, PAGES_ONLY).expect("map");
        }
    }

    fn query(&mut self) -> usize {
        let table = self.table();
        let mut sum = 0_usize;
        for (virt, _) in contiguous() {
            table
                .walk_range(&one(virt), &mut |_, entry, _| {
                    if entry.is_valid() {
                        sum = sum.wrapping_add(entry.output_address().0);
                    }
                    Ok(())
                })
                .expect("walk");
        }
        sum
    }

    fn unmap(&mut self) {
        let table = self.table();
        for (virt, phys) in contiguous() {
            // Unmapping means mapping without the valid flag.
            table
                .map_range(&one(virt), PhysicalAddress(phys), El1Attributes::empty(), PAGES_ONLY)
                .expect("unmap");
        }
    }

    fn map_range(&mut self) {
        self.table().map_range(&everything(), PhysicalAddress(PHYS), FLAGS, PAGES_ONLY).expect("map a range");
    }

    fn unmap_range(&mut self) {
        self.table()
            .map_range(&everything(), PhysicalAddress(PHYS), El1Attributes::empty(), PAGES_ONLY)
            .expect("unmap a range");
    }

    // One call for all would take blocks of 1 GiB.
    fn large_map(&mut self) {
        let table = self.table();
        for (virt, phys) in CasePages::USUAL.large_pages() {
            table.map_range(&large(virt), PhysicalAddress(phys), FLAGS, Constraints::empty()).expect("map");
        }
    }

    fn large_unmap(&mut self) {
        let table = self.table();
        for (virt, phys) in CasePages::USUAL.large_pages() {
            table
                .map_range(&large(virt), PhysicalAddress(phys), El1Attributes::empty(), Constraints::empty())
                .expect("unmap");
        }
    }

    fn device(&mut self) {
        let table = self.table();
        for (virt, phys) in CasePages::USUAL.devices() {
            let region = MemoryRegion::new(virt, virt + DEVICE * PAGE);
            table.map_range(&region, PhysicalAddress(phys), REGISTERS, PAGES_ONLY).expect("map");
        }
    }

    // A block is split when a part of it is changed: here one page becomes read-only.
    fn large_split(&mut self) {
        let table = self.table();
        for (virt, phys) in CasePages::USUAL.large_pages().take(CasePages::USUAL.split()) {
            table
                .map_range(&one(virt), PhysicalAddress(phys), FLAGS | El1Attributes::READ_ONLY, PAGES_ONLY)
                .expect("split");
        }
    }

    fn large_half(&mut self) {
        let table = self.table();
        for (virt, phys) in CasePages::USUAL.large_pages().take(CasePages::USUAL.split()) {
            let half = MemoryRegion::new(virt + STRIDE / 2, virt + STRIDE);
            table
                .map_range(&half, PhysicalAddress(phys), El1Attributes::empty(), Constraints::empty())
                .expect("unmap a half");
        }
    }

    fn query_large(&mut self) -> usize {
        let table = self.table();
        let mut sum = 0_usize;
        for (virt, _) in contiguous() {
            table
                .walk_range(&one(virt), &mut |_, entry, level| {
                    if entry.is_valid() {
                        let within = if level < 3 { virt % STRIDE } else { 0 };
                        sum = sum.wrapping_add(entry.output_address().0 + within);
                    }
                    Ok(())
                })
                .expect("walk");
        }
        sum
    }

    fn close(&mut self) {
        self.table = None;
    }

    fn fork_ways(&self) -> &'static [&'static str] {
        &["drop", "unmap-range"]
    }

    fn fork_shape(&mut self, way: usize, shape: &ForkShape) {
        if way == 0 {
            for space in shape.spaces() {
                let mut table = RootTable::with_va_range(Identity, 0, El1And0, VaRange::Lower);
                for (virt, phys) in space.pages() {
                    table.map_range(&one(virt), PhysicalAddress(phys), FLAGS, PAGES_ONLY).expect("map");
                }
                drop(table);
            }
            return;
        }
        // A kernel would hold a `Mapping`. It frees subtrees as a whole when a range covers them.
        let whole = MemoryRegion::new(VIRT, VIRT + SPARSE * STRIDE);
        for space in shape.spaces() {
            let mut mapping = Mapping::with_asid_and_va_range(Identity, 1, 0, El1And0, VaRange::Lower);
            for (virt, phys) in space.pages() {
                mapping.map_range(&one(virt), PhysicalAddress(phys), FLAGS, PAGES_ONLY).expect("map");
            }
            mapping
                .map_range(&whole, PhysicalAddress(PHYS), El1Attributes::empty(), PAGES_ONLY)
                .expect("unmap a range");
            drop(mapping);
        }
    }
}
