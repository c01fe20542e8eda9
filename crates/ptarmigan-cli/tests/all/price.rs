//! `ptarmigan price`: each proposal has an answer or a reason, and each form of output holds them.
use crate::advise::{BASE, EXEC, made, map, write};
use crate::advise_huge::model;
use crate::program::{Ran, Temporary, crate_file, fed, program, ptarmigan, shipped, text, undocumented};
use ptarmigan_trace::{Event, Header, Kind, Method, Unseen, Writer};
use serde_json::Value;

/// A replay with the mechanism may differ by this part.
const WITHIN: f64 = 0.1;
const END: Kind = Kind::Exit { last: true };

/// Runs `ptarmigan price` with stored prices, so that no page of this machine is measured.
fn price(args: &[&str]) -> Ran {
    let model = model(100.0, |_| ());
    ptarmigan(&[&["price", "--model", text(&model.0)], args].concat())
}

/// Returns the prices of a shipped recording.
pub fn prices(file: &str) -> Value {
    of(&price(&[&shipped(file), "--json"]).json())
}

fn of(document: &Value) -> Value {
    assert_eq!(document["schema"], 1);
    let missing = undocumented(document);
    assert!(missing.is_empty(), "docs/json.md lacks {missing:?}");
    document["traces"][0].clone()
}

fn list<'v>(trace: &'v Value, name: &str) -> &'v Vec<Value> {
    trace[name].as_array().expect("a list")
}

/// Returns the answer of a row.
pub fn row<'v>(trace: &'v Value, name: &str) -> &'v Value {
    let found = list(trace, "answered").iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {trace:#}"))
}

/// Returns the reason why a row has no answer.
fn refused<'v>(trace: &'v Value, name: &str) -> &'v str {
    let found = list(trace, "refused").iter().find(|row| row["name"] == name);
    found.and_then(|row| row["reason"].as_str()).unwrap_or_else(|| panic!("no {name} in {trace:#}"))
}

/// Returns the names that `--list` prints.
fn names() -> Vec<String> {
    let list = ptarmigan(&["price", "--list"]).good();
    let heads = list.lines().filter(|line| !line.starts_with(' '));
    heads.filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect()
}

/// Checks that each row has finite figures and sentences, or a reason.
fn complete(trace: &Value) {
    let (answered, refused) = (list(trace, "answered"), list(trace, "refused"));
    let mut seen: Vec<_> =
        answered.iter().chain(refused).filter_map(|row| Some(row["name"].as_str()?.to_owned())).collect();
    let mut names = names();
    seen.sort_unstable();
    names.sort_unstable();
    assert!(names.len() >= 13 && seen == names, "{seen:?}, but {names:?} are listed");
    for row in refused {
        let reason = row["reason"].as_str().expect("a text");
        assert!(!reason.is_empty() && !reason.ends_with('.') && !reason.contains("panicked"), "{row:#}");
    }
    for row in answered {
        for part in ["counted", "cost", "when_not", "today"] {
            let sentence = row[part].as_str().expect("a text");
            assert!(sentence.ends_with('.') && !sentence.contains("NaN"), "{part}: {row:#}");
        }
        assert!(list(row, "figures").iter().all(|figure| figure["value"].is_number()), "{row:#}");
    }
    let shares: Vec<_> = answered.iter().filter_map(|row| row["share"].as_f64()).collect();
    assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
}

/// Checks a shipped recording, and the rows that a replay judges.
fn shipped_is_complete(name: &str) {
    let trace = prices(name);
    complete(&trace);
    let mut judged = Vec::new();
    for row in list(&trace, "answered") {
        let Some([counted, replayed]) = row
            .get("judgement")
            .map(|of| ["counted", "replayed"].map(|name| of[name].as_f64().expect("a count")))
        else {
            continue;
        };
        let off = (counted - replayed).abs() / replayed.abs().max(1.0);
        assert!(off <= WITHIN, "{name}, {}: {counted} counted, {replayed} replayed", row["name"]);
        judged.push(row["name"].as_str().expect("a name"));
    }
    judged.sort_unstable();
    assert_eq!(judged, ["blocks", "empty-tables"], "{name}");
}

#[test]
fn every_row_answers_or_says_why_of_the_fixture() {
    shipped_is_complete("fixture.ptrace");
}

#[test]
fn every_row_answers_or_says_why_of_forks() {
    shipped_is_complete("forkbig.ptrace");
}

#[test]
fn every_row_answers_or_says_why_of_a_compiler() {
    shipped_is_complete("rustc.ptrace");
}

#[test]
#[ignore = "replays millions of events: cargo xtask ci tests-long"]
fn every_row_answers_or_says_why_of_whole_builds() {
    ["configure.ptrace", "linux-build.ptrace", "compile.ptrace"]
        .iter()
        .for_each(|name| shipped_is_complete(name));
}

#[test]
fn an_unknown_name_costs_its_own_answer_only() {
    let fixture = shipped("fixture.ptrace");
    let ran = price(&[&fixture, "--only", "kpti,block,svvptc"]);
    assert_eq!((ran.status, ran.err.lines().count()), (Some(1), 1), "{}", ran.err);
    assert!(ran.err.contains("no proposal is called \"block\"; did you mean blocks?"), "{}", ran.err);
    assert!(ran.out.contains("1. svvptc: ") && ran.out.contains("\n   kpti: "), "{}", ran.out);
    assert!(!ran.out.contains("blocks"), "{}", ran.out);
    let ran = price(&[&fixture, "--only", "svvptc,nothing-like-it", "--json"]);
    let document: Value = serde_json::from_str(&ran.out).expect("one document");
    assert_eq!((ran.status, list(&of(&document), "answered").len()), (Some(1), 1), "{}", ran.err);
    for only in ["block", "block,nothing-like-it"] {
        let ran = price(&[&fixture, "--only", only]);
        assert_eq!((ran.status, ran.out.as_str(), ran.err.lines().count()), (Some(1), "", 1), "{}", ran.err);
    }
}

/// Makes a recording with this name of a program that fills memory.
fn named(name: &str) -> Temporary {
    let events = [(0, EXEC), (0, map(BASE, 9)), (0, write(BASE)), (0, write(BASE + 1)), (0, END)];
    made("named", |header| *header = Header::new(name, 1, Method::Synthetic), 3, &events)
}

#[test]
fn a_document_has_the_names_and_no_figure_that_is_none() {
    let (one, two) = (named("<b>|x"), named("=1+1"));
    let ran = price(&[one.path(), two.path(), "--json"]).good();
    assert!(!ran.contains("NaN") && !ran.contains("inf"), "{ran}");
    let document: Value = serde_json::from_str(&ran).expect("one document");
    of(&document);
    let traces = list(&document, "traces");
    let name = |at: usize| (traces[at]["name"].as_str(), traces[at]["lost"].as_u64());
    assert_eq!((traces.len(), name(0), name(1)), (2, (Some("<b>|x"), Some(3)), (Some("=1+1"), Some(3))));
    assert!(document["prices"]["small"]["fresh"].as_f64() > Some(0.0));
    traces.iter().for_each(complete);
}

#[test]
fn a_table_of_markdown_has_no_markup_of_names() {
    let (one, two) = (named("<b>|x"), named("=1+1"));
    let page = price(&[one.path(), two.path(), "--markdown"]).good();
    assert!(page.starts_with("## &lt;b&gt;\\|x\n\nThe recorder lost 3 events.\n\n| proposal |"), "{page}");
    assert!(page.contains("\n\n## =1+1\n") && !page.contains('<'), "{page}");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 2 * (names().len() + 2), "{page}");
    for row in rows {
        assert_eq!(row.replace("\\|", "").matches('|').count(), 7, "{row}");
    }
}

#[test]
fn a_cell_of_csv_is_no_formula() {
    let (one, two) = (named("=1+1"), named("a,\"b\""));
    let csv = price(&[one.path(), two.path(), "--csv"]).good();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("trace,row,share,figure,value,unit"));
    let (first, second): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("'=1+1,"));
    assert!(!first.is_empty() && first.len() == second.len(), "{csv}");
    for line in second {
        let cells = line.strip_prefix("\"a,\"\"b\"\"\",").unwrap_or_else(|| panic!("{line}"));
        let [row, share, _, value, unit] = cells.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!(names().iter().any(|name| name == row) && !unit.is_empty(), "{line}");
        assert!(share.is_empty() || share.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
        assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
    }
}

#[test]
fn lines_fit_80_columns_in_a_pipe() {
    let bytes = std::fs::read(shipped("fixture.ptrace")).expect("it is shipped");
    let (model, named) = (model(100.0, |_| ()), named("<b>|x"));
    let mut command = program(&["price", "--memory", "256M", "--model", text(&model.0), named.path(), "-"]);
    let two = fed(&mut command, &bytes).good();
    assert!(two.starts_with("<b>|x: 2 faults, 0 forks, 2 spaces; "), "{two}");
    assert!(
        two.contains("\nThe recorder lost 3 events.\n") && two.contains("\n\nfixture: 452 faults, "),
        "{two}"
    );
    for text in [two, ptarmigan(&["price", "--list"]).good()] {
        assert_eq!(text.lines().find(|line| line.chars().count() > 80), None);
        assert!(!text.contains('\u{1b}'), "no colours in a pipe");
    }
}

#[test]
fn inputs_that_cannot_be_used_are_one_line_and_a_failure() {
    let bytes = std::fs::read(crate_file("tests/advise/empty.ptrace")).expect("it is shipped");
    let cut = Temporary::file("cut.ptrace", &bytes[..bytes.len() / 2]);
    let odd = Temporary::file("odd.ptrace", "no trace");
    let fixture = shipped("fixture.ptrace");
    let cases: [(&[&str], &str); 6] = [
        (&[cut.path()], "truncated"),
        (&[odd.path()], "not a trace"),
        (&["compil"], "did you mean compile?"),
        (&["-", "-"], "standard input has one trace"),
        (&[&fixture, "-", "-", "--json"], "standard input has one trace"),
        (&[&fixture, cut.path(), "--json"], "truncated"),
    ];
    for (args, why) in cases {
        let Ran { status, out, err } = price(args);
        assert_eq!((status, out.as_str(), err.lines().count()), (Some(1), "", 1), "{args:?}: {err}");
        assert!(err.contains(why), "{args:?}: {err}");
    }
    for (model, why) in [("linux-33", "it has no prices of pages"), ("linx-33", "did you mean linux-33?")] {
        let Ran { status, out, err } = ptarmigan(&["price", &fixture, "--model", model]);
        assert_eq!((status, out.as_str(), err.lines().count()), (Some(1), "", 1), "{model}: {err}");
        assert!(err.contains(why), "{model}: {err}");
    }
    for args in [&["price"][..], &["price", "--list", "fixture"], &["price", "fixture", "--csv", "--json"]] {
        assert_eq!(ptarmigan(args).status, Some(2), "{args:?}");
    }
}

#[test]
fn a_recording_without_faults_gets_finite_answers() {
    for events in [&[(0, EXEC), (0, END)][..], &[(0, END)], &[]] {
        let trace = of(&price(&[made("idle", |_| {}, 0, events).path(), "--json"]).json());
        complete(&trace);
        assert_eq!(trace["faults"], 0, "{trace:#}");
        assert_eq!(refused(&trace, "blocks"), "no fault on anonymous memory is in the recording");
    }
}

#[test]
fn a_recording_by_perf_has_no_requests_to_count() {
    let file = made(
        "perf",
        |header| {
            header.method = Method::Perf;
            header.unseen = Unseen(Unseen::FAULT_ACCESS | Unseen::KERNEL_FAULTS | Unseen::TLB_FLUSHES);
        },
        0,
        &[(0, map(BASE, 9)), (0, write(BASE)), (0, END)],
    );
    let trace = of(&price(&[file.path(), "--json"]).json());
    complete(&trace);
    assert_eq!(trace["method"], "perf");
    for name in ["requests", "deferred-flush"] {
        assert_eq!(refused(&trace, name), "the recording has no flushes of TLBs");
    }
}

#[test]
fn blocks_that_were_on_leave_no_faults_to_count() {
    let mut writer = Writer::new(Vec::new(), &Header::new("on", 1, Method::Synthetic), 3).expect("a header");
    writer.setting("enabled", "madvise").expect("a setting");
    writer.setting("hugepages-64kB/enabled", "always").expect("a setting");
    for kind in [EXEC, map(BASE, 64), write(BASE), write(BASE + 16), END] {
        writer.event(&Event { task: 0, cpu: 0, kind }).expect("an event");
    }
    let file = Temporary::file("on.ptrace", writer.finish(0).expect("a trace").0);
    let trace = of(&price(&[file.path(), "--json"]).json());
    complete(&trace);
    let why = refused(&trace, "blocks");
    assert!(why.starts_with("the recorded machine filled blocks or huge pages by itself"), "{why}");
}
