//! Each recording pins the tables that are copied, and the faults that are spared.
use super::*;
use crate::price::tests::{END, START, answer, map, write};
use ptarmigan_trace::{CloneKind, FaultFlags, Kind, Prot};

fn fork(child: u32) -> (u32, Kind) {
    (0, Kind::Clone { child, kind: CloneKind::Fork })
}

/// Returns the answer for a program with eight pages, of which it writes four, before these events.
fn priced(events: &[(u32, Kind)]) -> Result<Answer, String> {
    let mut all = vec![(0, map(START, 8))];
    all.extend((0..4).map(|page| (0, write(START + page))));
    all.extend_from_slice(events);
    all.push((0, END));
    answer(&all, OnDemandFork::default())
}

/// Returns all figures, in their order: tables and entries that forks copy, tables and entries that
/// are copied later, tables by reason, faults on protected pages, spared, and lifting.
fn figures(events: &[(u32, Kind)]) -> Vec<f64> {
    priced(events).unwrap().figures.iter().map(|figure| figure.value).collect()
}

#[test]
fn a_write_copies_a_table_once_and_protects_its_pages() {
    // The parent is left alone with the table, but each of its pages has a copy in the child.
    let events = [fork(1), (1, write(START)), (1, write(START + 1)), (0, write(START + 2)), (1, END)];
    let events = [&events[..], &[(0, write(START + 3))]].concat();
    assert_eq!(figures(&events), [1.0, 4.0, 1.0, 4.0, 1.0, 0.0, 0.0, 4.0, 0.0, 0.0]);
}

#[test]
fn a_table_without_other_users_takes_one_fault() {
    let events = [fork(1), (1, END), (0, write(START)), (0, write(START + 1)), (0, write(START + 2))];
    assert_eq!(figures(&events), [1.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 2.0, 1.0]);
    let answer = priced(&events).unwrap();
    let savings: Vec<_> = answer.savings.iter().map(|saving| (saving.unit, saving.count)).collect();
    assert_eq!(savings, [(Unit::ForkedEntry, 4), (Unit::Fault, 2)]);
    assert!(answer.when_not.contains("later: 4 of 4 never are"), "{}", answer.when_not);
}

#[test]
fn a_new_page_lifts_the_protection_on_its_way() {
    let events = [fork(1), (1, END), (0, write(START + 5)), (0, write(START + 1))];
    assert_eq!(figures(&events)[7..], [1.0, 1.0, 0.0]);
    // With another fork the table is shared again, and one more fault lifts the protection.
    let again = [fork(2), (2, END), (0, write(START + 1)), (0, write(START + 2))];
    assert_eq!(figures(&[&events[..], &again].concat())[7..], [3.0, 2.0, 1.0]);
}

#[test]
fn pages_of_a_copied_table_fault_after_the_next_fork_too() {
    let events = [fork(1), (1, write(START)), (1, END), fork(2), (2, END)];
    let events =
        [&events[..], &[(0, write(START + 1)), (0, write(START + 1)), (0, write(START + 2))]].concat();
    assert_eq!(figures(&events)[7..], [3.0, 0.0, 0.0], "their entries are protected one by one");
}

#[test]
fn reads_and_calls_copy_tables_unless_the_table_goes() {
    let reads =
        [fork(1), (1, Kind::Fault { page: START + 6, flags: FaultFlags(FaultFlags::USER) }), (1, END)];
    assert_eq!(figures(&reads)[2..7], [1.0, 4.0, 0.0, 1.0, 0.0]);
    let call = |kind| figures(&[fork(1), (1, kind), (1, END)])[2..7].to_vec();
    let part = Kind::Madvise { start: START + 1, pages: 2, advice: libc::MADV_DONTNEED as u16 };
    let protects = |start| Kind::Mprotect { start, pages: 2, prot: Prot(1) };
    for kind in [part, Kind::Munmap { start: START, pages: 1 }, protects(START)] {
        assert_eq!(call(kind), [1.0, 4.0, 0.0, 0.0, 1.0], "{kind:?}");
    }
    // No page of the table, or no area, is left: there is nothing to copy.
    for kind in [protects(START + 5), Kind::Munmap { start: START, pages: 8 }] {
        assert_eq!(call(kind), [0.0; 5], "{kind:?}");
    }
}

#[test]
fn two_children_copy_for_themselves() {
    let forks = [fork(1), fork(2), (1, write(START)), (2, write(START))];
    let ends = [(1, END), (2, END)];
    assert_eq!(figures(&[&forks[..], &ends].concat())[..5], [2.0, 8.0, 2.0, 8.0, 2.0]);
}

#[test]
fn a_recording_without_forks_has_no_answer() {
    assert_eq!(priced(&[]).unwrap_err(), "none of its 0 forks copies a leaf table with pages");
}
