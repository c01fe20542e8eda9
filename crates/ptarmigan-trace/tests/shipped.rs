//! The shipped recordings can be read, and no event was lost.
use ptarmigan_trace::{Kind, Method, TraceFile};
use std::path::Path;

#[test]
fn shipped_traces_are_whole() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let mut total = 0;
    for name in ["compile", "configure", "rustc", "forkbig", "fixture"] {
        let file = TraceFile::open(dir.join(name).with_extension("ptrace")).expect(name);
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
