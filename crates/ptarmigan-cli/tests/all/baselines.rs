//! `--save` and `--compare`, with the built program.
use crate::program::{Ran, Temporary, program, run};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A directory for baselines, which goes at the end.
struct Place(Temporary);

impl Place {
    fn new(name: &str) -> Self {
        Place(Temporary::new(name))
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(program(args).env("PTARMIGAN_BASELINES", self.0.path()))
    }

    fn good(&self, args: &[&str]) -> String {
        self.run(args).good()
    }

    /// Returns the line with which a run is refused.
    fn refused(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!((ran.status, ran.err.lines().count()), (Some(1), 1), "{args:?}: {}", ran.err);
        ran.err
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.0.join(format!("{name}.json"))
    }
}

const REPLAY: [&str; 4] = ["replay", "fixture", "--policy", "ptarmigan"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&REPLAY[..], more].concat()
}

#[test]
fn a_replay_is_compared_with_a_saved_one() {
    let place = Place::new("replay");
    place.good(&with(&["--save", "before"]));
    let text = place.good(&with(&["--compare", "before"]));
    assert!(text.contains("against baseline before"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let allocs = text.lines().find(|line| line.contains("ptarmigan/pte allocs")).expect("a row");
    assert!(allocs.ends_with("+0.0 %"), "the same trace makes as many tables: {allocs}");
    // The same figures are in the document, and a run may compare and save at once.
    let text = place.good(&with(&["--compare", "before", "--save", "before", "--json"]));
    let document: Value = serde_json::from_str(&text).expect("one JSON document");
    let figures = document["comparison"]["figures"].as_array().expect("figures");
    let is_pte = |one: &&Value| one["what"] == "allocs" && one["of"] == "fixture/ptarmigan/pte";
    let allocs = figures.iter().find(is_pte).expect("allocations");
    assert_eq!(allocs["ratio"], 1.0, "{allocs}");
    assert!(document["runs"][0]["levels"]["pte"]["allocs"].as_f64() == allocs["now"].as_f64());
}

#[test]
fn other_options_commands_and_traces_are_refused_at_once() {
    let place = Place::new("refused");
    place.good(&with(&["--save", "one"]));
    let line = place.refused(&with(&["--compare", "one", "--nodes", "2"]));
    assert!(line.contains("--nodes was 1 and is 2"), "{line}");
    let line = place.refused(&["bench", "faults", "--compare", "one"]);
    assert!(line.contains("it is of `replay`, this run is `bench faults`"), "{line}");
    let line = place.refused(&["replay", "fixture", "--policy", "plain", "--compare", "one"]);
    assert!(line.contains("has no figure of this run"), "{line}");
    // Options that decide no figure may differ.
    place.good(&with(&["--compare", "one", "--sanitize", "--counters"]));
}

#[test]
fn unknown_names_get_the_nearest_and_bad_ones_the_rule() {
    let place = Place::new("names");
    let line = place.refused(&with(&["--compare", "before"]));
    assert!(line.contains("make one with --save before"), "{line}");
    place.good(&with(&["--save", "before"]));
    let line = place.refused(&with(&["--compare", "befor"]));
    assert!(line.contains("did you mean before?"), "{line}");
    for name in ["../x", "", ".x", "a b", "-"] {
        let ran = place.run(&with(&[&format!("--save={name}")]));
        assert_eq!(ran.status, Some(2), "{name}: {}", ran.err);
    }
}

#[test]
fn damaged_and_newer_files_are_refused_and_stay() {
    let place = Place::new("damaged");
    std::fs::create_dir_all(&place.0.0).expect("a directory");
    let cases = [
        ("text", "hello", "no baseline"),
        ("newer", r#"{"schema": 2}"#, "schema 2; this program reads schema 1"),
        ("cut", r#"{"schema": 1, "version": "0.1.0"}"#, "no baseline"),
    ];
    for (name, content, expected) in cases {
        std::fs::write(place.file(name), content).expect("a file");
        let line = place.refused(&with(&["--compare", name]));
        assert!(line.contains(expected), "{name}: {line}");
    }
    std::fs::create_dir(place.file("directory")).expect("a directory");
    let line = place.refused(&with(&["--save", "directory"]));
    assert!(line.contains("a directory; name a regular file"), "{line}");
    std::os::unix::fs::symlink(Path::new("/dev/null"), place.file("link")).expect("a link");
    assert!(place.refused(&with(&["--save", "link"])).contains("a device; name a regular file"));
}

#[test]
fn benchmarks_are_compared_row_by_row() {
    let place = Place::new("bench");
    let bench = ["faults", "--rounds", "1"];
    place.good(&[&["bench"], &bench[..], &["--save", "m"]].concat());
    let text = place.good(&[&["bench", "--compare", "m"], &bench[..]].concat());
    assert!(text.contains("disjoint/one-thread"), "{text}");
    let text = place.good(&[&["bench"], &bench[..], &["--json", "--compare", "m"]].concat());
    let document: Value = serde_json::from_str(&text).expect("one JSON document");
    let figures = document["comparison"]["figures"].as_array().expect("figures");
    assert!(!figures.is_empty() && figures.iter().all(|one| one["before"].as_f64() > Some(0.0)));
}

#[test]
fn a_place_that_cannot_be_written_is_one_line() {
    let place = Place::new("unwritable");
    std::fs::write(&place.0.0, "a file").expect("a file");
    let ran = place.run(&with(&["--save", "x"]));
    assert_eq!((ran.status, ran.err.lines().count()), (Some(1), 1), "{}", ran.err);
}
