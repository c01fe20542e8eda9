//! Properties of the reader on arbitrary bytes, shared by the fuzz target and the tests.
use ptarmigan_trace::{Event, Reader, Writer};

/// Reads `data` as a trace, which must not panic. If every event can be read and the trailer
/// agrees, writing and reading the events again must give the same events. Returns the number of
/// events read, and whether the end was reached.
pub fn read_any(data: &[u8]) -> (u64, bool) {
    let Ok(mut reader) = Reader::new(data) else { return (0, false) };
    let mut events: Vec<Event> = Vec::new();
    for event in reader.by_ref().take(1 << 20) {
        match event {
            Ok(e) => events.push(e),
            Err(e) => {
                let line = e.to_string();
                assert!(!line.contains('\n') && line.len() < 300, "{line}");
                assert!(reader.next().is_none(), "events after an error");
                return (events.len() as u64, false);
            }
        }
    }
    let Some(summary) = reader.summary().copied() else { return (events.len() as u64, false) };
    assert_eq!(summary.events, events.len() as u64);
    let mut again =
        Writer::new(Vec::new(), reader.header(), 1).expect("a header that was read can be written");
    for text in reader.symbols().texts() {
        again.text(text).expect("a name that was read can be written");
    }
    for place in reader.symbols().places() {
        again.place(*place).expect("a place that was read can be written");
    }
    for e in &events {
        again.event(e).expect("an event that was read can be written");
    }
    again.set_unrecorded(summary.unrecorded);
    let (bytes, second) = again.finish(summary.lost).expect("memory takes everything");
    assert_eq!((second.by_kind, second.unrecorded), (summary.by_kind, summary.unrecorded));
    let back: Vec<Event> = Reader::new(&bytes[..])
        .expect("a header")
        .collect::<Result<_, _>>()
        .expect("what was written can be read");
    assert_eq!(back, events);
    (summary.events, true)
}
