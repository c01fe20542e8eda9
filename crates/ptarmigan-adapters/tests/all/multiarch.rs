//! page_table_multiarch: `Space` beside the crate's table on its hooks.
use crate::rig::{Here, Lists, Mine, assert_back, at_once, at_once_of, out, waiting};
use fastrand::Rng;
use memory_addr::{PhysAddr, VirtAddr};
use page_table_entry::x86_64::X64PTE;
use page_table_multiarch::x86_64::{X64PageTable, X64PagingMetaData};
use page_table_multiarch::{MappingFlags, PageSize, PagingError};
use ptarmigan::addr::PhysAddr as OurAddr;
use ptarmigan::page::FlushProof;
use ptarmigan_adapters::Home;
use ptarmigan_adapters::page_table_multiarch::{Handler, Space};
use ptarmigan_hosted::CpuSlot;
use std::cell::Cell;

type Spaces = Space<X64PagingMetaData, X64PTE, Here>;

fn rw() -> MappingFlags {
    MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER
}

fn va(at: usize) -> VirtAddr {
    VirtAddr::from_usize(at)
}

fn pa(at: usize) -> PhysAddr {
    PhysAddr::from_usize(at)
}

#[test]
fn a_space_answers_as_the_crates_own_table_after_any_change() {
    let pages = at_once();
    let mut numbers = Rng::with_seed(11);
    for _ in 0..8 {
        let mut space = Spaces::try_new().unwrap();
        let mut own = X64PageTable::<Handler<Here>>::try_new().unwrap();
        let (mut ours, mut theirs) = (space.cursor(), own.cursor());
        let mut used = Vec::new();
        for _ in 0..200 {
            let at = (numbers.u64(..3) << 39 | numbers.u64(..6) << 21 | numbers.u64(..512) << 12) as usize;
            used.push(at);
            match numbers.u64(..8) {
                0 => assert_eq!(ours.unmap(va(at)), theirs.unmap(va(at))),
                // It writes to an entry of a table that is there, mapped or not.
                1 => assert_eq!(ours.remap(va(at), pa(0x9000), rw()), theirs.remap(va(at), pa(0x9000), rw())),
                2 => {
                    let read = MappingFlags::READ;
                    assert_eq!(ours.protect(va(at), read), theirs.protect(va(at), read));
                }
                3 => {
                    let (start, size) = (at & !0x1f_ffff, PageSize::Size2M);
                    assert_eq!(
                        ours.map(va(start), pa(start), size, rw()),
                        theirs.map(va(start), pa(start), size, rw())
                    );
                }
                4 => {
                    let bytes = (numbers.u64(..600) << 12) as usize;
                    let huge = numbers.bool();
                    let to = |at: VirtAddr| pa(at.as_usize());
                    assert_eq!(
                        ours.map_region(va(at), to, bytes, rw(), huge),
                        theirs.map_region(va(at), to, bytes, rw(), huge)
                    );
                }
                _ => {
                    let size = PageSize::Size4K;
                    assert_eq!(ours.map(va(at), pa(at), size, rw()), theirs.map(va(at), pa(at), size, rw()));
                }
            }
        }
        drop((ours, theirs));
        for at in used {
            assert_eq!(space.table().query(va(at)), own.query(va(at)));
        }
        drop((space, own));
        assert_back(pages);
    }
}

#[test]
fn a_space_that_ends_leaves_its_tables_to_the_flush() {
    let pages = waiting();
    let mut space = Spaces::try_new().unwrap();
    space.cursor().map(va(0x7000), pa(0x1000), PageSize::Size4K, rw()).unwrap();
    drop(space);
    assert_eq!(out(pages), 4);
    let gone = pages.take_waiting();
    assert_eq!(gone.len(), 4);
    // SAFETY: 1. no CPU has loaded the root.
    gone.flushed(unsafe { FlushProof::claim() });
    assert_back(pages);
}

#[test]
fn hooks_of_a_space_take_nothing_back_from_whoever_calls_them() {
    use page_table_multiarch::{GenericPTE, PageTable64, PagingHandler, PagingMetaData};
    fn steal<M: PagingMetaData, E: GenericPTE, H: PagingHandler>(table: &PageTable64<M, E, H>) {
        H::dealloc_frame(table.root_paddr());
    }
    let pages = at_once();
    let space = Spaces::try_new().unwrap();
    steal(space.table());
    assert_eq!(out(pages), 1);
    drop(space);
    assert_back(pages);
}

#[test]
fn a_kernels_entries_are_shared_and_stay() {
    let pages = at_once();
    let upper = 0xffff_8000_0000_0000;
    let mut kernel = Spaces::try_new().unwrap();
    kernel.cursor().map(va(upper), pa(0x5000), PageSize::Size4K, rw()).unwrap();
    let mut user = Spaces::try_new().unwrap();
    // SAFETY: 1. it is empty. 2. `kernel` stays longer.
    unsafe { user.share_root_entries(kernel.table().root_paddr(), 256..512) };
    assert_eq!(user.table().query(va(upper)).map(|found| found.0), Ok(pa(0x5000)));
    let mut cursor = user.cursor();
    let refused = Err(PagingError::NoMemory);
    assert_eq!(cursor.map(va(upper + 0x1000), pa(0), PageSize::Size4K, rw()), refused);
    assert_eq!(cursor.remap(va(upper + 0x1000), pa(0), rw()).map(|_| ()), refused);
    // The other space's page cannot be changed by way of this one, nor by a range that only ends
    // there.
    let (read, below) = (MappingFlags::READ, 0xffff_7fff_ffff_f000);
    assert_eq!(cursor.protect(va(upper), read), Err(PagingError::NotMapped));
    assert_eq!(cursor.protect_region(va(upper), 0x1000, read), Err(PagingError::NotMapped));
    assert_eq!(cursor.protect_region(va(below), 0x2000, read), Err(PagingError::NotMapped));
    assert_eq!(cursor.unmap(va(upper)).map(|_| ()), Err(PagingError::NotMapped));
    assert_eq!(cursor.unmap_region(va(upper), 0x1000), Err(PagingError::NotMapped));
    assert_eq!(cursor.unmap_region(va(0), usize::MAX), Err(PagingError::NotMapped));
    drop(cursor);
    assert_eq!(user.table().query(va(upper)).map(|found| found.1), Ok(rw()));
    drop(user);
    assert_eq!(kernel.table().query(va(upper)).map(|found| found.0), Ok(pa(0x5000)));
    drop(kernel);
    assert_back(pages);
}

#[test]
fn shared_entries_stay_the_other_spaces_after_each_call() {
    let pages = at_once();
    let uppers = [0xffff_8000_0000_0000, 0xffff_ff80_0000_0000];
    let mut kernel = Spaces::try_new().unwrap();
    for upper in uppers {
        kernel.cursor().map(va(upper), pa(0x5000), PageSize::Size4K, rw()).unwrap();
    }
    let tables = out(pages);
    let mut user = Spaces::try_new().unwrap();
    let root = kernel.table().root_paddr();
    // SAFETY: 1. it maps no page there. 2. `kernel` stays longer. Both times.
    unsafe {
        user.share_root_entries(root, 256..257);
        user.share_root_entries(root, 511..512);
    }
    for upper in uppers {
        assert_eq!(user.cursor().unmap(va(upper)).map(|_| ()), Err(PagingError::NotMapped));
    }
    drop(user);
    assert_eq!(out(pages), tables, "no table of the kernel went back with the space");
    for upper in uppers {
        assert_eq!(kernel.table().query(va(upper)).map(|found| found.0), Ok(pa(0x5000)));
    }
    drop(kernel);
    assert_back(pages);
}

#[test]
fn without_memory_mapping_is_an_error_and_nothing_is_lost() {
    let pages = at_once_of(1 << 20);
    let mut space = Spaces::try_new().unwrap();
    let to = |at: VirtAddr| pa(at.as_usize());
    let failed = space.cursor().map_region(va(0), to, 2 << 30, rw(), false);
    assert_eq!(failed, Err(PagingError::NoMemory));
    drop(space);
    assert_back(pages);
}

std::thread_local! {
    static WALKED: Cell<usize> = const { Cell::new(0) };
}

/// [`Here`], with a direct map that counts how often it is asked.
#[derive(Clone, Copy)]
struct Counted;

// SAFETY: 1. and 2. as for `Here`. 3. it is that of `Here`.
unsafe impl Home for Counted {
    type Policy = &'static Lists;
    type Pin = CpuSlot;
    fn pages() -> &'static Mine {
        Here::pages()
    }
    fn pointer(at: OurAddr) -> *mut u8 {
        WALKED.set(WALKED.get() + 1);
        Here::pointer(at)
    }
}

#[test]
fn walks_go_by_the_homes_own_direct_map() {
    let pages = at_once();
    let mut space = Space::<X64PagingMetaData, X64PTE, Counted>::try_new().unwrap();
    WALKED.set(0);
    space.cursor().map(va(0x7000), pa(0x9000), PageSize::Size4K, rw()).unwrap();
    assert_eq!(WALKED.get(), 4, "one for each level");
    assert_eq!(space.table().query(va(0x7000)).unwrap().0, pa(0x9000));
    drop(space);
    assert_back(pages);
}
