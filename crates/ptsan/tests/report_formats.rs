//! The formats of reports, their order, and findings that nobody looked at.
mod common;

use common::{Machine, RW};
use ptsan::{Adversary, Arch, Config, Flush, Format, Kind, Severity, Suppressions};
use serde_json::Value;
use std::process::{Command, Output};

const VA: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;
/// Set in a process that a test has started to see how it ends.
const INSIDE: &str = "PTSAN_TEST_INSIDE";

fn config() -> Config {
    Config::new(Arch::x86_64())
}

/// Findings of every severity, the mildest first.
fn mixed(config: Config) -> Machine {
    let mut m = Machine::with(config);
    m.san.space_destroyed(77);
    let root = m.space(1);
    m.switch(0, 1);
    m.map(1, VA, DATA | RW);
    m.read(0, VA);
    let _ = m.san.expect(&m.ram, ptsan::Tree::Root(root), VA, None);
    m.deaf = Some(0);
    m.unmap(1, VA);
    m.table(0);
    m.san.finish();
    m
}

fn objects(report: &str) -> Vec<Value> {
    report.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn the_report_begins_with_the_worst_and_ends_with_counts() {
    let m = mixed(config());
    let text = m.san.to_string();
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    let order = [
        at("\nfree-before-flush: "),
        at("\ndisagreement: "),
        at("\nleak: "),
        at("\nmisuse: "),
        at("\nsummary: "),
    ];
    assert!(order.is_sorted(), "{text}");
    let kinds = [at("free-before-flush\n"), at("disagreement\n"), at("leak\n"), at("misuse\n")];
    assert!(kinds.is_sorted(), "{text}");
    let made: Vec<_> = m.san.findings().iter().map(|f| f.kind).collect();
    assert_eq!(made[..2], [Kind::Misuse, Kind::Disagreement], "findings stay in the order they were made in");
    let summary = m.san.summary();
    assert_eq!(summary.total(), m.san.total());
    assert_eq!(summary.count(Severity::WrongAnswer), 1);
    assert_eq!(summary.causes, m.san.findings().len() as u64);
    let last = text.lines().last().unwrap();
    let corrupting = summary.count(Severity::MemoryCorruption);
    let counts = format!("summary: {corrupting} memory-corruption, 1 wrong-answer, ");
    assert!(last.starts_with(&counts) && last.contains("resource, 1 misuse, "), "{last}");
}

#[test]
fn the_summary_says_how_to_replay_the_test() {
    let mut m = mixed(Config { adversary: Some(Adversary { seed: 0x2a, rate: 0 }), ..config() });
    let replay = m.san.summary().replay().unwrap();
    let expected = "PTSAN_SEED=0x2a cargo test -- --exact the_summary_says_how_to_replay_the_test";
    // With one thread, the harness runs tests in its main thread.
    assert!(replay == expected || replay == "PTSAN_SEED=0x2a repeats the adversary's choices", "{replay}");
    assert!(m.san.to_string().contains("PTSAN_SEED=0x2a"));
    m.san = ptsan::Sanitizer::new(config());
    assert_eq!(m.san.summary().replay(), None, "without an adversary every run is the same");
}

#[test]
fn json_is_one_object_a_line_that_says_what_the_findings_say() {
    let suppressions = Suppressions::parse("leak:no \"such\" caller\\").unwrap();
    let m = mixed(Config { suppressions, ..config() });
    let all = objects(&m.san.report_as(Format::Json).to_string());
    assert!(all.iter().all(|object| object["schema"] == 1));
    let run = &all[0];
    assert_eq!(run["type"], "run");
    assert_eq!(run["total"], m.san.total());
    assert_eq!(run["causes"].as_u64(), Some(m.san.findings().len() as u64));
    assert_eq!(run["kinds"]["misuse"], 1);
    assert_eq!(run["severities"]["wrong-answer"], 1);
    assert_eq!(run["unused_suppressions"][0], "leak:no \"such\" caller\\");
    assert_eq!(all.len(), 1 + m.san.findings().len());
    for finding in m.san.findings() {
        let frame = finding.place.frame.map(|p| format!("{p:#x}"));
        let same = |o: &&Value| {
            let at = o["first"][0]["frame"].as_str() == frame.as_deref() && o["event"] == finding.event;
            at && o["kind"] == finding.kind.name()
        };
        let object = all.iter().find(same);
        let object = object.unwrap_or_else(|| panic!("{finding}"));
        assert_eq!(object["type"], "finding");
        assert_eq!(object["rule"], finding.rule.name());
        assert_eq!(object["severity"], finding.severity().name());
        assert_eq!(object["count"], finding.count);
        assert_eq!(object["history"].as_array().map(Vec::len), Some(finding.history.len()));
        let place = &object["first"][0];
        assert_eq!(place["cpu"].as_u64(), finding.place.cpu.map(|c| c as u64));
        let callers = finding.trace.as_ref().unwrap().frames();
        assert_eq!(object["found_in"].as_array().unwrap().len(), callers.len());
        assert_eq!(object["found_in"][0]["function"], callers[0].symbol);
        assert!(object["found_in"][0]["line"].as_u64() > Some(0), "{object}");
    }
    let clean = objects(&ptsan::Sanitizer::new(config()).report_as(Format::Json).to_string());
    assert!(clean.len() == 1 && clean[0]["total"] == 0 && clean[0]["seed"].is_null());
}

#[test]
fn levels_have_the_names_of_the_architecture() {
    let of = |arch: Arch| (0..=arch.top()).map(|level| arch.level_name(level)).collect::<Vec<_>>();
    assert_eq!(of(Arch::x86_64())[..3], ["PT (level 0)", "PD (level 1)", "PDPT (level 2)"]);
    assert_eq!(of(Arch::x86_64_la57())[3..], ["PML4 (level 3)", "PML5 (level 4)"]);
    assert_eq!(of(Arch::x86_pae()), ["PT (level 0)", "PD (level 1)", "PDPT (level 2)"]);
    assert_eq!(of(Arch::x86_2level()), ["PT (level 0)", "PD (level 1)"]);
    assert_eq!(of(Arch::aarch64_4k(48))[3], "Arm level 0");
    assert_eq!(of(Arch::aarch64_64k(48)), ["Arm level 3 (leaf)", "Arm level 2", "Arm level 1"]);
    assert_eq!(of(Arch::riscv_sv39()), ["level 0 (leaf)", "level 1", "level 2"]);
    assert_eq!(of(Arch::riscv_sv57()).len(), 5);
    assert_eq!(of(Arch::ppc32()), ["PTE table (level 0)", "PGD (level 1)"]);
    assert_eq!(of(Arch { level_names: &["last"], ..Arch::riscv_sv32() }), ["last", "level 1"]);
    let text = mixed(config()).san.to_string();
    for named in [", PT (level 0), address", "walked by CPU 0 at PT (level 0) for", "PML4 (level 3)"] {
        assert!(text.contains(named), "{named}: {text}");
    }
}

#[test]
fn misuse_says_which_call_to_make() {
    let mut m = common::ready(Arch::x86_64(), 1);
    let text = |m: &Machine| {
        let last = m.san.findings().last().unwrap();
        assert_eq!(last.kind, Kind::Misuse);
        last.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    m.san.space_destroyed(0x4d);
    assert!(text(&m).contains("fix: call space_destroyed(0x4d) once"), "{}", text(&m));
    m.san.space_destroyed(1);
    assert!(
        text(&m).contains("fix: call switch or leave on CPU 0 before space_destroyed(0x1)"),
        "{}",
        text(&m)
    );
    m.san.lazy(5);
    assert!(text(&m).contains("set Config::cpus to 6 or more"), "{}", text(&m));
    m.leave(0);
    m.san.resume(0);
    assert!(text(&m).contains("fix: call switch on CPU 0 first"), "{}", text(&m));
    m.san.table_allocated(&m.ram, 0x1000, 0, None, ptsan::Content::Zero);
    assert!(text(&m).contains("table_allocated needs 1 to 2^28 bytes"), "{}", text(&m));
    m.san.table_linked(&m.ram, 0x1000, u64::MAX, 0x2000);
    assert!(text(&m).contains("table_linked needs an index"), "{}", text(&m));
    m.san.flush(&m.ram, 0, Flush::range(1, 0x2000, 0x1000, 0x1000));
    assert!(text(&m).contains("flush needs a range with start <= end"), "{}", text(&m));
    let operation = m.san.operation_begins();
    m.san.operation_ends(&m.ram, operation);
    m.san.operation_ends(&m.ram, operation);
    assert!(text(&m).contains("operation_ends needs an operation"), "{}", text(&m));
}

#[test]
fn every_severity_is_that_of_some_kind_and_names_differ() {
    for severity in Severity::ALL {
        assert!(Kind::ALL.iter().any(|kind| kind.severity() == severity), "{severity}");
    }
    assert!(Severity::ALL.is_sorted());
    for kind in [Kind::StaleUse, Kind::FreeBeforeFlush, Kind::BreakBeforeMake, Kind::DoubleFree] {
        assert_eq!(kind.severity(), Severity::MemoryCorruption, "{kind}");
    }
    assert_eq!(Kind::Disagreement.severity(), Severity::WrongAnswer);
    assert_eq!((Kind::Leak.severity(), Kind::Misuse.severity()), (Severity::Resource, Severity::Misuse));
}

#[test]
fn github_commands_mark_the_innermost_caller() {
    let m = mixed(config());
    let report = m.san.report_as(Format::GitHub).to_string();
    let commands: Vec<_> = report.lines().filter(|line| line.starts_with("::error ")).collect();
    assert_eq!(commands.len(), m.san.findings().len(), "a command has one line: {report}");
    let disagreement = commands.iter().find(|c| c.contains("title=ptsan%3A disagreement")).unwrap();
    let (properties, message) = disagreement["::error ".len()..].split_once("::").unwrap();
    let fields: Vec<_> = properties.split(',').filter_map(|field| field.split_once('=')).collect();
    let field =
        |name| fields.iter().find(|f| f.0 == name).unwrap_or_else(|| panic!("{name}: {properties}")).1;
    assert!(field("file").starts_with('/') && field("file").ends_with("tests/report_formats.rs"));
    let line: usize = field("line").parse().unwrap();
    let source = include_str!("report_formats.rs").lines().nth(line - 1).unwrap();
    assert!(source.contains(".expect(&m.ram"), "{source}");
    assert_eq!(field("title"), "ptsan%3A disagreement (wrong-answer)");
    let finding = m.san.findings().iter().find(|f| f.kind == Kind::Disagreement).unwrap();
    assert_eq!(message.replace("%0A", "\n").replace("%25", "%"), finding.to_string());
}

#[test]
fn short_reports_have_one_line_of_80_columns_for_each_finding() {
    let m = mixed(config());
    let report = m.san.report_as(Format::Short).to_string();
    assert_eq!(report.lines().count(), 1 + m.san.findings().len());
    assert!(report.lines().all(|line| line.chars().count() <= 80), "{report}");
    assert!(report.starts_with("ptsan: "), "{report}");
    assert!(report.contains("\ndisagreement/OnlyTablesMapIt report_formats.rs:"), "{report}");
    assert!(report.contains("\nmisuse/NoSuchSpace report_formats.rs:"), "{report}");
    assert_eq!(m.san.report_as(Format::Text).to_string(), m.san.to_string());
}

/// Runs one test of this file in a process of its own, with `what` told to it.
fn child(test: &str, what: &str, format: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored"]).env(INSIDE, what).env("PTSAN_FORMAT", format);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[ignore = "run by other tests, in a process of its own"]
fn inside() {
    match std::env::var(INSIDE).as_deref() {
        Ok("forget") => drop(mixed(config())),
        Ok("count") => assert!(mixed(config()).san.total() > 0),
        Ok("panic") => {
            let _m = mixed(config());
            panic!("of the test itself");
        }
        Ok("later") => {
            let mut m = mixed(config());
            assert!(m.san.total() > 0);
            m.san.space_destroyed(78);
        }
        Ok("assert") => mixed(config()).san.assert_clean(),
        _ => {}
    }
}

#[test]
fn unseen_findings_are_printed_when_the_sanitizer_is_dropped() {
    for (what, passes, told) in
        [("forget", true, true), ("count", true, false), ("panic", false, false), ("later", true, true)]
    {
        let output = child("inside", what, "");
        let errors = text(&output.stderr);
        assert_eq!(output.status.success(), passes, "{what}: {errors}");
        assert_eq!(errors.contains("nobody looked at these findings"), told, "{what}: {errors}");
        assert_eq!(errors.contains("free-before-flush: "), told, "{what}: {errors}");
    }
}

#[test]
fn the_environment_chooses_the_format_and_unknown_ones_are_text() {
    let printed = |format: &str| {
        let output = child("inside", "assert", format);
        assert!(!output.status.success());
        text(&output.stdout)
    };
    let json = printed("json");
    let lines: Vec<_> = json.lines().filter(|line| line.starts_with("{\"schema\":1")).collect();
    assert!(lines.len() > 4 && !objects(&lines.join("\n")).is_empty(), "{json}");
    assert!(printed("github").contains("\n::error file="));
    assert!(printed("short").contains("\nmisuse/NoSuchSpace "));
    let unknown = printed("xml");
    assert!(unknown.contains("\nfree-before-flush: "), "{unknown}");
    assert_eq!(
        unknown.matches("PTSAN_FORMAT=xml is no format; there are text, short, github, json").count(),
        1
    );
    assert!(!printed("").contains("PTSAN_FORMAT"));
}
