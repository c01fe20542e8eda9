//! page-table-generic: `Space` beside the crate's table on its hooks.
use crate::rig::{Here, assert_back, at_once, at_once_of, out, waiting};
use fastrand::Rng;
use page_table_generic::{MapConfig, PageTable, PageTableEntry, PagingError, PhysAddr, TableMeta, VirtAddr};
use ptarmigan::page::FlushProof;
use ptarmigan_adapters::page_table_generic::{Frames, Space, TableEntry};

const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const LARGE: u64 = 1 << 7;
const RW: u64 = 7;

/// An x86-64 entry.
#[derive(Clone, Copy, Debug)]
pub struct Entry(u64);

impl PageTableEntry for Entry {
    type PteConfig = u64;
    fn new_page(at: PhysAddr, flags: u64, huge: bool) -> Self {
        Entry(at.as_usize() as u64 & ADDRESS | flags & !LARGE | if huge { LARGE } else { 0 })
    }
    fn new_table(at: PhysAddr) -> Self {
        Entry(at.as_usize() as u64 | RW)
    }
    fn paddr(&self, _: bool) -> PhysAddr {
        PhysAddr::from_usize((self.0 & ADDRESS) as usize)
    }
    fn config(&self, _: bool) -> u64 {
        self.0 & !ADDRESS & !LARGE
    }
    fn present(&self) -> bool {
        self.0 & 1 != 0
    }
    fn huge(&self, directory: bool) -> bool {
        directory && self.0 & LARGE != 0
    }
    fn unused(&self) -> bool {
        self.0 == 0
    }
    fn clear(&mut self) {
        self.0 = 0;
    }
}

// SAFETY: 1. a `u64`. 2. present, without bit 7. 3. bit 7.
unsafe impl TableEntry for Entry {}

#[derive(Clone, Copy)]
pub struct FourLevels;

impl TableMeta for FourLevels {
    type P = Entry;
    const PAGE_SIZE: usize = 4096;
    const LEVEL_BITS: &'static [usize] = &[9, 9, 9, 9];
    const MAX_BLOCK_LEVEL: usize = 3;
    fn flush(_: Option<VirtAddr>) {}
}

type Spaces = Space<FourLevels, Here>;

fn va(at: usize) -> VirtAddr {
    VirtAddr::from_usize(at)
}

fn pa(at: usize) -> PhysAddr {
    PhysAddr::from_usize(at)
}

#[test]
fn a_space_answers_as_the_crates_own_table_after_any_change() {
    let pages = at_once();
    let mut numbers = Rng::with_seed(13);
    for _ in 0..8 {
        let mut ours = Spaces::new().unwrap();
        let mut theirs = PageTable::<FourLevels, _>::new(Frames::<Here>::new()).unwrap();
        let mut used = Vec::new();
        for _ in 0..200 {
            let at = (numbers.u64(..3) << 39 | numbers.u64(..6) << 21 | numbers.u64(..512) << 12) as usize;
            used.push(at);
            let bytes = ((1 + numbers.u64(..600)) << 12) as usize;
            match numbers.u64(..8) {
                0 => assert_eq!(ours.unmap_page(va(at)), theirs.unmap_page(va(at))),
                1 => assert_eq!(ours.unmap(va(at), bytes), theirs.unmap(va(at), bytes)),
                2 => assert_eq!(ours.protect_page(va(at), 5), theirs.protect_page(va(at), 5)),
                // It takes its mappings back if a page is in the way.
                3 => {
                    let to = |at: VirtAddr| pa(at.as_usize());
                    assert_eq!(
                        ours.map_region(va(at), to, bytes, RW).is_ok(),
                        theirs.map_region(va(at), to, bytes, RW).is_ok()
                    );
                }
                4 => {
                    let [start, bytes] = [at & !0x1f_ffff, 4 << 20];
                    let allow_huge = numbers.bool();
                    let (vaddr, paddr) = (va(start), pa(start));
                    let config = MapConfig { vaddr, paddr, size: bytes, pte: RW, allow_huge, flush: false };
                    assert_eq!(ours.map(&config).is_ok(), theirs.map(&config).is_ok());
                }
                _ => assert_eq!(
                    ours.map_page(va(at), pa(at), 4096, RW).is_ok(),
                    theirs.map_page(va(at), pa(at), 4096, RW).is_ok()
                ),
            }
        }
        for at in used {
            assert_eq!(ours.query(va(at)), theirs.query(va(at)));
        }
        drop((ours, theirs));
        assert_back(pages);
    }
}

#[test]
fn tables_that_are_found_empty_wait_for_the_flush() {
    let pages = waiting();
    let mut space = Spaces::new().unwrap();
    space.map_page(va(0x7000), pa(0x1000), 4096, RW).unwrap();
    space.unmap_page(va(0x7000)).unwrap();
    assert_eq!(out(pages), 4, "none is free before the flush");
    // SAFETY: 1. no CPU has loaded the root.
    pages.take_waiting().flushed(unsafe { FlushProof::claim() });
    assert_eq!(out(pages), 1);
    drop(space);
    // SAFETY: as above.
    pages.take_waiting().flushed(unsafe { FlushProof::claim() });
    assert_back(pages);
}

#[test]
fn sizes_that_no_level_has_are_the_crates_errors() {
    let pages = at_once();
    let mut space = Spaces::new().unwrap();
    assert!(space.map_page(va(0), pa(0), 8192, RW).is_err());
    assert!(space.map_page(va(0), pa(0), 0, RW).is_err());
    assert!(space.map_region(va(1), |at| pa(at.as_usize()), 4096, RW).is_err());
    let none = MapConfig { vaddr: va(0), paddr: pa(0), size: 0, pte: RW, allow_huge: true, flush: false };
    assert!(space.map(&none).is_err());
    space.map_page(va(0), pa(0), 2 << 20, RW).unwrap();
    assert_eq!(space.query(va(0x3000)).map(|found| found.2), Ok(2 << 20));
    drop(space);
    assert_back(pages);
}

#[test]
fn without_memory_mapping_is_an_error_and_nothing_is_lost() {
    let pages = at_once_of(1 << 20);
    let mut space = Spaces::new().unwrap();
    let failed = space.map_region(va(0), |at| pa(at.as_usize()), 2 << 30, RW);
    assert_eq!(failed, Err(PagingError::NoMemory));
    drop(space);
    assert_back(pages);
}
