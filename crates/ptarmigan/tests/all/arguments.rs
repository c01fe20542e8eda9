//! Numbers and addresses that there are not: they are refused without a panic.
use crate::common;
use common::small;
use ptarmigan::addr::{VirtAddr, VirtRange};
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
    for range in [(u64::MAX, 0), (u64::MAX, u64::MAX), (u64::MAX - 4096, u64::MAX)] {
        let mut cursor = edit.cursor(VirtRange { start: range.0, end: range.1 });
        assert!(cursor.is_done());
        assert!(cursor.query().is_none() && cursor.protect(Default::default()) == Ok(None));
        assert!(cursor.unmap().is_none());
    }
    edit.flush();
    tree.end(on, |_, _, _| {}).unwrap();
}

#[test]
fn pages_of_no_size_are_none() {
    assert_eq!(VirtRange::pages(VirtAddr(0), 1, 64), None);
    assert_eq!(VirtRange::pages(VirtAddr(0), 1, u32::MAX), None);
    assert_eq!(VirtRange { start: 1, end: 0 }.len(), 0);
    let scope = Scope::Range { start: 0, end: 1, stride: 64, mixed: false };
    assert_eq!((scope.len(), scope.pages().map(Iterator::count)), (0, Some(0)));
    // Larger pages cover the inserted ones, too.
    for (shift, taken) in [(0, 1), (64, 63), (u32::MAX, 63)] {
        let runs = Runs::one(HEAP, HEAP + 1, shift);
        assert!(runs.shift() == taken && runs.contains(HEAP));
    }
}
