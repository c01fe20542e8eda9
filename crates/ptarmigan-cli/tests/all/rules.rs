//! Small recordings, one for each rule of Linux that the replay follows, compared with Linux's own
//! counts of tables. `../README.md` lists the rules.
use crate::program::{crate_file, ptarmigan, text};
use std::path::PathBuf;

fn folder() -> PathBuf {
    crate_file("tests/rules").into()
}

/// Names of the recordings, without the extension.
fn recordings() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("the folder is there");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let traces = files.filter(|file| file.extension().is_some_and(|e| e == "ptrace"));
    let mut names: Vec<String> =
        traces.filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    names
}

/// Returns the complaint of the replay about one recording, if a count is not as Linux has it.
fn complaint(name: &str) -> Option<String> {
    let trace = folder().join(name).with_extension("ptrace");
    let ran = ptarmigan(&["replay", text(&trace), "--policy", "ptarmigan", "--sanitize", "--json"]);
    if ran.status != Some(0) {
        return Some(format!("{name}: {}", ran.err));
    }
    let report = ran.json();
    let run = &report["runs"][0];
    let truth = &run["truth"];
    let right = truth["checked"].as_u64() > Some(0)
        && truth["equal"] == truth["checked"]
        && truth["tables_from_stops"] == 0
        && run["sanitizer"]["findings"] == 0
        && run["odd_calls"] == 0
        && report["trace"]["lost"] == 0;
    (!right).then(|| format!("{name}: {truth}; {}; {}", run["first_odd_call"], run["sanitizer"]))
}

#[test]
#[ignore = "replays whole traces: cargo xtask ci tests-long"]
fn every_recording_has_as_many_tables_as_linux_counted() {
    let recordings = recordings();
    assert!(!recordings.is_empty());
    let complaints: Vec<String> = recordings.iter().filter_map(|name| complaint(name)).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_case_has_a_recording_and_a_line_in_the_readme() {
    let read = |file: &str| std::fs::read_to_string(folder().join(file)).expect("it is there");
    let source = read("rules.c");
    let in_source = source.lines().filter_map(|line| line.trim().strip_prefix("CASE(")?.strip_suffix("),"));
    let mut cases: Vec<&str> = in_source.collect();
    cases.sort_unstable();
    assert_eq!(recordings(), cases);
    let readme = read("../README.md");
    let in_readme = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(".ptrace`"));
    let mut lines: Vec<&str> = in_readme.map(|(name, _)| name).collect();
    lines.sort_unstable();
    assert_eq!(lines, cases);
}
