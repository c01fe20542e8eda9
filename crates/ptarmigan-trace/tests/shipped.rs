//! The shipped recordings can be read, and no event was lost.
#[allow(dead_code)] // Other tests put parts together.
#[path = "harness/forge.rs"]
mod forge;

use ptarmigan_trace::{Kind, Method, TraceFile, Writer};
use std::path::{Path, PathBuf};

const NAMES: [&str; 5] = ["compile", "configure", "rustc", "forkbig", "fixture"];

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
            first = first.or(Some(e.kind));
        }
        assert_eq!(
            (events, truths),
            (summary.events, summary.count(&Kind::Truth { tables: 0, at: ptarmigan_trace::Sampled::Exit }))
        );
        assert_eq!(times > 0, name == "forkbig", "{name} has {times} times");
        assert!(matches!(first, Some(Kind::Exec { .. })), "{name} starts with its program");
    }
    assert!(total <= 8 << 20);
}

#[test]
fn shipped_traces_are_written_again_as_the_same_rows() {
    for name in NAMES {
        let trace = std::fs::read(path(name)).expect(name);
        let file = TraceFile::open(path(name)).expect(name);
        let (header, summary) = (file.header().clone(), *file.summary());
        let mut writer = Writer::new(Vec::new(), &header, 1).expect("a header that was read");
        let mut events = file.events().expect(name);
        while let Some(event) = events.next() {
            writer.time(events.time()).expect("times that were read");
            writer.event(&event.expect(name)).expect("an event that was read");
        }
        assert!(events.symbols().is_empty(), "{name} has no names of functions");
        let (again, counts) = writer.finish(summary.lost).expect("memory takes everything");
        assert_eq!(counts, summary, "{name}");
        let rows = |trace: &[u8]| forge::parts(trace, &summary).rows;
        assert!(rows(&again) == rows(&trace), "{name}");
    }
}
