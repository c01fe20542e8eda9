//! The stack that `execve` moves: pages that its final place has no room for, and permissions that
//! it does not have.
use crate::common;
use common::small;
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::{Access, Attr, X86_64};
use ptarmigan::machine::{Machine, On};
use ptarmigan::space::{AreaError, AreaFlags, Space, SpaceMachine};
use ptarmigan_hosted::{Host, HostMachine, NoTlb};

type X = X86_64;
const PAGE: u64 = 4096;
/// Where the arguments end while they are written.
const END: u64 = 0x41_0000;

fn rw() -> AreaFlags {
    AreaFlags::READ.with(AreaFlags::WRITE)
}

/// The last `n` pages below `end`.
fn below(end: u64, n: u64) -> VirtRange {
    VirtRange::new(end - n * PAGE, end).unwrap()
}

/// Returns the mapped pages, counted down from `end`, and whether each may be written.
fn mapped<M: SpaceMachine>(space: &Space<X>, on: On<'_, M>, end: u64) -> Vec<Option<bool>> {
    (1..=10)
        .map(|page| space.tree().query(on, VirtAddr(end - page * PAGE)))
        .map(|found| found.map(|(_, attr)| attr.has(Attr::WRITE)))
        .collect()
}

macro_rules! with_stack {
    ($pages:expr, |$on:ident, $space:ident| $body:block) => {{
        let host = Host::<X>::new(small(1, 1, 16)).unwrap();
        let slots = host.slots();
        let pin = slots[0].pin();
        let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
        let $on = m.on(&pin).unwrap();
        let mut $space = Space::<X>::exec($on, VirtAddr(END), $pages).unwrap();
        $body
        $space.end($on).unwrap();
        m.drain(&slots);
        host.audit().unwrap();
    }};
}

#[test]
fn a_stack_that_shrinks_where_it_is_loses_the_pages_below() {
    with_stack!(8, |on, space| {
        space.edit(on).unwrap().move_stack(below(END, 2), rw()).unwrap();
        let (some, none) = (Some(true), None);
        assert_eq!(mapped(&space, on, END)[..4], [some, some, none, none]);
        assert_eq!(mapped(&space, on, END).iter().flatten().count(), 2);
        assert_eq!(space.areas().find(on, END - 1).unwrap().range(), below(END, 2));
    });
}

#[test]
fn a_stack_that_moves_to_a_smaller_place_keeps_its_top() {
    with_stack!(8, |on, space| {
        let to = END - 64 * PAGE;
        space.edit(on).unwrap().move_stack(below(to, 2), rw()).unwrap();
        assert_eq!(mapped(&space, on, to).iter().flatten().count(), 2);
        assert_eq!(mapped(&space, on, END).iter().flatten().count(), 0);
        assert_eq!(space.areas().len(), 1);
    });
}

#[test]
fn a_stack_loses_the_permissions_that_its_final_place_has_not() {
    for to in [END, END - 64 * PAGE, END + 64 * PAGE] {
        with_stack!(2, |on, space| {
            space.edit(on).unwrap().move_stack(below(to, 4), AreaFlags::READ).unwrap();
            assert_eq!(mapped(&space, on, to)[..3], [Some(false), Some(false), None]);
            assert!(space.fault(on, VirtAddr(to - 1), Access::Write).is_err());
        });
    }
}

#[test]
fn nothing_but_permissions_is_taken_from_the_flags_of_a_stack() {
    with_stack!(1, |on, space| {
        let child = space.edit(on).unwrap().fork().unwrap();
        let before = space.areas().find(on, END - 1).unwrap().flags;
        let flags = rw().with(AreaFlags::SHARED).with(AreaFlags::BACKED);
        let mut edit = space.edit(on).unwrap();
        edit.move_stack(below(END, 1), flags).unwrap();
        assert_eq!(edit.area(VirtAddr(END - 1)).unwrap().flags, before);
        // The page is still shared with the child: a write makes a copy.
        edit.fault(VirtAddr(END - 1), Access::Write).unwrap();
        let ours = edit.query(VirtAddr(END - 1)).unwrap().0;
        assert_ne!(ours, child.tree().query(on, VirtAddr(END - 1)).unwrap().0);
        child.end(on).unwrap();
    });
}

#[test]
fn a_stack_does_not_move_into_another_area_or_over_itself() {
    with_stack!(4, |on, space| {
        let mut edit = space.edit(on).unwrap();
        edit.mmap(below(END - 64 * PAGE, 4), rw(), 0).unwrap();
        for range in [below(END, 65), below(END - 62 * PAGE, 4), below(END - PAGE, 8), below(END + PAGE, 2)] {
            assert!(matches!(edit.move_stack(range, rw()), Err(AreaError::Overlap(_))), "{range:?}");
        }
        assert_eq!(mapped(&space, on, END).iter().flatten().count(), 4);
    });
}
