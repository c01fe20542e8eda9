use super::*;
use crate::Trace;
use crate::linux::Blocks;
use crate::price::price;
use crate::price::tests::{END, START, answer, map, recording, write};
use crate::setup::SoloTrace;
use ptarmigan_trace::{CloneKind, Prot};
use std::time::Duration;

fn values(answer: &Answer, name: &str) -> [f64; 2] {
    SIZES.map(|(_, size)| {
        let name = format!("{name} at {size}");
        answer.figures.iter().find(|figure| figure.name == name).unwrap().value
    })
}

const FORK: (u32, Kind) = (0, Kind::Clone { child: 1, kind: CloneKind::Fork });

#[test]
fn pages_that_share_one_fault_once() {
    let mut events = vec![(0, map(START, 18))];
    events.extend([0, 1, 4, 5, 16].map(|page| (0, write(START + page))));
    events.push((0, END));
    let found = answer(&events, BasePages::default()).unwrap();
    // Blocks 0, 4 and 16 of 16K, 0 and 16 of 64K.
    assert_eq!(values(&found, "faults saved"), [40.0, 60.0]);
    assert_eq!(values(&found, "first faults saved on anonymous memory"), [40.0, 60.0]);
    assert_eq!(values(&found, "pages allocated for each one touched"), [12.0 / 5.0, 32.0 / 5.0]);
    assert_eq!(values(&found, "tables made"), [3.0, 3.0]);
    assert_eq!(values(&found, "KiB of tables at once"), [48.0, 128.5]);
    // 18 pages are rounded up to 20 and to 32.
    assert_eq!(values(&found, "padding of areas"), [200.0 / 18.0, 1400.0 / 18.0]);
    assert!(
        found.when_not.contains("6.40 pages for each one now, and leaves 2 faults"),
        "{}",
        found.when_not
    );
}

#[test]
fn areas_do_not_share_a_page() {
    let events = [
        (0, map(START, 2)),
        (0, Kind::Mmap { start: START + 2, pages: 2, prot: Prot(3), flags: ptarmigan_trace::MapFlags(0) }),
        (0, write(START)),
        (0, write(START + 2)),
        (0, END),
    ];
    let found = answer(&events, BasePages::default()).unwrap();
    assert_eq!(values(&found, "faults saved"), [0.0, 0.0]);
}

#[test]
fn a_fork_has_the_next_write_copy_a_whole_page() {
    let pages = [0, 1, 2].map(|page| (0, write(START + page)));
    let copies = [0, 1].map(|page| (1, write(START + page)));
    let mut events = vec![(0, map(START, 16))];
    events.extend(pages);
    events.push(FORK);
    events.extend(copies);
    events.extend([(1, END), (0, END)]);
    let found = answer(&events, BasePages::default()).unwrap();
    // Two of five are left: the first of each space.
    assert_eq!(values(&found, "faults saved"), [60.0, 60.0]);
    assert_eq!(values(&found, "pages allocated for each one touched"), [8.0 / 5.0, 32.0 / 5.0]);
    // Three tables for each space, all at once.
    assert_eq!(values(&found, "tables made"), [6.0, 6.0]);
    assert_eq!(values(&found, "KiB of tables at once"), [96.0, 257.0]);
}

#[test]
fn writes_to_protected_pages_fault_again_once() {
    let protect = |prot| (0, Kind::Mprotect { start: START, pages: 16, prot: Prot(prot) });
    let writes = [(0, write(START)), (0, write(START + 1))];
    let mut events = vec![(0, map(START, 16))];
    events.extend(writes);
    events.extend([protect(1), protect(3)]);
    events.extend(writes);
    events.push((0, END));
    let found = answer(&events, BasePages::default()).unwrap();
    assert_eq!(values(&found, "faults saved"), [50.0, 50.0]);
    assert_eq!(values(&found, "first faults saved on anonymous memory"), [50.0, 50.0]);
}

#[test]
fn memory_that_was_given_back_faults_again() {
    let events = [
        (0, map(START, 16)),
        (0, write(START)),
        (0, Kind::Madvise { start: START, pages: 16, advice: libc::MADV_DONTNEED as u16 }),
        (0, write(START + 1)),
        (0, END),
    ];
    let found = answer(&events, BasePages::default()).unwrap();
    assert_eq!(values(&found, "faults saved"), [0.0, 0.0]);
}

#[test]
fn a_table_that_was_freed_is_made_again() {
    // Two leaf tables of 4 KiB pages lie in one of 16 KiB pages; both go before one comes back.
    let mut events = vec![(0, map(START, 1024)), (0, write(START)), (0, write(START + 512))];
    events.push((0, Kind::Munmap { start: START, pages: 512 }));
    events.push((0, Kind::Munmap { start: START + 512, pages: 512 }));
    events.extend([(0, map(START, 16)), (0, write(START)), (0, END)]);
    let found = answer(&events, BasePages::default()).unwrap();
    // The root stays.
    assert_eq!(values(&found, "tables made"), [5.0, 5.0]);
    assert_eq!(values(&found, "KiB of tables at once"), [48.0, 128.5]);
}

#[test]
fn a_recording_without_faults_cannot_tell() {
    let refused = answer(&[(0, map(START, 8)), (0, END)], BasePages::default()).unwrap_err();
    assert_eq!(refused, "no fault that maps a page is in the recording");
}

#[test]
fn blocks_of_the_recorded_kernel_are_there() {
    let events = [
        (0, map(START, 16)),
        (0, write(START + 1)),
        (0, write(START + 4)),
        // The rest of its block stays.
        (0, Kind::Madvise { start: START + 1, pages: 1, advice: libc::MADV_DONTNEED as u16 }),
        (0, Kind::Fault { page: START + 1, flags: FaultFlags(FaultFlags::USER) }),
        (0, END),
    ];
    let recorded = recording(&events).trace().clone();
    let solo = SoloTrace::new(Trace { blocks: Blocks::new(&[16], &[]), ..recorded });
    let rows: Vec<Box<dyn Row>> = vec![Box::new(BasePages::default())];
    let found = price(&solo, 1 << 28, rows, &Default::default(), Duration::from_secs(60)).unwrap();
    let found = found.rows.into_iter().next().unwrap().answer.unwrap();
    // Eight pages were cleared, by two faults; 64K clear sixteen by one. The read finds its page.
    assert_eq!(values(&found, "faults saved"), [100.0 / 3.0, 200.0 / 3.0]);
    assert_eq!(values(&found, "pages allocated for each one touched"), [1.0, 2.0]);
}
