//! x86_64: `Space` beside the crate's mapper on its hooks.
use crate::rig::{Mine, assert_back, at_once, at_once_of, out, waiting};
use fastrand::Rng;
use ptarmigan::addr::PhysAddr as OurAddr;
use ptarmigan::page::FlushProof;
use ptarmigan_adapters::x86_64::{Frames, Space};
use x86_64::structures::paging::mapper::{
    CleanUp, FlagUpdateError, MapToError, MappedPageTable, Mapper, PageTableFrameMapping, Translate,
    TranslateResult, UnmapError,
};
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, Page, PageTable, PageTableFlags as Flags, PhysFrame, Size2MiB,
};
use x86_64::{PhysAddr, VirtAddr};

struct Reach(&'static Mine);

// SAFETY: the direct map reaches all tables.
unsafe impl PageTableFrameMapping for Reach {
    fn frame_to_pointer(&self, frame: PhysFrame) -> *mut PageTable {
        self.0.pointer(OurAddr(frame.start_address().as_u64())).cast()
    }
}

const RW: Flags = Flags::PRESENT.union(Flags::WRITABLE).union(Flags::USER_ACCESSIBLE);

fn page(at: u64) -> Page {
    Page::containing_address(VirtAddr::new(at))
}

fn frame(at: u64) -> PhysFrame {
    PhysFrame::containing_address(PhysAddr::new(at))
}

fn large(at: u64) -> Page<Size2MiB> {
    Page::containing_address(VirtAddr::new(at))
}

fn what(result: TranslateResult) -> Option<(u64, u64)> {
    match result {
        TranslateResult::Mapped { frame, flags, .. } => Some((frame.start_address().as_u64(), flags.bits())),
        _ => None,
    }
}

#[test]
fn a_space_translates_as_the_crates_mapper_after_any_change() {
    let pages = at_once();
    let mut numbers = Rng::with_seed(7);
    for _ in 0..8 {
        let mut space = Space::new(pages).unwrap();
        // SAFETY: 1. tables come and go, and no data.
        let mut frames = unsafe { Frames::new(pages) };
        let root = frames.allocate_frame().unwrap();
        // SAFETY: a zero table, which no other code has.
        let mut own =
            unsafe { MappedPageTable::new(&mut *Reach(pages).frame_to_pointer(root), Reach(pages)) };
        let at =
            |numbers: &mut Rng| numbers.u64(..3) << 39 | numbers.u64(..6) << 21 | numbers.u64(..512) << 12;
        let mut mapped = Vec::new();
        for _ in 0..200 {
            let va = at(&mut numbers);
            match numbers.u64(..4) {
                0 => {
                    let [one, two] = [space.unmap(page(va)).ok(), own.unmap(page(va)).ok()];
                    assert_eq!(one.map(|o| o.0), two.map(|o| o.0));
                }
                1 if numbers.u64(..4) == 0 => {
                    let to = PhysFrame::<Size2MiB>::containing_address(PhysAddr::new(va));
                    // SAFETY: no MMU.
                    let one = unsafe { space.map_to(large(va), to, RW) };
                    // SAFETY: no MMU.
                    let two = unsafe { own.map_to(large(va), to, RW, &mut frames) };
                    assert_eq!(one.is_ok(), two.is_ok());
                }
                _ => {
                    // SAFETY: no MMU.
                    let one = unsafe { space.map_to(page(va), frame(va), RW) };
                    // SAFETY: no MMU.
                    let two = unsafe { own.map_to(page(va), frame(va), RW, &mut frames) };
                    assert_eq!(one.is_ok(), two.is_ok());
                }
            }
            mapped.push(va);
        }
        for va in &mapped {
            let va = VirtAddr::new(*va);
            assert_eq!(what(space.translate(va)), what(own.translate(va)));
        }
        for va in &mapped {
            let _ = own.unmap(page(*va)).map(|unmapped| unmapped.1.ignore());
            let _ = own.unmap(large(*va)).map(|unmapped| unmapped.1.ignore());
        }
        // SAFETY: the tables are in this tree alone.
        unsafe { own.clean_up(&mut frames) };
        // SAFETY: it is empty.
        unsafe { frames.deallocate_frame(root) };
        drop(space);
        assert_back(pages);
    }
}

#[test]
fn cleaned_up_tables_wait_for_the_flush() {
    let pages = waiting();
    let mut space = Space::new(pages).unwrap();
    // SAFETY: no MMU.
    unsafe { space.map_to(page(0x7000), frame(0x1000), RW) }.unwrap().ignore();
    space.unmap(page(0x7000)).unwrap().1.ignore();
    let all = Page::range_inclusive(page(0), page(1 << 30));
    // SAFETY: 1. no table is shared.
    unsafe { space.clean_up_addr_range(all) };
    assert_eq!(out(pages), 4, "none is free before the flush");
    let gone = pages.take_waiting();
    assert_eq!(gone.len(), 3);
    // SAFETY: 1. no CPU has loaded the root.
    gone.flushed(unsafe { FlushProof::claim() });
    assert_eq!(out(pages), 1);
    drop(space);
    // SAFETY: as above.
    pages.take_waiting().flushed(unsafe { FlushProof::claim() });
    assert_back(pages);
}

#[test]
fn a_shared_upper_half_outlives_a_space_and_takes_no_pages() {
    let pages = at_once();
    let upper = 0xffff_8000_0000_0000;
    let mut kernel = Space::new(pages).unwrap();
    // SAFETY: no MMU.
    unsafe { kernel.map_to(page(upper), frame(0x5000), RW) }.unwrap().ignore();
    let tables = out(pages);
    let mut user = Space::new(pages).unwrap();
    // SAFETY: 1. it is empty. 2. `kernel` stays longer.
    unsafe { user.share_upper_half(kernel.root()) };
    assert_eq!(what(user.translate(VirtAddr::new(upper))), Some((0x5000, RW.bits())));
    // SAFETY: no MMU.
    let refused = unsafe { user.map_to(page(upper + 0x1000), frame(0x6000), RW) };
    assert!(matches!(refused, Err(MapToError::FrameAllocationFailed)));
    assert!(matches!(user.unmap(page(upper)), Err(UnmapError::PageNotMapped)));
    // SAFETY: no MMU.
    let refused = unsafe { user.update_flags(page(upper), RW) };
    assert!(matches!(refused, Err(FlagUpdateError::PageNotMapped)));
    // SAFETY: no MMU.
    unsafe { user.map_to(page(0x7000), frame(0x6000), RW) }.unwrap().ignore();
    drop(user);
    assert_eq!(out(pages), tables);
    assert_eq!(what(kernel.translate(VirtAddr::new(upper))), Some((0x5000, RW.bits())));
    drop(kernel);
    assert_back(pages);
}

#[test]
fn without_memory_mapping_is_an_error_and_nothing_is_lost() {
    let pages = at_once_of(1 << 20);
    let mut space = Space::new(pages).unwrap();
    let failed = (0..1024_u64).find(|at| {
        // SAFETY: no MMU.
        unsafe { space.map_to(page(at << 21), frame(0x1000), RW) }.map(|flush| flush.ignore()).is_err()
    });
    assert!(failed.is_some());
    drop(space);
    assert_back(pages);
}
