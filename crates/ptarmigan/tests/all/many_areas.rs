//! A space has as many areas as under Linux, in whatever order they come and go.
use crate::common;
use common::small;
use fastrand::Rng;
use ptarmigan::addr::VirtRange;
use ptarmigan::format::X86_64;
use ptarmigan::machine::{Machine, On};
use ptarmigan::space::{AreaError, AreaFlags, MAX_AREAS, Space, SpaceMachine};
use ptarmigan_hosted::{Host, HostMachine, NoTlb};

const PAGE: u64 = 4096;
const BASE: u64 = 0x2_0000_0000;
/// Places for areas of a page, with a page between two of them.
const PLACES: u64 = 1 << 17;
const RW: AreaFlags = AreaFlags(3);
const MOST: usize = MAX_AREAS as usize;

fn page(at: u64) -> VirtRange {
    VirtRange::new(BASE + at * PAGE, BASE + (at + 1) * PAGE).unwrap()
}

macro_rules! on_space {
    (|$on:ident, $space:ident| $body:block) => {{
        let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
        let slots = host.slots();
        let machine = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
        let pin = slots[0].pin();
        let $on = machine.on(&pin).unwrap();
        let mut $space = Space::<X86_64>::new($on).unwrap();
        $body
        $space.end($on).unwrap();
        drop(machine);
        host.audit().unwrap();
    }};
}

/// All places in some order.
fn order(name: &str) -> Vec<u64> {
    let all = 0..PLACES;
    match name {
        "down" => all.rev().collect(),
        "outwards" => {
            all.map(|i| if i & 1 == 0 { PLACES / 2 - 1 - i / 2 } else { PLACES / 2 + i / 2 }).collect()
        }
        "inwards" => all.map(|i| if i & 1 == 0 { i / 2 } else { PLACES - 1 - i / 2 }).collect(),
        "bits reversed" => all.map(|i| i.reverse_bits() >> (64 - PLACES.trailing_zeros())).collect(),
        "stride" => all.map(|i| i * 64 % PLACES + i * 64 / PLACES).collect(),
        "mixed" => {
            let (mut places, mut rng): (Vec<u64>, _) = (all.collect(), Rng::with_seed(5));
            (0..places.len()).rev().for_each(|i| places.swap(i, rng.usize(..=i)));
            places
        }
        _ => all.collect(),
    }
}

/// Areas ascend, each is found, and there are as many as the space says.
fn check<M: SpaceMachine>(space: &Space<X86_64>, on: On<'_, M>) {
    let (mut n, mut end) = (0, 0);
    space
        .areas()
        .each(on, VirtRange::new(0, 1 << 47).unwrap(), |area| {
            assert!(area.start >= end && area.end > area.start, "{area:?}");
            (n, end) = (n + 1, area.end);
            assert_eq!(space.areas().find(on, area.end - 1), Some(*area));
        })
        .unwrap();
    assert_eq!(n, space.areas().len());
}

#[test]
fn a_space_has_as_many_areas_in_any_order() {
    for name in ["up", "down", "outwards", "inwards", "mixed", "bits reversed", "stride"] {
        on_space!(|on, space| {
            let places = order(name);
            let mut map = |at: u64| space.edit(on).unwrap().mmap(page(2 * at), RW, 0);
            let refused = places.iter().position(|at| map(*at).is_err());
            assert_eq!(refused, Some(MOST), "{name}");
            assert_eq!(map(places[MOST]), Err(AreaError::TooMany));
            check(&space, on);
            assert_eq!(space.areas().len(), MOST);
            // One that goes makes room for one.
            for at in [0, MOST / 2, MOST - 1].map(|i| places[i]) {
                space.edit(on).unwrap().munmap(page(2 * at)).unwrap();
                let mut map = |at: u64| space.edit(on).unwrap().mmap(page(2 * at), RW, 0);
                assert_eq!((map(places[MOST]), map(at)), (Ok(()), Err(AreaError::TooMany)), "{name}");
                space.edit(on).unwrap().munmap(page(2 * places[MOST])).unwrap();
                space.edit(on).unwrap().mmap(page(2 * at), RW, 0).unwrap();
            }
            // None is needed for an area that joins another.
            space.edit(on).unwrap().mmap(page(2 * places[0] + 1), RW, 0).unwrap();
            check(&space, on);
            let copy = space.edit(on).unwrap().fork().unwrap();
            check(&copy, on);
            copy.end(on).unwrap();
        });
    }
}

#[test]
fn cuts_end_where_there_are_as_many_areas() {
    for name in ["up", "down", "mixed", "bits reversed"] {
        on_space!(|on, space| {
            let all = VirtRange::new(BASE, BASE + 2 * PLACES * PAGE).unwrap();
            space.edit(on).unwrap().mmap(all, RW, 0).unwrap();
            let places = order(name);
            let mut protect = |at: u64| space.edit(on).unwrap().mprotect(page(2 * at + 1), AreaFlags::READ);
            let refused = places.iter().find(|at| protect(**at).is_err()).copied().unwrap();
            let had = space.areas().len();
            assert!(had + 2 > MOST && had <= MOST, "{name}: {had}");
            // A refused cut leaves no border behind, so that one call helps.
            for _ in 0..3 {
                let protected = space.edit(on).unwrap().mprotect(page(2 * refused + 1), AreaFlags::READ);
                assert_eq!((protected, space.areas().len()), (Err(AreaError::TooMany), had), "{name}");
                let removed = space.edit(on).unwrap().munmap(page(2 * refused + 1));
                assert_eq!((removed, space.areas().len()), (Err(AreaError::TooMany), had), "{name}");
            }
            // The first one may be at the end of all.
            space.edit(on).unwrap().mprotect(page(2 * places[1] + 1), RW).unwrap();
            space.edit(on).unwrap().mprotect(page(2 * refused + 1), AreaFlags::READ).unwrap();
            check(&space, on);
        });
    }
}

#[test]
fn areas_that_went_leave_room_for_as_many_others() {
    const FIRST: u64 = 64_500;
    for keep in [2, 8, 32, 60] {
        on_space!(|on, space| {
            for at in 0..FIRST {
                space.edit(on).unwrap().mmap(page(4 * at), RW, 0).unwrap();
            }
            for at in (0..FIRST).filter(|at| at % keep != 0) {
                space.edit(on).unwrap().munmap(page(4 * at)).unwrap();
            }
            let (left, frames) = (space.areas().len(), space.areas().frames() as usize);
            assert_eq!(left as u64, FIRST.div_ceil(keep));
            assert!(frames <= left / 24 + 2, "{frames} frames for {left} areas");
            for at in 0..20_000 {
                let new = page(4 * FIRST + 2 * at + (1 << 18));
                let mapped = space.edit(on).unwrap().mmap(new, RW, 0);
                assert_eq!(mapped, Ok(()), "1 of {keep} left, then {at} new ones");
            }
            check(&space, on);
            let copy = space.edit(on).unwrap().fork().unwrap();
            copy.end(on).unwrap();
        });
    }
}

#[test]
fn areas_that_come_and_go_at_random_are_as_many() {
    on_space!(|on, space| {
        let mut rng = Rng::with_seed(11);
        let mut mapped = vec![false; PLACES as usize];
        for step in 0..400_000 {
            // Now mostly new ones, now mostly removals, in clusters.
            let (grows, near) = (step / 60_000 % 2 == 0, rng.u64(..PLACES - 64));
            let at = near + rng.u64(..64);
            let (place, is_there) = (page(2 * at), mapped[at as usize]);
            if is_there && (!grows || rng.u64(..8) == 0) {
                space.edit(on).unwrap().munmap(place).unwrap();
                mapped[at as usize] = false;
            } else if !is_there && (grows || rng.u64(..8) == 0) {
                match space.edit(on).unwrap().mmap(place, RW, 0) {
                    Ok(()) => mapped[at as usize] = true,
                    Err(e) => assert_eq!((e, space.areas().len()), (AreaError::TooMany, MOST)),
                }
            }
        }
        check(&space, on);
        assert_eq!(mapped.iter().filter(|is_there| **is_there).count(), space.areas().len());
    });
}

#[test]
fn the_rest_of_a_leaf_that_is_split_joins_the_leaf_behind_it() {
    on_space!(|on, space| {
        // Two leaves, the first of them full, and the directory that lists them.
        let (mut last, mut frames) = (0, 1);
        while frames < 3 {
            last += 1;
            space.edit(on).unwrap().mmap(page(4 * last), RW, 0).unwrap();
            frames = space.areas().frames();
        }
        assert_eq!(frames, 3, "after {last} areas");
        // Before the last record of the first leaf, so that one goes to a leaf of its own.
        space.edit(on).unwrap().mmap(page(4 * (last - 2) + 2), RW, 0).unwrap();
        assert_eq!(space.areas().frames(), 3, "the last record lies beside the one of the second leaf");
        check(&space, on);
    });
}
