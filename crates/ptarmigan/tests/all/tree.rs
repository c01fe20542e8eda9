//! Trees of tables against a map from pages to frames; failure at every step; which tables are
//! freed; the dump.
use crate::common;
use common::{FailAt, Pages, Watch, Watchable, Watched, range, scan, small, va, watched};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use ptarmigan::addr::{Pfn, VirtRange};
use ptarmigan::format::{Attr, Format, FormatExt, X86_64, X86Pae};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::quicklist::Layered;
use ptarmigan::table::{Free, KernelMap, MapError, Tree, TreeMut};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{CpuSlot, Host, HostMachine, NoTlb};
use ptarmigan_linux::Plain;
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

const PAGE: u64 = 4096;
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::USER.0);

/// Takes a tree down; everything must be back.
fn end<F: Format, M: Machine>(on: On<'_, M>, tree: Tree<F>) -> Pages {
    let mut left = Pages::new();
    tree.end(on, |va, pfn, attr| {
        left.insert(va.0, (pfn, attr));
    })
    .unwrap();
    left
}

/// Changes of a tree in which no program runs: whatever is mapped in it, nobody gets at it.
trait Unused {
    fn put(&mut self, at: u64, pfn: Pfn, attr: Attr) -> Result<(), MapError>;
    fn put_range(&mut self, range: VirtRange, first: Pfn, attr: Attr) -> Result<(), MapError>;
}

impl<F: Format, M: Machine> Unused for TreeMut<'_, F, M> {
    fn put(&mut self, at: u64, pfn: Pfn, attr: Attr) -> Result<(), MapError> {
        // SAFETY: 1. no program runs in the tree.
        unsafe { self.map(va(at), pfn, attr, AllocFlags::NORMAL) }
    }

    fn put_range(&mut self, range: VirtRange, first: Pfn, attr: Attr) -> Result<(), MapError> {
        // SAFETY: 1. no program runs in the tree.
        unsafe { self.map_range(range, first, attr) }
    }
}

/// The tables that a set of pages needs, by level.
fn needed<F: Format>(pages: &Pages) -> Vec<u32> {
    (0..F::LAYOUT.levels)
        .map(|l| {
            let level = Level(l);
            let spans: BTreeSet<u64> = pages
                .keys()
                .map(|va| if level == F::LAYOUT.root() { 0 } else { va >> F::shift(Level(l + 1)) })
                .collect();
            let n = if level == F::LAYOUT.root() { 1 } else { spans.len() as u32 };
            // Tables under a root that lives in registers are always there.
            if F::ROOT_IN_REGISTERS && l + 2 == F::LAYOUT.levels { F::USER_ROOT_ENTRIES as u32 } else { n }
        })
        .collect()
}

fn tables<F: Format>(tree: &Tree<F>) -> Vec<u32> {
    (0..F::LAYOUT.levels).map(|l| tree.count(Level(l))).collect()
}

#[derive(Clone, Debug)]
enum Op {
    Map(u64, u32, Attr),
    MapRange(u64, u64, u32, Attr),
    Unmap(u64),
    UnmapRange(u64, u64, Free),
    Change(u64, u64, Attr),
    CursorMap(u64, u64),
    CursorUnmap(u64, u64),
    CursorProtect(u64, u64, Attr),
}

/// Pages where tables of several levels meet, by number.
fn page<F: Format>() -> impl Strategy<Value = u64> {
    let last = F::USER_END / PAGE;
    prop_oneof![0u64..40, 500u64..530, (1u64 << 18) - 20..(1 << 18) + 20, last - 600..last]
}

fn attr() -> impl Strategy<Value = Attr> {
    (0u32..256).prop_map(|bits| X86_64::nearest(Attr(bits & !Attr::GLOBAL.0)))
}

fn free() -> impl Strategy<Value = Free> {
    prop_oneof![Just(Free::Empty), Just(Free::Never), Just(Free::Covered)]
}

fn len() -> impl Strategy<Value = u64> {
    prop_oneof![5 => 1u64..12, 1 => 300u64..1400]
}

fn ops<F: Format>() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (page::<F>(), any::<u32>(), attr()).prop_map(|(p, f, a)| Op::Map(p, f >> 12, a)),
        2 => (page::<F>(), len(), any::<u32>(), attr()).prop_map(|(p, n, f, a)| Op::MapRange(p, n, f >> 12, a)),
        2 => page::<F>().prop_map(Op::Unmap),
        3 => (page::<F>(), len(), free()).prop_map(|(p, n, f)| Op::UnmapRange(p, n, f)),
        1 => (page::<F>(), len(), attr()).prop_map(|(p, n, a)| Op::Change(p, n, a)),
        1 => (page::<F>(), len()).prop_map(|(p, n)| Op::CursorMap(p, n)),
        1 => (page::<F>(), len()).prop_map(|(p, n)| Op::CursorUnmap(p, n)),
        1 => (page::<F>(), len(), attr()).prop_map(|(p, n, a)| Op::CursorProtect(p, n, a)),
    ];
    proptest::collection::vec(op, 1..60)
}

fn bytes<F: Format>(page: u64, n: u64) -> VirtRange {
    range(page * PAGE, ((page + n) * PAGE).min(F::USER_END))
}

fn in_range(model: &Pages, r: VirtRange) -> Vec<u64> {
    model.range(r.start..r.end).map(|p| *p.0).collect()
}

fn against_the_model<F: Watchable>(ops: &[Op], active: bool) {
    let host = Host::<F>::new(small(1, 1, 32)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let watch = Watch::new(&host);
    let m = watched(&watch, host.quicklists().unwrap());
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
    if active {
        tree.activate(on).unwrap();
    }
    let mut model = Pages::new();
    let mut only_empty = true;
    for op in ops {
        match *op {
            Op::Map(p, f, a) => {
                let result = tree.edit(on).unwrap().put(p * PAGE, Pfn(f), a);
                match model.entry(p * PAGE) {
                    Entry::Occupied(at) => assert_eq!(result, Err(MapError::Occupied { at: va(*at.key()) })),
                    Entry::Vacant(place) => {
                        result.unwrap();
                        place.insert((Pfn(f), a));
                    }
                }
            }
            Op::MapRange(p, n, f, a) => {
                let r = bytes::<F>(p, n);
                let before = tables(&tree);
                let result = tree.edit(on).unwrap().put_range(r, Pfn(f), a);
                match in_range(&model, r).first() {
                    Some(first) => {
                        assert_eq!(result, Err(MapError::Occupied { at: va(*first) }));
                        if only_empty {
                            assert_eq!(tables(&tree), before, "a failed call leaves no tables behind");
                        }
                    }
                    None => {
                        result.unwrap();
                        for (i, at) in (r.start..r.end).step_by(PAGE as usize).enumerate() {
                            model.insert(at, (Pfn(f + i as u32), a));
                        }
                    }
                }
            }
            Op::Unmap(p) => {
                let was = model.remove(&(p * PAGE));
                assert_eq!(tree.edit(on).unwrap().unmap(va(p * PAGE)), was);
                only_empty &= was.is_none();
            }
            Op::UnmapRange(p, n, free) => {
                let r = bytes::<F>(p, n);
                let mut seen = Pages::new();
                tree.edit(on).unwrap().unmap_range(r, free, |at, pfn, attr| {
                    seen.insert(at.0, (pfn, attr));
                });
                let gone: Pages =
                    in_range(&model, r).iter().map(|p| (*p, model.remove(p).unwrap())).collect();
                assert_eq!(seen, gone);
                only_empty &= free == Free::Empty || gone.is_empty();
            }
            Op::Change(p, n, a) => {
                let r = bytes::<F>(p, n);
                tree.edit(on)
                    .unwrap()
                    .change_range(r, |old| if old.has(Attr::WRITE) { a } else { old })
                    .unwrap();
                for at in in_range(&model, r) {
                    let (_, old) = model.get_mut(&at).unwrap();
                    if old.has(Attr::WRITE) {
                        *old = a;
                    }
                }
            }
            Op::CursorMap(p, n) => {
                let r = bytes::<F>(p, n);
                let mut edit = tree.edit(on).unwrap();
                let mut cursor = edit.cursor(r);
                while !cursor.is_done() {
                    let at = cursor.at();
                    assert_eq!(cursor.query(), model.get(&at.0).copied());
                    let pfn = Pfn((at.0 >> 12) as u32 & 0xf_ffff);
                    // SAFETY: 1. no program runs in the tree.
                    match unsafe { cursor.map(pfn, RW, AllocFlags::NORMAL) } {
                        Ok(()) => assert!(model.insert(at.0, (pfn, RW)).is_none()),
                        Err(e) => {
                            assert_eq!(e, MapError::Occupied { at });
                            assert!(model.contains_key(&at.0));
                            cursor.advance();
                        }
                    }
                }
                // SAFETY: 1. no program runs in the tree.
                let beyond = unsafe { cursor.map(Pfn(1), RW, AllocFlags::NORMAL) };
                assert!(matches!(beyond, Err(MapError::OutOfRange { .. })));
            }
            Op::CursorUnmap(p, n) => {
                let r = bytes::<F>(p, n);
                let mut edit = tree.edit(on).unwrap();
                let mut cursor = edit.cursor(r);
                while !cursor.is_done() {
                    let at = cursor.at();
                    let was = model.remove(&at.0);
                    only_empty &= was.is_none();
                    assert_eq!(cursor.unmap(), was);
                }
            }
            Op::CursorProtect(p, n, a) => {
                let r = bytes::<F>(p, n);
                let mut edit = tree.edit(on).unwrap();
                let mut cursor = edit.cursor(r);
                // Backwards: a cursor may go anywhere in its range.
                for at in (r.start / PAGE..r.end / PAGE).rev().map(|p| p * PAGE) {
                    cursor.seek(va(at));
                    let old = model.get_mut(&at).map(|(_, attr)| std::mem::replace(attr, a));
                    assert_eq!(cursor.protect(a), Ok(old));
                }
            }
        }
        assert_eq!(scan(&host, on, tree.view()), model);
        if only_empty {
            assert_eq!(tables(&tree), needed::<F>(&model), "tables that are needed, and no others");
        }
        for (at, leaf) in model.iter().take(20) {
            assert_eq!(tree.query(on, va(at + 123)), Some(*leaf));
        }
    }
    assert_eq!(end(on, tree), model);
    m.drain(&slots);
    host.audit().unwrap();
    assert!(watch.finish().is_empty(), "the sanitizer found something");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, rng_seed: RngSeed::Fixed(20), ..ProptestConfig::default() })]

    #[test]
    fn x86_64_trees_are_maps_from_pages_to_frames(ops in ops::<X86_64>(), active in any::<bool>()) {
        against_the_model::<X86_64>(&ops, active);
    }

    #[test]
    fn pae_trees_are_maps_from_pages_to_frames(ops in ops::<X86Pae>(), active in any::<bool>()) {
        against_the_model::<X86Pae>(&ops, active);
    }
}

type Failing<'h, F> = Layered<FailAt, Plain<'h, DirectMap, &'h KernelMap<F, DirectMap>>>;

/// A machine whose policy fails on demand.
fn with_failing<F: Watchable>(
    run: impl for<'h> Fn(&'h Host<F>, &Watched<'_, 'h, F, Failing<'h, F>>, &[CpuSlot]),
) {
    let host = Host::<F>::new(small(1, 1, 16)).unwrap();
    let slots = host.slots();
    let watch = Watch::new(&host);
    let m = watched(&watch, Layered::new(FailAt::new(), host.plain().unwrap()).unwrap());
    run(&host, &m, &slots);
    m.policy().inner().layer().set(usize::MAX);
    m.drain(&slots);
    host.audit().unwrap();
    assert!(watch.finish().is_empty());
}

fn failure_at_every_step<F: Watchable>() {
    with_failing::<F>(|host, m, slots| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let fail = m.policy().inner().layer();
        // A tree itself.
        for k in 0.. {
            fail.set(k);
            let free = host.frames().counts().free;
            match Tree::<F>::new(on, AllocFlags::NORMAL) {
                Ok(tree) => {
                    assert_eq!(
                        k as u32,
                        1 + if F::ROOT_IN_REGISTERS { F::USER_ROOT_ENTRIES as u32 } else { 0 }
                    );
                    fail.set(usize::MAX);
                    end(on, tree);
                    break;
                }
                Err(_) => assert_eq!(host.frames().counts().free, free, "failure at table {k}"),
            }
        }
        fail.set(usize::MAX);
        let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
        tree.activate(on).unwrap();
        tree.edit(on).unwrap().put(5 * PAGE, Pfn(3), RW).unwrap();
        let before = (scan(host, on, tree.view()), tables(&tree), host.frames().counts().free);
        // One page far away, and a range over several tables of two levels.
        let far = F::USER_END - 3 * PAGE;
        let wide = range((1 << 30) - (3 << 21), (1 << 30) + (2 << 21));
        let (mut one, mut many) = (0, 0);
        for k in 0.. {
            fail.set(k);
            match tree.edit(on).unwrap().put(far, Pfn(9), RW) {
                Ok(()) => {
                    one = k;
                    break;
                }
                Err(e) => assert!(matches!(e, MapError::NoFrame(_))),
            }
            assert_eq!((scan(host, on, tree.view()), tables(&tree), host.frames().counts().free), before);
        }
        tree.edit(on).unwrap().unmap_range(range(far, far + PAGE), Free::Empty, |_, _, _| {});
        assert_eq!((scan(host, on, tree.view()), tables(&tree), host.frames().counts().free), before);
        for k in 0.. {
            fail.set(k);
            let result = tree.edit(on).unwrap().put_range(wide, Pfn(100), RW);
            match result {
                Ok(()) => {
                    many = k;
                    break;
                }
                Err(e) => assert!(matches!(e, MapError::NoFrame(_))),
            }
            assert_eq!(
                (scan(host, on, tree.view()), tables(&tree), host.frames().counts().free),
                before,
                "table {k}"
            );
        }
        assert!(one >= 1 && many >= 5, "tables taken: {one} and {many}");
        fail.set(usize::MAX);
        end(on, tree);
    });
}

#[test]
fn a_lack_of_memory_at_any_table_leaves_nothing_behind() {
    failure_at_every_step::<X86_64>();
    failure_at_every_step::<X86Pae>();
}

#[test]
fn bad_addresses_are_refused_and_odd_ranges_cover_touched_pages() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
    let out = X86_64::USER_END;
    for at in [out, out + 5, 1 << 48, u64::MAX] {
        let refused = tree.edit(on).unwrap().put(at, Pfn(1), RW);
        assert_eq!(refused, Err(MapError::OutOfRange { at: va(at) }));
        assert_eq!(tree.query(on, va(at)), None);
        assert_eq!(tree.edit(on).unwrap().unmap(va(at)), None);
    }
    for at in [1, 0x1fff, out - 1] {
        let refused = tree.edit(on).unwrap().put(at, Pfn(1), RW);
        assert_eq!(refused, Err(MapError::Misaligned { at: va(at), page: PAGE }));
    }
    assert!(tree.edit(on).unwrap().put_range(range(out - PAGE, out + PAGE), Pfn(1), RW).is_err());
    assert!(tree.edit(on).unwrap().put_range(range(u64::MAX - PAGE, u64::MAX), Pfn(1), RW).is_err());
    assert_eq!(tree.tables_below_root(), 0);
    tree.edit(on).unwrap().put_range(range(0x1800, 0x3001), Pfn(1), RW).unwrap();
    assert_eq!(scan(&host, on, tree.view()).keys().copied().collect::<Vec<_>>(), [0x1000, 0x2000, 0x3000]);
    tree.edit(on).unwrap().put_range(range(0x9000, 0x9000), Pfn(1), RW).unwrap();
    tree.edit(on).unwrap().unmap_range(range(0x2fff, 0x3001), Free::Empty, |_, _, _| {});
    assert_eq!(scan(&host, on, tree.view()).keys().copied().collect::<Vec<_>>(), [0x1000]);
    end(on, tree);
    m.drain(&slots);
    host.audit().unwrap();
}

/// Linux's `free_pgd_range` and its callees, level by level: a table in the way of `start..end`
/// goes if its aligned span lies between floor and ceiling.
fn freed_by_linux<F: Format>(pages: &Pages, r: VirtRange, floor: u64, ceiling: u64) -> Vec<u32> {
    (0..F::LAYOUT.levels)
        .map(|l| {
            if l + 1 == F::LAYOUT.levels || F::ROOT_IN_REGISTERS && l + 2 == F::LAYOUT.levels {
                return 0;
            }
            let shift = F::shift(Level(l + 1));
            let spans: BTreeSet<u64> = pages.keys().map(|va| va >> shift).collect();
            spans
                .into_iter()
                .filter(|s| {
                    let (start, end) = (s << shift, (s + 1) << shift);
                    start < r.end && r.start < end && floor <= start && end <= ceiling
                })
                .count() as u32
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, rng_seed: RngSeed::Fixed(20), ..ProptestConfig::default() })]

    #[test]
    fn munmap_frees_the_tables_that_linux_frees(
        areas in proptest::collection::btree_map(0u64..3000, 1u64..600, 1..8),
        which in any::<usize>(),
        untouched in any::<u8>(),
        spread in prop_oneof![Just(1u64), Just(64), Just(1 << 15)],
    ) {
        // Areas in order, without overlap.
        let mut laid: Vec<VirtRange> = Vec::new();
        for (start, n) in areas {
            let start = (start * spread * PAGE).max(laid.last().map_or(0, |a: &VirtRange| a.end));
            laid.push(range(start, start + n * PAGE));
        }
        laid.retain(|a| a.end < X86_64::USER_END);
        let host = Host::<X86_64>::new(small(1, 1, 64)).unwrap();
        let slots = host.slots();
        let pin = slots[0].pin();
        let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
        let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
        let gone = which % laid.len();
        for (i, a) in laid.iter().enumerate() {
            // An area counts as a neighbour even if it has no touched page.
            if i == gone || untouched >> i & 1 == 0 {
                tree.edit(on).unwrap().put_range(*a, Pfn(1), RW).unwrap();
            }
        }
        let r = laid[gone];
        let floor = if gone > 0 { laid[gone - 1].end } else { 0 };
        let ceiling = laid.get(gone + 1).map_or(X86_64::USER_END, |a| a.start);
        let pages = scan(&host, on, tree.view());
        let before = tables(&tree);
        let expect = freed_by_linux::<X86_64>(&pages, r, floor, ceiling);
        tree.edit(on).unwrap().unmap_range(r, Free::Span { floor, ceiling }, |_, _, _| {});
        let freed: Vec<u32> = before.iter().zip(tables(&tree)).map(|(b, a)| b - a).collect();
        prop_assert_eq!(freed, expect);
        scan(&host, on, tree.view());
        end(on, tree);
        m.drain(&slots);
        prop_assert_eq!(host.audit(), Ok(()));
    }
}

#[test]
fn covered_frees_whole_leaf_tables_and_never_frees_none() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
    let span = 512 * PAGE;
    let three = range(span, 4 * span);
    for (free, left) in
        [(Free::Never, [3, 1, 1, 1]), (Free::Covered, [2, 1, 1, 1]), (Free::Empty, [2, 1, 1, 1])]
    {
        tree.edit(on).unwrap().unmap_range(three, Free::Empty, |_, _, _| {});
        tree.edit(on).unwrap().put_range(three, Pfn(1), RW).unwrap();
        // One whole table, a table but for its last page, and the last page of one.
        tree.edit(on).unwrap().unmap_range(range(2 * span - PAGE, 4 * span - PAGE), free, |_, _, _| {});
        assert_eq!(tables(&tree), left, "{free:?}");
        scan(&host, on, tree.view());
    }
    end(on, tree);
    m.drain(&slots);
    host.audit().unwrap();
}

#[test]
fn a_dump_shows_runs() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
    tree.edit(on).unwrap().put_range(range(0x1f_e000, 0x20_2000), Pfn(0x100), RW).unwrap();
    tree.edit(on).unwrap().put(0x20_2000, Pfn(0x104), RW.without(Attr::WRITE)).unwrap();
    let zero = RW.without(Attr::WRITE) | Attr::SPECIAL;
    // A special frame again and again, then frames that ascend: two runs.
    for (i, pfn) in [5, 5, 7, 8, 9, 9].into_iter().enumerate() {
        tree.edit(on).unwrap().put(0x7000_0000 + i as u64 * PAGE, Pfn(pfn), zero).unwrap();
    }
    let root = tree.root();
    let expect = format!(
        "x86-64 tree at {root}: 1 pgd 1 pud 2 pmd 3 pte
  0x0000001fe000..0x000000202000      4 page(s) -> 0x100 rw-u----
  0x000000202000..0x000000203000      1 page(s) -> 0x104 r--u----
  0x000070000000..0x000070002000      2 page(s) -> 0x5 r--u---s
  0x000070002000..0x000070005000      3 page(s) -> 0x7 r--u---s
  0x000070005000..0x000070006000      1 page(s) -> 0x9 r--u---s
"
    );
    assert_eq!(tree.view().dump(on).to_string(), expect);
    end(on, tree);
    m.drain(&slots);
    host.audit().unwrap();
}

#[test]
fn leaf_tables_come_in_order_with_all_entries_even_empty_ones() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
    tree.edit(on).unwrap().put_range(range(0x1f_d000, 0x20_2000), Pfn(0x100), RW).unwrap();
    tree.edit(on).unwrap().put(0x7000_0000, Pfn(5), RW).unwrap();
    tree.edit(on).unwrap().unmap_range(range(0x7000_0000, 0x7000_1000), Free::Never, |_, _, _| {});
    let seen = |range| {
        let mut seen = Vec::new();
        tree.view().on(on).unwrap().leaf_tables(range, |va, _, entries| seen.push((va.0, entries)));
        seen
    };
    // The range begins within the first table, of which all entries count.
    assert_eq!(seen(range(0x1f_f000, 0x8000_0000)), [(0, 3), (0x20_0000, 2), (0x7000_0000, 0)]);
    assert_eq!(seen(range(0x20_1000, 0x20_2000)), [(0x20_0000, 2)]);
    assert_eq!(seen(range(0x40_0000, 0x7000_0000)), []);
    end(on, tree);
    m.drain(&slots);
    host.audit().unwrap();
}
