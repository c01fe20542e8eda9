//! Runs that replay a recording: callers and numbers of events are those of the recording.
use crate::common;

use common::{Machine, PAGE, ready};
use ptsan::{Access, Arch, Config, Content, Format, Kind, Recorded, Trace, TraceFrame};

const VA: u64 = 0x40_0000;

fn from(function: &str, at: Option<&str>) -> Option<Trace> {
    Some(Trace::new(vec![TraceFrame { symbol: function.to_owned(), at: at.map(str::to_owned) }]))
}

/// Frees tables that were never announced, each from one of these functions.
fn freed(m: &mut Machine, functions: &[&str]) {
    for (function, phys) in functions.iter().zip((0x10_0000..).step_by(PAGE as usize)) {
        m.san.called_from(from(function, None));
        m.san.table_freed(&m.ram, phys, PAGE);
    }
}

fn counts(m: &Machine) -> Vec<u64> {
    m.san.findings().iter().map(|f| f.count).collect()
}

#[test]
fn causes_are_told_apart_by_the_callers_that_were_given() {
    let mut m = Machine::new(Arch::x86_64(), 1);
    freed(&mut m, &["unmap", "exit", "unmap", "exit", "unmap"]);
    assert_eq!(counts(&m), [3, 2]);
    let spread = &m.san.findings()[0].spread;
    assert_eq!((spread.places, spread.frames), (3, Some((0x10_0000, 0x10_4000))));

    // The place in the source counts too; with neither, the note does.
    let mut m = Machine::new(Arch::x86_64(), 1);
    for (callers, phys) in [
        (from("unmap", Some("a.c:1")), 0x1000),
        (from("unmap", Some("a.c:2")), 0x2000),
        (from("unmap", Some("a.c:1")), 0x3000),
        (Some(Trace::new(Vec::new())), 0x4000),
        (Some(Trace::new(Vec::new())), 0x5000),
    ] {
        m.san.called_from(callers);
        m.san.table_freed(&m.ram, phys, PAGE);
    }
    assert_eq!(counts(&m), [2, 1, 2]);
    assert!(m.san.findings()[0].to_string().contains("found in\n    unmap\n      at a.c:1"));
    assert!(!m.san.findings()[2].to_string().contains("found in"));
}

#[test]
fn many_callers_are_told_apart_however_many_places_each_has() {
    let mut m = Machine::with(Config { keep: 100, ..Config::new(Arch::x86_64()) });
    let callers: Vec<_> = (0..10).map(|n| from(&format!("f{n}"), None)).collect();
    for n in 0..5000 {
        m.san.called_from(callers[n % 10].clone());
        m.san.table_freed(&m.ram, (n as u64) << 12, PAGE);
    }
    assert_eq!(counts(&m), [500; 10]);
}

#[test]
fn without_given_callers_there_are_backtraces_again() {
    let mut m = Machine::new(Arch::x86_64(), 1);
    m.san.called_from(from("recorded", None));
    m.san.called_from(None);
    m.san.table_freed(&m.ram, 0x1000, PAGE);
    let text = m.san.findings()[0].to_string();
    assert!(text.contains("without_given_callers") && !text.contains("recorded\n"), "{text}");

    let mut m = Machine::with(Config { backtraces: false, ..Config::new(Arch::x86_64()) });
    freed(&mut m, &["unmap", "exit"]);
    assert!(counts(&m) == [2] && !m.san.to_string().contains("found in"), "{}", m.san);
}

#[test]
fn suppressions_and_origins_know_the_callers_that_were_given() {
    let mut config = Config { track_origins: true, ..Config::new(Arch::x86_64()) };
    config.suppressions = ptsan::Suppressions::parse("foreign-free:exit").expect("a list");
    let mut m = Machine::with(config);
    freed(&mut m, &["unmap", "exit"]);
    assert_eq!((m.san.total(), m.san.allowed()), (1, 1));
    m.san.called_from(from("map", Some("map.c:7")));
    m.san.table_allocated(&m.ram, 0x1000, PAGE, None, Content::Unchecked);
    m.san.called_from(None);
    m.san.finish();
    let leak = m.san.findings().iter().find(|f| f.kind == Kind::Leak).expect("a leak").to_string();
    assert!(leak.contains("the table was allocated in\n    map\n      at map.c:7"), "{leak}");
}

#[test]
fn events_have_the_names_of_the_recording_in_every_format() {
    let mut m = ready(Arch::x86_64(), 1);
    m.map(1, VA, 0x9_0000 | common::RW);
    let path = m.path(1, VA);
    let (entry, table) = (path[2].2, path[3].1);
    m.access(0, VA, Access::READ).expect("mapped");
    m.put(entry, 0);
    m.san.table_freed(&m.ram, table, PAGE);
    let finding = &m.san.findings()[0];
    let known: Vec<u64> = finding.events().collect();
    let (first, last) = (finding.history[0].event, finding.history.last().expect("a history").event);
    assert!(known.len() > finding.history.len() && known.contains(&last), "{known:?}: {finding}");
    assert!(known.last() == Some(&last) && first != last, "the note mentions the last: {finding}");
    // All but the first are known, as record 1000 and so on.
    m.san.name_events("record", |index, event| {
        assert_eq!(index, 0);
        let callers = (event == last).then(|| from("walker", Some("w.c:3"))).flatten();
        (event != first).then_some(Recorded { number: event + 1000, callers })
    });
    let text = m.san.to_string();
    assert!(!text.contains("event "), "{text}");
    assert!(text.contains(&format!("at record {}", m.san.event() + 1000)), "{text}");
    assert!(text.contains("    before: allocated"), "{text}");
    assert!(text.contains(&format!("    record {}: ", last + 1000)), "{text}");
    assert!(text.contains("\n      in walker at w.c:3"), "{text}");
    assert!(text.contains(&format!("\n    record {} in walker at w.c:3\n", last + 1000)), "{text}");
    let json = m.san.report_as(Format::Json).to_string();
    let told = "\"in\":[{\"function\":\"walker\",\"file\":\"w.c\",\"line\":3,\"column\":null}]";
    assert!(json.contains(told) && json.contains(&format!("{{\"event\":{}", last + 1000)), "{json}");
    let told = format!("\"noted\":[{{\"event\":{},\"in\":[{{\"function\":\"walker\"", last + 1000);
    assert!(json.contains(&told), "{json}");
}
