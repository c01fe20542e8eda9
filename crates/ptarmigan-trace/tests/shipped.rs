//! The shipped recordings can be read, and no event was lost.
#[allow(dead_code)] // Other tests put parts together.
#[path = "harness/forge.rs"]
mod forge;

use ptarmigan_trace::{Event, Kind, Method, Note, Reader, TraceFile, Writer};
use std::path::{Path, PathBuf};

const NAMES: [&str; 6] = ["compile", "configure", "rustc", "linux-build", "forkbig", "fixture"];
/// The recording with names, callers and settings.
const NAMED: &str = "linux-build";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(name).with_extension("ptrace")
}

#[test]
fn shipped_traces_are_whole() {
    let mut total = 0;
    for name in NAMES {
        let file = TraceFile::open(path(name)).expect(name);
        let summary = *file.summary();
        total += file.bytes();
        assert!(file.bytes() <= 2 << 20, "{name} is too large for the repository");
        assert_eq!((file.header().name(), file.header().method), (name, Method::Tracefs));
        assert_eq!(summary.lost, 0, "{name}");
        let (mut events, mut truths, mut times) = (0, 0, 0);
        let mut first = None;
        for e in file.events().expect(name) {
            let e = e.expect(name);
            events += 1;
            truths += u64::from(matches!(e.kind, Kind::Truth { .. }));
            times += u64::from(matches!(e.kind, Kind::Note(_)));
            if !matches!(e.kind, Kind::Note(Note::Setting { .. })) {
                first = first.or(Some(e.kind));
            }
        }
        assert_eq!(
            (events, truths),
            (summary.events, summary.count(&Kind::Truth { tables: 0, at: ptarmigan_trace::Sampled::Exit }))
        );
        assert_eq!(times > 0, ["forkbig", NAMED].contains(&name), "{name} has {times} times");
        assert!(matches!(first, Some(Kind::Exec { .. })), "{name} starts with its program");
    }
    assert!(total <= 8 << 20);
}

/// Reads a trace, with the time of each event.
fn timed(trace: &[u8]) -> (Vec<(u64, Event)>, Reader<&[u8]>) {
    let mut reader = Reader::new(trace).expect("a header");
    let mut events = Vec::new();
    while let Some(event) = reader.next() {
        events.push((reader.time(), event.expect("an event")));
    }
    (events, reader)
}

#[test]
fn shipped_traces_are_written_again_as_the_same_rows() {
    for name in NAMES {
        let trace = std::fs::read(path(name)).expect(name);
        let (events, reader) = timed(&trace);
        let summary = *reader.summary().expect("all was read");
        let mut writer = Writer::new(Vec::new(), reader.header(), 1).expect("a header that was read");
        for text in reader.symbols().texts() {
            writer.text(text).expect("a name that was read");
        }
        for place in reader.symbols().places() {
            writer.place(*place).expect("a place that was read");
        }
        for (time, event) in &events {
            writer.time(*time).expect("times that were read");
            writer.event(event).expect("an event that was read");
        }
        let (again, counts) = writer.finish(summary.lost).expect("memory takes everything");
        assert_eq!(counts, summary, "{name}");
        let symbols = reader.symbols();
        assert_eq!(symbols.is_empty(), name != NAMED, "{name}: names of functions");
        if symbols.is_empty() {
            let rows = |trace: &[u8]| forge::parts(trace, &summary).rows;
            assert!(rows(&again) == rows(&trace), "{name}");
        } else {
            // Names may stand anywhere before their first use.
            let (back, second) = timed(&again);
            assert!(back == events, "{name}");
            assert!(second.symbols().texts().eq(symbols.texts()), "{name}");
            assert!(second.symbols().places() == symbols.places(), "{name}");
        }
    }
}

#[test]
fn the_recording_with_names_has_all_that_a_trace_may_tell() {
    let mut reader = Reader::open(path(NAMED)).expect(NAMED);
    let (mut callers, mut took, mut named) = (0, 0, 0);
    for event in reader.by_ref() {
        match event.expect("an event").kind {
            Kind::Note(Note::Caller { place: Some(_), .. }) => callers += 1,
            Kind::Note(Note::Took { .. }) => took += 1,
            Kind::Note(Note::Mapped { name: Some(_), .. }) => named += 1,
            _ => {}
        }
    }
    assert!(callers > 1000 && took > 1000 && named > 1000, "{callers} {took} {named}");
    let settings = reader.settings();
    assert!(settings.get("kernel").is_some() && settings.get("enabled").is_some());
    for text in reader.symbols().texts() {
        // Names of settings and of functions may have slashes, and no directory of a machine.
        assert!(
            !["/home", "/root", "/work", "/usr", "/tmp"].iter().any(|path| text.contains(path)),
            "{text}"
        );
    }
}
