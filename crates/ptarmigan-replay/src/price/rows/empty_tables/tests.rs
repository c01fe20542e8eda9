//! Recordings that pin the counts, and replays that give the tables back.
use super::*;
use crate::price::tests::{END, START, answer, map, write};
use crate::price::{Figure, price};
use crate::setup::SoloTrace;
use ptarmigan_bench::clock::Clock;
use ptarmigan_trace::CloneKind;
use std::path::Path;
use std::time::Duration;

const MEMORY: u64 = 1 << 30;

fn give_up(start: u64, pages: u64) -> (u32, Kind) {
    (0, Kind::Madvise { start, pages, advice: libc::MADV_DONTNEED as u16 })
}

/// Returns all figures, in their order: tables left empty, filled again, copied, at once, at the
/// end, given back by covering calls, and made again.
fn figures(events: &[(u32, Kind)]) -> [f64; 7] {
    let events = [&[(0, map(START, 2048))], events, &[(0, END)]].concat();
    values(&answer(&events, EmptyTables::default()).unwrap().figures)
}

fn values(figures: &[Figure]) -> [f64; 7] {
    std::array::from_fn(|n| figures[n].value)
}

#[test]
fn the_last_page_of_a_table_leaves_it_empty() {
    let writes = [(0, write(START)), (0, write(START + 1)), (0, write(START + REGION))];
    let first = [&writes[..], &[give_up(START, 1)]].concat();
    assert_eq!(figures(&first), [0.0; 7], "a page is left in the table");
    let second = [&first[..], &[give_up(START + 1, 1)]].concat();
    assert_eq!(figures(&second), [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    let filled = [&second[..], &[(0, write(START + 9))]].concat();
    assert_eq!(figures(&filled), [1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    let both = [&filled[..], &[give_up(START + 9, 1), give_up(START + REGION, 3)]].concat();
    assert_eq!(figures(&both), [3.0, 1.0, 0.0, 2.0, 2.0, 0.0, 0.0]);
}

#[test]
fn a_call_that_covers_a_table_gives_it_back() {
    let covered = [(0, write(START)), give_up(START, REGION)];
    assert_eq!(figures(&covered), [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    let again = [&covered[..], &[(0, write(START + 1))]].concat();
    assert_eq!(figures(&again), [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    // It was empty before.
    let empty = [(0, write(START)), give_up(START, 1), give_up(START, REGION), (0, write(START))];
    assert_eq!(figures(&empty), [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn a_fork_copies_empty_tables() {
    let fork = (0, Kind::Clone { child: 1, kind: CloneKind::Fork });
    let events = [(0, write(START)), give_up(START, 1), fork, (1, write(START + 2)), (1, END)];
    assert_eq!(figures(&events), [1.0, 1.0, 1.0, 2.0, 1.0, 0.0, 0.0]);
}

/// A replay that gives each empty table back makes the tables again that the row counts, and one
/// that keeps them makes fewer.
#[test]
fn replays_with_other_rules_agree_with_the_counts() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/rustc.ptrace");
    let solo = SoloTrace::read(Some(&path)).unwrap();
    let clock = Clock::calibrate();
    let replay = |empty_tables| {
        solo.count(&CountedMachine { empty_tables, ..CountedMachine::usual(MEMORY) }, clock).unwrap()
    };
    let [kept, covered, freed] = [Rule::Kept, Rule::Covered, Rule::Freed].map(replay);
    let prices = Default::default();
    let rows: Vec<Box<dyn Row>> = vec![Box::new(EmptyTables::default())];
    let priced = price(&solo, MEMORY, rows, &prices, Duration::from_secs(600)).unwrap();
    let answer = priced.rows[0].answer.as_ref().unwrap();
    let figures = values(&answer.figures);
    let [emptied, refilled, copied, peak, _, _, again] = figures;
    assert_eq!([emptied, refilled, peak], [375.0, 126.0, 37.0]);
    let more = |run: CountedRun, than: CountedRun| run.leaves_made as f64 - than.leaves_made as f64;
    // A table that is not there is not copied by a fork either.
    let judged = Judgement { what: "more leaf tables made", counted: refilled - copied, replayed: 113.0 };
    assert_eq!(answer.judgement, Some(judged));
    assert_eq!([judged.counted, more(freed, covered)], [113.0; 2]);
    assert_eq!(more(covered, kept), again);
    // Tables of upper levels go, too; others would go later, when their areas do.
    let gone = freed.freed_by_calls() as f64 - covered.freed_by_calls() as f64;
    assert!((0.9 * emptied..1.1 * emptied).contains(&gone), "{gone}");
    assert!(freed.peak < covered.peak && covered.peak < kept.peak, "{freed:?} {covered:?} {kept:?}");
}
