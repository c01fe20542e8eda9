//! Numbers and addresses that there are not: they are refused without a panic.
use crate::common;
use common::small;
use ptarmigan::addr::{BackwardRange, VirtAddr, VirtRange};
use ptarmigan::cpu::CpuId;
use ptarmigan::format::X86_64;
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::space::{AreaError, Space};
use ptarmigan::table::Tree;
use ptarmigan::tlb::{Runs, Scope};
use ptarmigan_hosted::{Host, HostMachine, NoTlb};

type X = X86_64;
const HEAP: u64 = 0x40_0000;

#[test]
fn the_heap_does_not_end_at_the_last_byte() {
    let host = Host::<X>::new(small(1, 1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let mut space = Space::<X>::new(on).unwrap();
    let mut edit = space.edit(on).unwrap();
    for _ in 0..2 {
        assert!(matches!(edit.brk(VirtAddr(u64::MAX)), Err(AreaError::BadRange(_))));
        edit.brk(VirtAddr(HEAP)).unwrap();
    }
    assert!(!space.tlb().is_active_on(CpuId(256)) && !space.tlb().is_active_on(CpuId(u16::MAX)));
    space.end(on).unwrap();
}

#[test]
fn a_cursor_on_the_last_page_is_done() {
    let host = Host::<X>::new(small(1, 1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<X>::new(on, AllocFlags::NORMAL).unwrap();
    let mut edit = tree.edit(on).unwrap();
    for start in [u64::MAX, u64::MAX - 4096] {
        let mut cursor = edit.cursor(VirtRange::new(start, u64::MAX).unwrap());
        assert!(cursor.is_done());
        assert!(cursor.query().is_none() && cursor.protect(Default::default()) == Ok(None));
        assert!(cursor.unmap().is_none());
    }
    edit.flush();
    tree.end(on, |_, _, _| {}).unwrap();
}

#[test]
fn a_range_does_not_run_backward() {
    for (start, end) in [(1, 0), (u64::MAX, 0), (0x2000, 0x1fff)] {
        assert_eq!(VirtRange::new(start, end), Err(BackwardRange { start, end }));
    }
    assert_eq!(VirtRange::new(7, 7).map(|range| (range.len(), range.is_empty())), Ok((0, true)));
    let apart = VirtRange::fixed::<0x5000, 0x6000>().and(VirtRange::up_to(0x1000));
    assert_eq!((apart.start, apart.end), (0x5000, 0x5000));
    for (first, pages, shift) in [(u64::MAX, 1, 12), (1, u64::MAX, 12), (u64::MAX, u64::MAX, 63)] {
        let range = VirtRange::saturating_pages(first, pages, shift);
        assert!(range.start <= range.end && range.end == u64::MAX, "{range:?}");
        assert_eq!(VirtRange::pages(VirtAddr(first), pages, shift), None);
    }
    assert_eq!(Some(VirtRange::saturating_pages(3, 2, 12)), VirtRange::pages(VirtAddr(0x3000), 2, 12));
}

#[test]
fn pages_of_no_size_are_none() {
    assert_eq!(VirtRange::pages(VirtAddr(0), 1, 64), None);
    assert_eq!(VirtRange::pages(VirtAddr(0), 1, u32::MAX), None);
    let scope = Scope::Range { start: 0, end: 1, stride: 64, mixed: false };
    assert_eq!((scope.len(), scope.pages().map(Iterator::count)), (0, Some(0)));
    // Larger pages cover the inserted ones, too.
    for (shift, taken) in [(0, 1), (64, 63), (u32::MAX, 63)] {
        let runs = Runs::one(HEAP, HEAP + 1, shift);
        assert!(runs.shift() == taken && runs.contains(HEAP));
    }
}
