//! Checks the state after memory runs short in the middle of a call, or a callback panics there.
use crate::common;

use common::{any_frame, range, small, va};
use ptarmigan::addr::{Pfn, VirtRange};
use ptarmigan::cpu::{NodeId, Pinned};
use ptarmigan::format::{Access, Attr, Format, X86_64, X86Pae};
use ptarmigan::frames::{AllocFlags, Dirty, Frame, Frames};
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::space::{AreaError, AreaFlags, FaultError, SharedSpace, Space};
use ptarmigan::table::{Free, Tree};
use ptarmigan::tlb::TlbRefusal;
use ptarmigan_hosted::test::{Method, Refilled, TestMmu};
use ptarmigan_hosted::{Host, HostMachine, NoTlb};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

const PAGE: u64 = 4096;
const REGION: u64 = 2 << 20;
const BASE: u64 = 0x40_0000;
const NORMAL: AllocFlags = AllocFlags::NORMAL;

fn pages(first: u64, n: u64) -> VirtRange {
    range(first, first + n * PAGE)
}

fn rw() -> AreaFlags {
    AreaFlags::READ.with(AreaFlags::WRITE)
}

/// All free memory of the machine.
fn take_all(frames: &Frames) -> Vec<Frame<Dirty>> {
    let mut all = Vec::new();
    while let Ok(taken) =
        frames.take(ptarmigan::frames::Request { flags: AllocFlags::URGENT, ..any_frame(0) })
    {
        all.push(taken.dirty());
    }
    all
}

#[test]
fn a_move_that_memory_is_too_short_for_leaves_pages_and_areas_where_they_were() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    // The move needs a record for the new place and two for the remains around the old one: with so
    // many areas before, their memory ends at each of the three.
    for others in 124..128 {
        let mut space = Space::<X86_64>::new(on).unwrap();
        let mut edit = space.edit(on).unwrap();
        for i in 0..others - 1 {
            edit.mmap(pages(BASE + 2 * i * PAGE, 1), AreaFlags::READ, 0).unwrap();
        }
        let from = BASE + 300 * PAGE;
        edit.mmap(pages(from, 3), rw(), 0).unwrap();
        edit.populate(pages(from, 3), Access::Write).unwrap();
        let before: Vec<_> = (0..3).map(|i| edit.query(va(from + i * PAGE)).unwrap()).collect();
        let (middle, to) = (pages(from + PAGE, 1), pages(BASE + 400 * PAGE, 1));
        let all = take_all(host.frames());
        let result = edit.mremap(middle, to, false);
        all.into_iter().for_each(|frame| host.frames().give(frame));
        if result.is_ok() {
            assert_eq!(edit.query(va(to.start)), Some(before[1]), "{others} areas");
            assert_eq!(edit.query(va(middle.start)), None);
        } else {
            assert!(matches!(result, Err(AreaError::NoFrame(_))), "{result:?}");
            let after: Vec<_> = (0..3).map(|i| edit.query(va(from + i * PAGE)).unwrap()).collect();
            assert_eq!(after, before, "{others} areas");
            let areas = space.areas();
            assert_eq!(areas.len() as u64, others, "areas");
            assert_eq!(areas.find(on, from).unwrap().range(), pages(from, 3));
            assert!(areas.find(on, to.start).is_none());
        }
        assert!(others < 127 || result.is_err(), "memory is not short with {others} areas");
        space.end(on).unwrap();
    }
    m.drain(&[slot]);
    host.audit().unwrap();
}

#[test]
fn tables_are_counted_also_if_a_callback_panics() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<X86_64>::new(on, NORMAL).unwrap();
    let mut edit = tree.edit(on).unwrap();
    for at in [BASE, BASE + REGION] {
        // SAFETY: 1. no program runs in the tree.
        unsafe { edit.map(va(at), Pfn(77), Attr::USER | Attr::READ, NORMAL).unwrap() };
    }
    let all = VirtRange::up_to(X86_64::USER_END);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        edit.unmap_range(all, Free::Empty, |at, _, _| assert_eq!(at.0, BASE, "the callback fails"));
    }));
    assert!(unwound.is_err());
    edit.flush();
    assert_eq!(tree.count(Level::PTE), 1);
    tree.end(on, |_, _, _| {}).unwrap();
}

#[test]
fn a_root_smaller_than_a_frame_goes_back_through_any_policy_of_its_machine() {
    let host = Host::<X86Pae>::new(small(1, 1, 16)).unwrap();
    let (one, two) = (host.source(), host.source());
    let root = X86Pae::LAYOUT.root();
    let page = one.make(NodeId(0), root, NORMAL).unwrap();
    // SAFETY: 1. made by a source of the same host.
    unsafe { two.unmake(page) };
    let all = take_all(host.frames());
    assert!(one.make(NodeId(0), root, NORMAL).is_err(), "a root in a frame that was handed out");
    all.into_iter().for_each(|frame| host.frames().give(frame));
    host.audit().unwrap();
}

#[test]
fn a_stack_that_cannot_grow_now_is_busy_and_not_missing() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let others = [(); 2].map(|()| SharedSpace::new(Space::<X86_64>::new(on).unwrap()));
    let end = 0x7fff_0000_0000;
    let mut stack = Space::<X86_64>::new(on).unwrap();
    stack.edit(on).unwrap().mmap(pages(end, 1), rw().with(AreaFlags::GROWS_DOWN), 0).unwrap();
    let stack = SharedSpace::new(stack);
    let readers = m.tlb().readers();
    let reading = others.each_ref().map(|other| readers.walk(&pin, other.tlb()).unwrap());
    let done = stack.fault(on, va(end - PAGE), Access::Write);
    assert_eq!(done, Err(FaultError::Refused(TlbRefusal::Busy(pin.cpu()))));
    drop(reading);
    assert!(stack.fault(on, va(end - PAGE), Access::Write).is_ok());
}

thread_local! {
    static TOLD: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

#[test]
fn an_mmu_is_told_of_an_entry_when_its_table_is_not_locked() {
    // Leaked: the MMU's callback holds references to all of it.
    let host: &'static Host<X86_64> = Box::leak(Box::new(Host::new(small(1, 1, 16)).unwrap()));
    let lists = host.quicklists().unwrap();
    let mmu: &'static TestMmu<'_, Refilled> = Box::leak(Box::default());
    mmu.before(|_, call| {
        if call.method() == Method::EntryBecameValid
            && let Some(act) = TOLD.take()
        {
            act();
        }
    });
    let m = HostMachine::new(host, lists, mmu).unwrap();
    let m: &'static _ = Box::leak(Box::new(m));
    let pin: &'static Pinned<'static> = Box::leak(Box::new(Box::leak(Box::new(host.slot(0).unwrap())).pin()));
    let on = m.on(pin).unwrap();
    let mut space = Space::<X86_64>::new(on).unwrap();
    space.edit(on).unwrap().mmap(pages(BASE, 2), rw(), 0).unwrap();
    space.edit(on).unwrap().populate(pages(BASE, 2), Access::Write).unwrap();
    // Of both pages it is the only user: they are written in place.
    space.edit(on).unwrap().fork().unwrap().end(on).unwrap();
    let space: &'static SharedSpace<X86_64> = Box::leak(Box::new(SharedSpace::new(space)));
    let beside = std::rc::Rc::new(std::cell::Cell::new(None));
    let seen = beside.clone();
    TOLD.set(Some(Box::new(move || seen.set(Some(space.fault(on, va(BASE + PAGE), Access::Write))))));
    space.fault(on, va(BASE), Access::Write).unwrap();
    assert!(matches!(beside.take(), Some(Ok(_))), "the page beside was written meanwhile");
}
