//! Advice on arrays that grow by a copy, and what only looks like one.
use crate::advise::{BASE, EXEC, advice, figure, kinds, made, map, piece, reason, write};
use ptarmigan_trace::{Kind, Name};
use serde_json::Value;

/// Maps ten mappings, each longer and touched as far as `fills` says from the lengths of the one
/// before and of its own; the one before goes, and the new one is filled.
fn steps(fills: impl Fn(u64, u64) -> u64) -> Vec<(u32, Kind)> {
    let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new("app")))];
    let mut before = (0, 0);
    for round in 1..=10 {
        let (start, pages) = (BASE + round * 4096, round * 100);
        events.push((0, map(start, pages)));
        let filled = fills(before.1, pages);
        events.extend((start..start + filled).map(|page| (0, write(page))));
        if before.1 > 0 {
            events.push((0, Kind::Munmap { start: before.0, pages: before.1 }));
        }
        events.extend((start + filled..start + pages).map(|page| (0, write(page))));
        before = (start, pages);
    }
    events
}

fn report(name: &str, mut events: Vec<(u32, Kind)>) -> Value {
    events.push((0, Kind::Exit { last: true }));
    advice(&made(name, |_| {}, 0, &events).0, &["--for", "program"])
}

#[test]
fn an_array_that_grows_by_copies_is_moved() {
    let found = report("copied", steps(|before, _| before));
    assert_eq!(kinds(&found)[0], "growth", "{found:#}");
    let one = piece(&found, "growth");
    // 100 to 900 pages are copied: all but the last 100 of each mapping.
    assert_eq!(one["saved"]["faults"], 4_500, "{one:#}");
    assert!(figure(one).starts_with("9 steps by a copy: a longer mapping of up to 3.9 MiB"), "{one:#}");
    assert_eq!(one["expect"][0]["with"], 1_000.0, "{one:#}");
}

#[test]
fn buffers_that_are_filled_in_turns_do_not_grow() {
    let buffers = report("turns", steps(|_, pages| pages));
    assert!(!kinds(&buffers).contains(&"growth"), "the longer one has contents of its own: {buffers:#}");
    let fresh = report("fresh", steps(|_, _| 0));
    assert!(!kinds(&fresh).contains(&"growth"), "the longer one is empty: {fresh:#}");
}

#[test]
fn an_array_that_is_used_beside_its_copy_does_not_move() {
    let mut events = steps(|before, _| before);
    // Each shorter mapping gets a page while the longer one is there.
    for at in (0..events.len()).rev() {
        if let (0, Kind::Munmap { start, .. }) = events[at] {
            events.insert(at, (0, write(start)));
        }
    }
    let found = report("both", events);
    assert!(!kinds(&found).contains(&"growth"), "{found:#}");
}

#[test]
fn one_step_is_no_chain() {
    let events = steps(|before, _| before);
    let second = events.iter().filter(|(_, kind)| matches!(kind, Kind::Munmap { .. })).nth(1);
    let end = events.iter().position(|event| Some(event) == second).expect("two steps");
    let found = report("one", events[..end].to_vec());
    assert!(reason(&found, "growth").starts_with("no program often copies"), "{found:#}");
}

#[test]
fn arrays_that_grow_at_the_same_time_are_told_apart() {
    let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new("app")))];
    let place = |array: u64, round: u64| BASE + array * 4096 + round * 600;
    let touched = |array: u64, round: u64, pages: std::ops::Range<u64>| {
        pages.map(move |page| (0, write(place(array, round) + page)))
    };
    for round in 1..=6 {
        let arrays = [0, 1];
        events.extend(arrays.map(|array| (0, map(place(array, round), round * 100))));
        arrays.iter().for_each(|array| events.extend(touched(*array, round, 0..(round - 1) * 100)));
        for array in arrays.into_iter().filter(|_| round > 1) {
            events.push((0, Kind::Munmap { start: place(array, round - 1), pages: (round - 1) * 100 }));
        }
        arrays.iter().for_each(|array| events.extend(touched(*array, round, (round - 1) * 100..round * 100)));
    }
    let found = report("two", events);
    assert_eq!(piece(&found, "growth")["saved"]["faults"], 3_000, "{found:#}");
}
