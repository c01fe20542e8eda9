//! Each recording pins the faults that blocks leave.
use super::BlockSizes;
use crate::price::Answer;
use crate::price::tests::{END, START, answer, map, write};
use ptarmigan_trace::Kind;

fn value(answer: &Answer, name: &str) -> f64 {
    let figure = answer.figures.iter().find(|figure| figure.name == name);
    figure.unwrap_or_else(|| panic!("no {name}")).value
}

fn priced(kinds: impl IntoIterator<Item = Kind>) -> Answer {
    let events: Vec<(u32, Kind)> = kinds.into_iter().chain([END]).map(|kind| (0, kind)).collect();
    answer(&events, BlockSizes::default()).expect("an answer")
}

const GROWN: &str = "faults saved at 2M with heaps in steps of 2M";

#[test]
fn a_mapping_has_a_fault_for_each_block() {
    let found = priced([map(START, 1024)].into_iter().chain((0..1024).map(|page| write(START + page))));
    assert_eq!(value(&found, "faults on anonymous memory"), 1024.0);
    assert_eq!(value(&found, "faults saved at 64K"), 100.0 * 960.0 / 1024.0);
    assert_eq!(value(&found, "faults saved at 2M"), 100.0 * 1022.0 / 1024.0);
    assert_eq!(value(&found, GROWN), 100.0 * 1022.0 / 1024.0);
}

#[test]
fn a_heap_in_small_steps_has_room_for_small_blocks_only() {
    // Steps of 128 KiB, each filled before the next.
    let steps = (0..32).flat_map(|step| {
        let start = START + 32 * step;
        [Kind::Brk { end: start + 32 }].into_iter().chain((0..32).map(move |page| write(start + page)))
    });
    let found = priced([Kind::Brk { end: START }].into_iter().chain(steps));
    assert_eq!(value(&found, "faults saved at 128K"), 100.0 * (1024.0 - 32.0) / 1024.0);
    assert_eq!(value(&found, "faults saved at 2M"), 0.0);
    assert_eq!(value(&found, GROWN), 100.0 * 1022.0 / 1024.0);
}
