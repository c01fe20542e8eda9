use super::*;
use crate::price::tests::{END, START, answer, write};
use ptarmigan_trace::{CloneKind, MapFlags, Prot};

/// A mapping of a file.
fn file(start: u64, pages: u64) -> Kind {
    Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(0) }
}

fn read(page: u64) -> Kind {
    Kind::Fault { page, flags: FaultFlags(FaultFlags::USER) }
}

/// The faults that each window spares, in percent.
fn saved(answer: &Answer) -> [f64; 5] {
    NAMES.map(|name| {
        let name = format!("faults saved at {name}");
        answer.figures.iter().find(|figure| figure.name == name).unwrap().value
    })
}

#[test]
fn a_larger_window_spares_the_faults_in_it() {
    let mut events = vec![(0, file(START, 300))];
    events.extend([0, 16, 40, 100, 200].map(|page| (0, read(START + page))));
    events.push((0, END));
    let found = answer(&events, FaultAround::default()).unwrap();
    assert_eq!(saved(&found), [0.0, 20.0, 40.0, 60.0, 80.0]);
    assert!(found.counted.starts_with("Windows of 512K spare at most 3 of 5 faults"), "{}", found.counted);
    assert_eq!((found.savings[0].unit, found.savings[0].count), (Unit::Fault, 3));
}

#[test]
fn writes_map_and_spare_nothing() {
    let events = [
        (0, file(START, 300)),
        (0, write(START)),
        (0, read(START + 1)),
        (0, write(START + 2)),
        (0, read(START + 3)),
        (0, END),
    ];
    let found = answer(&events, FaultAround::default()).unwrap();
    // The last one lies in the window of the first read, also in Linux's own: it was not in memory.
    assert_eq!(saved(&found), [25.0; 5]);
    assert!(found.when_not.starts_with("2 faults write"), "{}", found.when_not);
    assert!(found.when_not.contains("; 1 fault was in the 64K"), "{}", found.when_not);
}

#[test]
fn a_window_ends_with_its_area_and_its_mapping() {
    let events = [
        (0, file(START, 20)),
        (0, file(START + 20, 20)),
        (0, Kind::Mprotect { start: START + 20, pages: 20, prot: Prot(1) }),
        (0, read(START)),
        (0, read(START + 20)),
        // Another file is mapped there: none of the window's pages is left.
        (0, Kind::Munmap { start: START, pages: 20 }),
        (0, file(START, 20)),
        (0, read(START + 19)),
        (0, END),
    ];
    let found = answer(&events, FaultAround::default()).unwrap();
    assert_eq!(saved(&found), [0.0; 5]);
}

#[test]
fn a_fork_leaves_files_to_faults_unless_they_were_written() {
    let fork = (0, Kind::Clone { child: 1, kind: CloneKind::Fork });
    let of_child = |events: &[(u32, Kind)]| {
        let mut all = events.to_vec();
        all.extend([fork, (1, read(START + 17)), (1, END), (0, END)]);
        saved(&answer(&all, FaultAround::default()).unwrap())[1]
    };
    let mapped = [(0, file(START, 32)), (0, read(START))];
    assert_eq!(of_child(&mapped), 0.0);
    let written = [(0, file(START, 32)), (0, read(START)), (0, write(START + 1))];
    assert_eq!(of_child(&written), 100.0 / 3.0);
    // The table is copied for its neighbour, but without the file's pages.
    let other = [mapped[0], mapped[1], (0, crate::price::tests::map(START + 64, 8)), (0, write(START + 64))];
    assert_eq!(of_child(&other), 0.0);
}

#[test]
fn a_recording_without_files_cannot_tell() {
    let events = [(0, crate::price::tests::map(START, 8)), (0, write(START)), (0, END)];
    let refused = answer(&events, FaultAround::default()).unwrap_err();
    assert_eq!(refused, "no fault on a file or on shared memory is in the recording");
}
