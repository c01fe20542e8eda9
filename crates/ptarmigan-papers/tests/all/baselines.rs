//! `--save` and `--compare`, with the built program.
use crate::program::{Temporary, program, run};
use serde_json::Value;

#[test]
fn benchmarks_are_compared_row_by_row() {
    let place = Temporary::new("papers");
    let good = |args: &[&str]| run(program(args).env("PTARMIGAN_BASELINES", place.path())).good();
    good(&["migration", "--save", "m"]);
    let text = good(&["--compare", "m", "migration"]);
    assert!(text.contains("2 nodes/ptarmigan/1 children kept"), "{text}");
    let text = good(&["migration", "--json", "--compare", "m"]);
    let document: Value = serde_json::from_str(&text).expect("one JSON document");
    let figures = document["comparison"]["figures"].as_array().expect("figures");
    assert!(figures.iter().all(|one| one["before"] == one["now"]));
}
