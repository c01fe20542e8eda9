//! Calls on single pages within one edit, on lists without a layer: the way to the last page, and
//! leaf tables that are emptied and given back at the end of their space.
use crate::common;
use common::{Pages, range, small, va};
use ptarmigan::addr::{Pfn, VirtRange};
use ptarmigan::format::{Attr, Format, FormatExt, Sv32, X86_64, X86Pae};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan::table::{Free, Tree};
use ptarmigan::tlb::TlbConfig;
use ptarmigan_hosted::{Delivery, Host, HostMachine, NoTlb};

const PAGE: u64 = 4096;
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::USER.0);

/// A call on an edit.
#[derive(Clone, Copy)]
enum Call {
    Map(u64),
    Unmap(u64),
    UnmapRange(VirtRange, Free),
}

/// Makes calls within one edit of a new tree, compares it with a map, and takes it down.
fn one_edit<F: Format, M: Machine>(on: On<'_, M>, calls: impl Iterator<Item = Call>) {
    let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
    let mut model = Pages::new();
    let mut edit = tree.edit(on).unwrap();
    for (i, call) in calls.enumerate() {
        let pfn = Pfn(1 + i as u32);
        match call {
            Call::Map(at) => {
                // SAFETY: 1. no program runs in the tree.
                let mapped = unsafe { edit.map(va(at), pfn, RW, AllocFlags::NORMAL) };
                assert_eq!(mapped.is_ok(), !model.contains_key(&at), "{at:#x}");
                model.entry(at).or_insert((pfn, RW));
            }
            Call::Unmap(at) => assert_eq!(edit.unmap(va(at)), model.remove(&at), "{at:#x}"),
            Call::UnmapRange(range, free) => {
                edit.unmap_range(range, free, |va, pfn, attr| {
                    assert_eq!(model.remove(&va.0), Some((pfn, attr)), "{va}");
                });
                assert!(model.range(range.start..range.end).next().is_none());
            }
        }
    }
    edit.flush();
    let mut walked = Pages::new();
    let all = range(0, F::USER_END);
    tree.view().walk(on, all, |va, pfn, attr| assert!(walked.insert(va.0, (pfn, attr)).is_none())).unwrap();
    assert_eq!(walked, model);
    let mut told = Pages::new();
    tree.end(on, |va, pfn, attr| assert!(told.insert(va.0, (pfn, attr)).is_none(), "{va} is told twice"))
        .unwrap();
    assert_eq!(told, model, "pages told at the end");
}

/// Makes edits, each of a tree of its own, on lists of one CPU, whose pages must all be back and
/// zero afterwards: debug builds look at each that is handed out again.
fn edits<F: Format>(edits: &[Vec<Call>]) {
    let host = Host::<F>::new(small(1, 1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    // The second time on the pages of the first.
    for calls in edits.iter().chain(edits) {
        one_edit::<F, _>(m.on(&pin).unwrap(), calls.iter().copied());
        assert_eq!(m.policy().counts().live(), 0);
    }
    m.drain(&slots);
    host.audit().unwrap();
}

#[test]
fn an_edit_does_not_go_to_tables_that_it_has_taken_away() {
    fn of<F: Format>() {
        let table = 1 << F::shift(Level(1));
        let near = 3 * table;
        // Another line of the table of level 1.
        let line = near + 64 * table;
        let all = range(0, F::USER_END);
        let page = range(near, near + PAGE);
        edits::<F>(&[
            vec![Call::Map(near), Call::UnmapRange(page, Free::Empty), Call::Map(near + PAGE)],
            vec![Call::Map(near), Call::UnmapRange(all, Free::Empty), Call::Unmap(near)],
            vec![
                Call::Map(near),
                Call::Unmap(near),
                Call::UnmapRange(page, Free::Empty),
                // Takes the page that was the table of level 1, if it comes back early.
                Call::Map(F::USER_END - PAGE),
                Call::Map(near),
                Call::Map(near + PAGE),
            ],
            vec![
                Call::Map(near),
                Call::Map(near + table),
                Call::UnmapRange(all, Free::Empty),
                Call::Map(line),
                Call::Map(near + table),
            ],
        ]);
    }
    of::<X86_64>();
    of::<X86Pae>();
    of::<Sv32>();
}

#[test]
fn pages_of_a_table_are_told_at_its_end_and_leave_it_zero() {
    let (map, unmap) = (|i: u64| Call::Map(i * PAGE), |i: u64| Call::Unmap(i * PAGE));
    let mut all = Vec::new();
    // The first page of a table, and another one: in its line, beside it, in the other half of the
    // map of lines.
    for (first, other) in [(9, 8), (9, 15), (8, 9), (15, 8), (0, 1), (9, 16), (9, 300), (300, 9), (511, 0)] {
        all.push(vec![map(first)]);
        all.push(vec![map(first), map(other)]);
        all.push(vec![map(first), map(other), unmap(first)]);
        all.push(vec![map(first), map(other), unmap(other)]);
        all.push(vec![map(first), unmap(first)]);
        all.push(vec![map(first), unmap(first), map(other)]);
        all.push(vec![map(first), unmap(first), map(other), map(first)]);
    }
    // Full lines, and lines that lack a page.
    let full: Vec<_> = (0..512).map(map).collect();
    for gap in [0, 7, 8, 100, 511] {
        all.push(full.iter().copied().chain([unmap(gap)]).collect());
        let part = range(gap * PAGE, (gap + 9) * PAGE);
        all.push(full.iter().copied().chain([Call::UnmapRange(part, Free::Empty)]).collect());
    }
    all.push(full);
    edits::<X86_64>(&all);
    edits::<X86Pae>(&all);
    edits::<Sv32>(&all);
}

#[test]
fn more_leaf_tables_than_the_magazines_hold_go_back_at_the_end() {
    let tables = |n: u64| (0..n).map(|i| Call::Map(i << X86_64::shift(Level(1)))).collect();
    edits::<X86_64>(&[tables(7), tables(8), tables(9), tables(300), tables(129), tables(1)]);
}

#[test]
fn leaf_tables_of_a_space_that_ends_wait_for_a_lazy_cpu() {
    let host = Host::<X86_64>::new(small(2, 1, 16)).unwrap();
    let config = TlbConfig { park: 20, ..TlbConfig::new(2) };
    let m =
        HostMachine::with_tlb(&host, host.quicklists().unwrap(), NoTlb, config, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let (pin_a, pin_b) = (slots[0].pin(), slots[1].pin());
    let (a, b) = (m.on(&pin_a).unwrap(), m.on(&pin_b).unwrap());
    for lazy in [false, true] {
        let mut space = Space::<X86_64>::new(a).unwrap();
        for at in [0x40_0000, 0x60_0000, 0x80_0000] {
            space.edit(a).unwrap().mmap(range(at, at + PAGE), AreaFlags(3), 0).unwrap();
            space.fault(a, va(at), Access::Write).unwrap();
        }
        if lazy {
            space.activate(b).unwrap();
            space.rest(b).unwrap();
        }
        let live = m.policy().counts().live();
        assert_eq!(live, 6, "a root, and two tables above three leaf tables");
        space.end(a).unwrap();
        if lazy {
            assert_eq!(m.policy().counts().live(), live, "the policy has none of them");
            assert_eq!(m.parking().parked(&pin_a), 9, "the tables and three pages");
            a.unpark();
        }
        assert_eq!(m.policy().counts().live(), 0);
    }
    m.drain(&slots);
    host.audit().unwrap();
}
