//! The areas of a space against a map of pages, thousands of them, and lack of memory at every
//! step.
use crate::common;
use common::{Starved, small};
use fastrand::Rng;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use ptarmigan::addr::VirtRange;
use ptarmigan::format::X86_64;
use ptarmigan::machine::{Machine, On};
use ptarmigan::space::{Area, AreaError, AreaFlags, Space, SpaceMachine};
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Host, HostMachine, NoTlb};
use ptarmigan_linux::Plain;
use std::collections::BTreeMap;

const ALL: VirtRange = VirtRange::up_to(1 << 47);
const PAGE: u64 = 4096;

type X = X86_64;

/// Areas by page; the number keeps backed areas apart, which never join.
type Model = BTreeMap<u64, (AreaFlags, u32, u64)>;

fn range(start: u64, n: u64) -> VirtRange {
    VirtRange::new(start * PAGE, (start + n) * PAGE).unwrap()
}

type PlainMachine<'h> = HostMachine<'h, X, Plain<'h, DirectMap, &'h KernelMap<X, DirectMap>>, NoTlb>;

/// Calls `f` on a machine of so many MiB, whose frames are all back at the end.
fn on_machine(mib: u64, f: impl FnOnce(&Host<X>, On<'_, PlainMachine<'_>>)) {
    let host = Host::<X>::new(small(1, 1, mib)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = PlainMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    f(&host, m.on(&pin).unwrap());
    drop(m);
    host.audit().unwrap();
}

fn list<M: SpaceMachine>(space: &Space<X>, on: On<'_, M>) -> Vec<Area> {
    let mut all = Vec::new();
    space.areas().each(on, ALL, |a| all.push(*a)).unwrap();
    all
}

/// Returns a page's properties in an area: flags, object, and which page of the object if there is
/// one.
fn shows(area: &Area, page: u64) -> (AreaFlags, u32, u64) {
    let backed = area.flags.has(AreaFlags::BACKED);
    (area.flags, area.object, if backed { area.offset_at(page * PAGE) / PAGE } else { 0 })
}

/// Every page is as in the model, areas ascend, and those that are alike are one.
fn check<M: SpaceMachine>(space: &Space<X>, on: On<'_, M>, model: &Model) {
    let all = list(space, on);
    assert_eq!(all.len(), space.areas().len());
    let mut pages = Model::new();
    for a in &all {
        assert!(a.start < a.end);
        for page in a.start / PAGE..a.end / PAGE {
            assert!(pages.insert(page, shows(a, page)).is_none(), "{a:?} overlaps");
        }
    }
    assert_eq!(&pages, model);
    for two in all.windows(2) {
        assert!(two[0].end <= two[1].start, "in order");
        let alike = two[0].end == two[1].start
            && two[0].flags == two[1].flags
            && two[0].object == two[1].object
            && two[0].tag == two[1].tag
            && two[0].offset_at(two[1].start) == two[1].offset;
        assert!(!alike, "{:?} and {:?} are alike", two[0], two[1]);
    }
}

fn check_lookups<M: SpaceMachine>(space: &Space<X>, on: On<'_, M>, at: u64) {
    let (all, areas) = (list(space, on), space.areas());
    assert_eq!(areas.find(on, at), all.iter().find(|a| a.range().contains(at)).copied());
    assert_eq!(areas.at_or_after(on, at), all.iter().find(|a| a.end > at).copied());
    assert_eq!(areas.last_before(on, at), all.iter().rev().find(|a| a.end <= at).copied());
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u64, u16, u32),
    Remove(u64, u64),
    Change(u64, u64, u16),
}

/// One operation on both.
fn apply<M: SpaceMachine>(
    space: &mut Space<X>,
    on: On<'_, M>,
    model: &mut Model,
    op: &Op,
) -> Result<(), AreaError> {
    let mut edit = space.edit(on).unwrap();
    match *op {
        Op::Insert(at, n, flags, object) => {
            let area = Area::new(range(at, n), AreaFlags(flags), object);
            edit.mmap(area.range(), area.flags, object)?;
            model.retain(|p, _| !(at..at + n).contains(p));
            model.extend((at..at + n).map(|p| (p, shows(&area, p))));
        }
        Op::Remove(at, n) => {
            edit.munmap(range(at, n))?;
            model.retain(|p, _| !(at..at + n).contains(p));
        }
        Op::Change(at, n, flags) => {
            match edit.mprotect(range(at, n), AreaFlags(flags)) {
                Err(AreaError::NoArea(_)) => assert!(model.range(at..at + n).next().is_none()),
                done => done?,
            }
            for (_, (old, _, _)) in model.range_mut(at..at + n) {
                *old = AreaFlags(old.0 & AreaFlags::BACKED.0 | flags);
            }
        }
    }
    Ok(())
}

fn op() -> impl Strategy<Value = Op> {
    let flags = prop_oneof![4 => Just(3u16), 2 => Just(1), 1 => Just(3 | 16), 1 => Just(7)];
    prop_oneof![
        4 => (0u64..400, 1u64..12, flags.clone(), 0u32..2).prop_map(|(a, n, f, o)| Op::Insert(a, n, f, o)),
        2 => (0u64..400, 1u64..40).prop_map(|(a, n)| Op::Remove(a, n)),
        2 => (0u64..400, 1u64..40, prop_oneof![Just(1u16), Just(3), Just(5)]).prop_map(|(a, n, f)| Op::Change(a, n, f)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, rng_seed: RngSeed::Fixed(20), ..ProptestConfig::default() })]

    #[test]
    fn areas_are_a_map_from_pages_to_flags(ops in proptest::collection::vec(op(), 1..120)) {
        on_machine(4, |_, on| {
            let mut space = Space::<X>::new(on).unwrap();
            let mut model = Model::new();
            for (i, op) in ops.iter().enumerate() {
                apply(&mut space, on, &mut model, op).unwrap();
                check(&space, on, &model);
                for at in [0, (i as u64 * 37 % 420) * PAGE, (i as u64 * 91 % 420) * PAGE + 5, 500 * PAGE] {
                    check_lookups(&space, on, at);
                }
            }
            let copy = space.edit(on).unwrap().fork().unwrap();
            check(&copy, on, &model);
            space.end(on).unwrap();
            check(&copy, on, &model);
            copy.end(on).unwrap();
        });
    }
}

#[test]
fn thousands_of_areas_split_leaves_and_fill_a_directory() {
    for order in ["up", "down", "mixed"] {
        on_machine(16, |_, on| {
            let mut space = Space::<X>::new(on).unwrap();
            let mut model = Model::new();
            let mut rng = Rng::with_seed(5);
            let mut places: Vec<u64> = (0..6000).collect();
            match order {
                "down" => places.reverse(),
                "mixed" => (0..places.len()).rev().for_each(|i| places.swap(i, rng.usize(..=i))),
                _ => {}
            }
            for place in &places {
                // A gap after each, so that they do not join.
                apply(&mut space, on, &mut model, &Op::Insert(place * 3, 2, 3, 0)).unwrap();
            }
            check(&space, on, &model);
            assert_eq!(space.areas().len(), 6000);
            let least = 6000 / 127 + 1;
            let frames = space.areas().frames();
            assert!((least..=2 * least + 2).contains(&frames), "{frames} frames, {order}");
            for _ in 0..200 {
                check_lookups(&space, on, rng.u64(..18_100) * PAGE);
            }
            // Cuts in the middle of areas, then fewer and fewer areas.
            for _ in 0..300 {
                let op = match rng.u64(..3) {
                    0 => Op::Insert(rng.u64(..18_000), 1, 1, 0),
                    1 => Op::Change(rng.u64(..18_000), 1 + rng.u64(..9), 5),
                    _ => Op::Remove(rng.u64(..18_000), 1 + rng.u64(..9)),
                };
                apply(&mut space, on, &mut model, &op).unwrap();
            }
            check(&space, on, &model);
            let copy = space.edit(on).unwrap().fork().unwrap();
            check(&copy, on, &model);
            copy.end(on).unwrap();
            while !space.areas().is_empty() {
                let at = rng.u64(..18_000);
                apply(&mut space, on, &mut model, &Op::Remove(at, 1500)).unwrap();
            }
            check(&space, on, &model);
            assert_eq!(space.areas().frames(), 0);
            space.end(on).unwrap();
        });
    }
}

#[test]
fn a_lack_of_memory_at_any_frame_leaves_areas_as_they_were() {
    on_machine(4, |host, on| {
        // 127 areas fill a leaf; the cut areas are longer.
        for n in [0u64, 1, 127, 254, 300] {
            let mut space = Space::<X>::new(on).unwrap();
            let mut model = Model::new();
            for i in 0..n {
                apply(&mut space, on, &mut model, &Op::Insert(i * 8, 6, 3, 0)).unwrap();
            }
            let middle = n / 2 * 8;
            for op in [
                Op::Insert(middle + 6, 1, 1, 0),
                Op::Insert(n * 8, 6, 3, 0),
                Op::Remove(middle + 2, 2),
                Op::Change(middle + 2, 2, 5),
            ] {
                for k in 0.. {
                    let starved = Starved::new(host, k);
                    let result = apply(&mut space, on, &mut model, &op);
                    check_pages(&space, on, &model);
                    if result.is_ok() {
                        break;
                    }
                    assert!(matches!(result, Err(AreaError::NoFrame(_))));
                    drop(starved);
                    assert!(k < 10, "no memory was enough");
                }
            }
            for k in 0.. {
                let starved = Starved::new(host, k);
                let free = host.frames().counts().free;
                let copy = space.edit(on).unwrap().fork();
                if let Ok(copy) = copy {
                    check_pages(&copy, on, &model);
                    copy.end(on).unwrap();
                    // And the root table.
                    assert_eq!(k as u32, space.areas().frames() + 1);
                    break;
                }
                assert_eq!(host.frames().counts().free, free, "a copy that failed at frame {k} kept some");
                drop(starved);
            }
            space.end(on).unwrap();
            host.audit().unwrap();
        }
    });
}

#[test]
fn an_area_does_not_grow_into_the_next() {
    on_machine(4, |_, on| {
        let mut space = Space::<X>::new(on).unwrap();
        let mut model = Model::new();
        apply(&mut space, on, &mut model, &Op::Insert(10, 2, 3, 0)).unwrap();
        apply(&mut space, on, &mut model, &Op::Insert(13, 2, 1, 0)).unwrap();
        let grown = space.edit(on).unwrap().mremap(range(10, 2), range(10, 4), false);
        assert!(matches!(grown, Err(AreaError::Overlap(_))));
        check(&space, on, &model);
        space.end(on).unwrap();
    });
}

/// As `check`, but areas may be cut where they were going to be changed.
fn check_pages<M: SpaceMachine>(space: &Space<X>, on: On<'_, M>, model: &Model) {
    let mut pages = Model::new();
    for a in list(space, on) {
        pages.extend((a.start / PAGE..a.end / PAGE).map(|p| (p, shows(&a, p))));
    }
    assert_eq!(&pages, model);
}

#[test]
fn flags_of_areas_are_printed_by_their_letters() {
    let printed = |flags: AreaFlags| format!("{flags:?}");
    assert_eq!(printed(AreaFlags::default()), "-----------");
    assert_eq!(printed(AreaFlags::READ.with(AreaFlags::EXEC)), "r-x--------");
    assert_eq!(printed(AreaFlags::WRITE.with(AreaFlags::SHARED).with(AreaFlags::LARGE)), "-w-s-------+large");
}
