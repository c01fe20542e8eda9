//! Large pages of the kernel's half: refusals, lack of memory, tables in the way, and the addresses
//! that a flush names.
use crate::common::{Starved, any_frame};
use crate::formats::{on_failing_machine, on_machine, small};
use ptarmigan::addr::{Pfn, VirtAddr};
use ptarmigan::format::{Aarch64Upper, Attr, Format, I386, Sv39, X86_64, X86_64La57};
use ptarmigan::frames::{AllocFlags, Request};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::table::{CollapseError, KernelRange, KernelRangeError, MapError};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::HostConfig;

const PAGE: u64 = 4096;
const M2: u64 = 2 << 20;
const G1: u64 = 1 << 30;
const START: u64 = 0xffff_c000_0000_0000;
/// Beyond the memory of every host here.
const FAR: Pfn = Pfn(0x40_0000);
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0);
const NORMAL: AllocFlags = AllocFlags::NORMAL;

type Range<'k, F = X86_64> = KernelRange<'k, F, DirectMap>;

/// Maps pages that no code uses.
fn blocks<F: Format, M: Machine>(
    range: &mut Range<'_, F>,
    on: On<'_, M>,
    at: u64,
    bytes: u64,
    first: Pfn,
    largest: u8,
) -> Result<(), MapError> {
    let pages = bytes >> F::PAGE_SHIFT;
    // SAFETY: 1. no code uses the addresses.
    unsafe { range.map_range_large(on, VirtAddr(at), first, pages, RW, Level(largest), NORMAL) }
}

/// As [`blocks`], one large page.
fn large<F: Format, M: Machine>(
    range: &mut Range<'_, F>,
    on: On<'_, M>,
    at: u64,
    level: u8,
    first: Pfn,
) -> Result<(), MapError> {
    // SAFETY: 1. no code uses the addresses.
    unsafe { range.map_large(on, VirtAddr(at), Level(level), first, RW, NORMAL) }
}

/// The first address and the size of each page from `at` on, up to `end`.
fn leaves<F: Format, M: Machine>(range: &Range<'_, F>, on: On<'_, M>, at: u64, end: u64) -> Vec<(u64, u32)> {
    let (mut leaves, mut at) = (Vec::new(), at);
    while at < end {
        let leaf = range.query_leaf(on, VirtAddr(at));
        leaves.extend(leaf.map(|leaf| (leaf.at.0, leaf.shift)));
        at += leaf.map_or(1 << F::PAGE_SHIFT, |leaf| 1 << leaf.shift);
    }
    leaves
}

fn no_size<F: Format>(level: u8) -> Result<(), MapError> {
    Err(MapError::NoSuchSize { level: Level(level), format: F::NAME })
}

#[test]
fn an_impossible_large_kernel_page_is_refused_without_change() {
    on_machine::<X86_64, _>(small(), |host, on| {
        let mut claimed = host.kernel().claim(on, VirtAddr(START), G1 + 4 * M2).unwrap();
        let (range, format) = (&mut claimed, X86_64::NAME);
        for level in [3, 4, 200] {
            assert_eq!(large(range, on, START, level, FAR), no_size::<X86_64>(level));
            assert_eq!(blocks(range, on, START, M2, FAR, level), no_size::<X86_64>(level));
        }
        let misaligned = |at, page| Err(MapError::Misaligned { at: VirtAddr(at), page });
        assert_eq!(large(range, on, START + PAGE, 1, FAR), misaligned(START + PAGE, M2));
        assert_eq!(large(range, on, START + M2, 2, FAR), misaligned(START + M2, G1));
        let outside = |at| Err(MapError::OutOfRange { at: VirtAddr(at) });
        assert_eq!(large(range, on, START + G1, 2, FAR), outside(START + G1));
        assert_eq!(large(range, on, START + G1 + 4 * M2, 1, FAR), outside(START + G1 + 4 * M2));
        assert_eq!(blocks(range, on, START + 1, M2, FAR, 1), outside(START + 1));
        let bad = |first| Err(MapError::BadFrame { first, format });
        assert_eq!(large(range, on, START, 1, Pfn(FAR.0 + 1)), bad(Pfn(FAR.0 + 1)));
        assert_eq!(large(range, on, START, 2, Pfn(FAR.0 + 512)), bad(Pfn(FAR.0 + 512)));
        assert_eq!(blocks(range, on, START, M2, Pfn(u32::MAX - 510), 1), bad(Pfn(u32::MAX - 510)));
        // A page in the way, and a large one in the way of a page.
        blocks(range, on, START + M2 + PAGE, PAGE, FAR, 1).unwrap();
        let occupied = |at| Err(MapError::Occupied { at: VirtAddr(at) });
        for (at, bytes) in [(START, G1), (START, 2 * M2), (START + M2, M2)] {
            assert_eq!(blocks(range, on, at, bytes, FAR, 2), occupied(START + M2 + PAGE));
        }
        large(range, on, START + 2 * M2, 1, FAR).unwrap();
        assert_eq!(
            blocks(range, on, START + 2 * M2 + 5 * PAGE, PAGE, FAR, 0),
            occupied(START + 2 * M2 + 5 * PAGE)
        );
        assert_eq!(large(range, on, START + 2 * M2, 1, FAR), occupied(START + 2 * M2));
        assert_eq!(large(range, on, START, 2, FAR), occupied(START + M2 + PAGE));
        let collapse = range.collapse(on, VirtAddr(START), Level::PTE);
        assert!(
            matches!(collapse, Err(CollapseError::BadPlace(MapError::NoSuchSize { .. }))),
            "{collapse:?}"
        );
        let collapse = range.collapse(on, VirtAddr(START + PAGE), Level(1));
        assert!(
            matches!(collapse, Err(CollapseError::BadPlace(MapError::Misaligned { .. }))),
            "{collapse:?}"
        );
        for at in [START, START + M2] {
            let collapse = range.collapse(on, VirtAddr(at), Level(1));
            assert_eq!(collapse, Err(CollapseError::Differs { at: VirtAddr(at) }));
        }
        assert_eq!(range.collapse(on, VirtAddr(START + 2 * M2), Level(1)), Ok(()), "it is large");
        let split = range.split(on, VirtAddr(START - PAGE), Level::PTE);
        assert_eq!(split, Err(KernelRangeError::OutOfRange { at: VirtAddr(START - PAGE) }));
        let left = [(START + M2 + PAGE, 12), (START + 2 * M2, 21)];
        assert_eq!(leaves(range, on, START, START + G1), left);
        assert_eq!(host.frames().reserved(), 1);
        range.unmap(on, VirtAddr(START), G1 / PAGE, |_, _| {}).unwrap();
        assert_eq!(host.frames().reserved(), 0);
        release(on, claimed);
    });
    // Entries of the root stay.
    on_machine::<I386, _>(small(), |host, on| {
        let mut range = host.kernel().claim(on, VirtAddr(0xe000_0000), 4 << 20).unwrap();
        assert_eq!(blocks(&mut range, on, 0xe000_0000, 4 << 20, Pfn(0), 1), no_size::<I386>(1));
        assert_eq!(blocks(&mut range, on, 0xe000_0000, 4 << 20, Pfn(0), 0), Ok(()));
        range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    });
}

fn release<F: Format, M: Machine>(on: On<'_, M>, range: Range<'_, F>) {
    range.release(on, |_, _| panic!("a page is left")).map_err(|(e, _)| e).unwrap();
}

/// Maps two large pages, has no memory then, and takes parts of them away.
fn without_memory<F: Format>(start: u64, level: u8) {
    on_machine::<F, _>(HostConfig { bytes: 64 << 20, ..small() }, |host, on| {
        let (size, page) = (1u64 << F::shift(Level(level)), 1u64 << F::PAGE_SHIFT);
        let mut range = host.kernel().claim(on, VirtAddr(start), 4 * size).unwrap();
        blocks(&mut range, on, start, 2 * size, Pfn((size >> 12) as u32 * 8), level).unwrap();
        on.policy().drain();
        let reserved = host.frames().reserved();
        let starved = Starved::new(host, 0);
        let none = Request { flags: AllocFlags::URGENT, ..any_frame(0) };
        let mut urgent = Vec::new();
        while let Ok(frame) = host.frames().take(none) {
            urgent.push(frame.dirty());
        }
        assert_eq!(host.frames().counts().free, reserved, "all others are gone");
        let refused = large(&mut range, on, start + 2 * size, level, Pfn(0));
        assert!(matches!(refused, Err(MapError::NoFrame(_))), "{refused:?}");
        assert_eq!(host.frames().reserved(), reserved);
        let mut gone = 0;
        let (at, pages) = (VirtAddr(start + page), 2 * size / page - 2);
        range.protect(on, at, pages, |attr| attr.without(Attr::WRITE)).unwrap();
        range.unmap(on, at, pages, |_, _| gone += 1).unwrap();
        assert_eq!(gone, pages);
        let small = F::PAGE_SHIFT;
        let left = leaves(&range, on, start, start + 2 * size);
        assert_eq!(left, [(start, small), (start + 2 * size - page, small)]);
        urgent.into_iter().for_each(|frame| host.frames().give(frame));
        drop(starved);
        range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
        assert_eq!(host.frames().reserved(), 0);
    });
}

#[test]
fn a_part_of_a_large_kernel_page_is_unmapped_without_memory() {
    without_memory::<X86_64>(START, 1);
    without_memory::<X86_64La57>(0xffc0_0000_0000_0000, 2);
    without_memory::<Sv39>(0xffff_ffd0_0000_0000, 1);
}

#[test]
fn whichever_allocation_fails_no_page_maps_and_unmap_works() {
    on_failing_machine(|host, on, fail| {
        let claim = || host.kernel().claim(on, VirtAddr(START), 3 * G1).unwrap();
        let (at, bytes) = (START + M2 - 3 * PAGE, G1 + 2 * M2 + 8 * PAGE);
        let (pages, first) = (bytes / PAGE, Pfn(FAR.0 + 509));
        let mut k = 0;
        loop {
            let mut range = claim();
            fail.set(k);
            let mapped = blocks(&mut range, on, at, bytes, first, 2);
            if mapped.is_err() {
                assert!(leaves(&range, on, START, START + 3 * G1).is_empty(), "allocation {k}");
                assert_eq!(host.frames().reserved(), 0);
            }
            // Parts go while every allocation fails.
            fail.set(0);
            let mut gone = 0;
            for (from, to) in [(1, 2), (3, 700), (1024, 1025), (2000, 5000), (pages - 3, pages)] {
                range.unmap(on, VirtAddr(at + from * PAGE), to - from, |_, _| gone += 1).unwrap();
            }
            assert_eq!(gone, if mapped.is_ok() { 1 + 697 + 1 + 3000 + 3 } else { 0 }, "allocation {k}");
            range.release(on, |_, _| gone += 1).map_err(|(e, _)| e).unwrap();
            assert_eq!(gone, if mapped.is_ok() { pages } else { 0 }, "allocation {k}");
            assert_eq!(host.frames().reserved(), 0, "allocation {k}");
            fail.set(usize::MAX);
            k += 1;
            if mapped.is_ok() {
                break;
            }
        }
        assert!(k > 3, "{k} allocations were refused");
    });
}

#[test]
fn empty_tables_in_the_way_of_large_pages_come_back() {
    on_machine::<X86_64, _>(small(), |host, on| {
        let live = || {
            on.policy().drain();
            host.frames().counts().free
        };
        let mut range = host.kernel().claim(on, VirtAddr(START), 2 * G1).unwrap();
        let before = live();
        large(&mut range, on, START + G1, 1, FAR).unwrap();
        let used = before - live();
        assert_eq!(used, 1, "a table of level 1");
        // Five leaf tables, which stay.
        blocks(&mut range, on, START, 5 * M2, FAR, 0).unwrap();
        range.unmap(on, VirtAddr(START), 5 * M2 / PAGE, |_, _| {}).unwrap();
        assert_eq!(before - live(), 1 + 1 + 5);
        large(&mut range, on, START + M2, 1, FAR).unwrap();
        assert_eq!(before - live(), 1 + 1 + 4);
        range.unmap(on, VirtAddr(START + M2), M2 / PAGE, |_, _| {}).unwrap();
        // All of them, and the one above.
        large(&mut range, on, START, 2, FAR).unwrap();
        assert_eq!(before - live(), 1);
        // Taken apart again by its reserve.
        range.unmap(on, VirtAddr(START + 7 * PAGE), 1, |_, _| {}).unwrap();
        assert_eq!(before - live(), 1 + 2);
        range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
        assert_eq!(live(), before);
    });
}

#[test]
fn a_large_page_of_the_kernels_is_one_invalidation() {
    on_machine::<X86_64, _>(small(), |host, on| {
        let mut range = host.kernel().claim(on, VirtAddr(START), G1).unwrap();
        blocks(&mut range, on, START, 8 * M2, FAR, 1).unwrap();
        range.split(on, VirtAddr(START + 6 * M2), Level::PTE).unwrap();
        let mut full = |at: u64, bytes: u64| {
            let before = on.tlb().counts().kernel_plans.full;
            range.unmap(on, VirtAddr(at), bytes / PAGE, |_, _| {}).unwrap();
            on.tlb().counts().kernel_plans.full - before
        };
        assert_eq!(full(START, M2), 0);
        assert_eq!(full(START + 2 * M2, 2 * M2), 0, "two of them");
        assert_eq!(full(START + 5 * M2, 8 * PAGE), 1, "the pages of one: too many to be named");
        assert_eq!(full(START + 5 * M2 + 9 * PAGE, M2 - 9 * PAGE), 1, "more pages than are named");
        assert_eq!(full(START + 7 * M2 - 9 * PAGE, M2 + 9 * PAGE), 1, "pages, and a large one");
        range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    });
}

#[test]
fn a_split_that_all_of_the_page_would_fault_for_is_its_own_call() {
    on_machine::<Aarch64Upper, _>(small(), |host, on| {
        let start = 0xffff_ffff_0000_0000;
        let mut range = host.kernel().claim(on, VirtAddr(start), G1).unwrap();
        blocks(&mut range, on, start, 4 * M2, FAR, 1).unwrap();
        let all = [(start, 21), (start + M2, 21), (start + 2 * M2, 21), (start + 3 * M2, 21)];
        let refused = Err(KernelRangeError::PartOfLarge { at: VirtAddr(start + M2) });
        for (from, n) in [(512, 1), (600, 1), (512, 700), (0, 513), (700, 512)] {
            if (from, n) == (512, 700) {
                // Whole at its first end.
                let refused = Err(KernelRangeError::PartOfLarge { at: VirtAddr(start + 2 * M2) });
                assert_eq!(range.unmap(on, VirtAddr(start + from * PAGE), n, |_, _| panic!()), refused);
                continue;
            }
            assert_eq!(range.unmap(on, VirtAddr(start + from * PAGE), n, |_, _| panic!()), refused);
            assert_eq!(range.protect(on, VirtAddr(start + from * PAGE), n, |attr| attr), refused);
        }
        assert_eq!(leaves(&range, on, start, start + 4 * M2), all);
        // Whole ones need no split, and no break.
        range.protect(on, VirtAddr(start), 1024, |attr| attr.without(Attr::WRITE)).unwrap();
        range.unmap(on, VirtAddr(start), 512, |_, _| {}).unwrap();
        range.split(on, VirtAddr(start + M2), Level::PTE).unwrap();
        range.unmap(on, VirtAddr(start + M2), 1, |_, frame| assert_eq!(frame, Pfn(FAR.0 + 512))).unwrap();
        assert_eq!(leaves(&range, on, start, start + 4 * M2).len(), 511 + 2);
        range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    });
}
