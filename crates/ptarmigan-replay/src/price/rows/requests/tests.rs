use super::*;
use crate::price::price;
use crate::price::tests::{END, START, answer, map, write};
use crate::setup::SoloTrace;
use ptarmigan_trace::{Event, Header, Method, Name, Unseen, Writer};
use std::time::Duration;

fn flush(task: u32, reason: u8) -> (u32, Kind) {
    (task, Kind::TlbFlush { pages: 1, reason })
}

fn value(answer: &Answer, name: &str) -> f64 {
    answer.figures.iter().find(|figure| figure.name == name).map_or(-1.0, |figure| figure.value)
}

/// One process forks another, which starts a thread.
fn threads(of_child: &[(u32, Kind)]) -> Vec<(u32, Kind)> {
    let clone = |child, kind| Kind::Clone { child, kind };
    let mut events = vec![
        (0, map(START, 8)),
        (0, write(START)),
        (0, Kind::Munmap { start: START, pages: 8 }),
        flush(0, 4),
        flush(0, 3),
        (0, clone(1, CloneKind::Fork)),
        (1, map(START, 8)),
        (1, Kind::Munmap { start: START, pages: 8 }),
        // Sent before there were threads, by a process that cannot be pinned.
        flush(1, 4),
        (1, clone(2, CloneKind::Share)),
        (2, map(START, 8)),
        (2, Kind::Munmap { start: START, pages: 4 }),
        flush(2, 4),
    ];
    events.extend_from_slice(of_child);
    events.extend([(2, Kind::Exit { last: false }), (1, END), (0, END)]);
    events
}

#[test]
fn threads_that_run_at_once_cannot_be_pinned() {
    let found = answer(&threads(&[flush(1, 1), flush(0, 5)]), Requests::default()).unwrap();
    assert_eq!(value(&found, "requests sent"), 3.0);
    assert_eq!(value(&found, "requests after munmap"), 3.0);
    assert_eq!(value(&found, "flushes for a request"), 1.0);
    assert_eq!(value(&found, "requests that met another program"), 1.0);
    assert_eq!(value(&found, "requests spared by pins"), 1.0);
    assert_eq!(value(&found, "requests spared by an exact mask"), 2.0);
    assert_eq!((found.savings[0].unit, found.savings[0].count), (Unit::Request, 2));
    assert!(found.when_not.contains("leave 2 requests of processes"), "{}", found.when_not);
}

#[test]
fn pinnable_requests_are_told_by_program() {
    let events = [
        (0, map(START, 8)),
        (0, write(START)),
        (0, Kind::Munmap { start: START, pages: 8 }),
        flush(0, 4),
        (0, Kind::Exec { stack_end: (1 << 35) - 1, arg_pages: 1 }),
        (0, Kind::Name(Name::new("server"))),
        (0, map(START, 8)),
        (0, Kind::Clone { child: 1, kind: CloneKind::Fork }),
        (1, Kind::Munmap { start: START, pages: 8 }),
        flush(1, 4),
        flush(1, 4),
        flush(1, 1),
        (1, END),
        (0, Kind::Clone { child: 2, kind: CloneKind::Share }),
        flush(0, 4),
        flush(2, 1),
        (2, Kind::Exit { last: false }),
        (0, END),
    ];
    let mut row = Requests::default();
    answer(&events, &mut row).unwrap();
    let of = |name: Option<&str>, requests, pinnable, met| PinnableProgram {
        name: name.map(str::to_owned),
        requests,
        pinnable,
        met,
    };
    // The flush of the thread was needed, but no pin would spare its request.
    assert_eq!(row.programs(), [of(Some("server"), 3, 2, 1), of(None, 1, 1, 0)]);
}

#[test]
fn a_process_is_pinnable_while_its_threads_sleep() {
    let spared = |requests: usize, met: usize| {
        let mut events = vec![(0, map(START, 8)), (0, Kind::Clone { child: 1, kind: CloneKind::Share })];
        events.extend(vec![flush(0, 4); requests]);
        events.extend(vec![flush(1, 1); met]);
        events.extend([(1, Kind::Exit { last: false }), (0, END)]);
        value(&answer(&events, Requests::default()).unwrap(), "requests spared by pins")
    };
    assert_eq!([spared(100, 1), spared(99, 1), spared(100, 0)], [100.0, 0.0, 100.0]);
}

#[test]
fn a_child_of_vfork_is_no_thread() {
    let events = [
        (0, map(START, 8)),
        (0, write(START)),
        (0, Kind::Clone { child: 1, kind: CloneKind::Vfork }),
        (1, Kind::Munmap { start: START, pages: 8 }),
        flush(1, 4),
        (1, END),
        (0, END),
    ];
    let found = answer(&events, Requests::default()).unwrap();
    assert_eq!([value(&found, "requests spared by pins"), value(&found, "requests sent")], [1.0, 1.0]);
}

#[test]
fn requests_that_are_all_needed_stay() {
    let needed = [flush(1, 1), flush(2, 1), flush(0, 1), flush(0, 1)];
    let found = answer(&threads(&needed), Requests::default()).unwrap();
    assert_eq!(value(&found, "requests spared by an exact mask"), 0.0);
    assert_eq!(found.savings[0].count, 1);
}

#[test]
fn a_recording_by_perf_cannot_tell() {
    let mut header = Header::new("app", 1, Method::Perf);
    header.unseen = Unseen(Unseen::TLB_FLUSHES);
    let mut writer = Writer::new(Vec::new(), &header, 3).unwrap();
    writer.event(&Event { task: 0, cpu: 0, kind: END }).unwrap();
    let trace = crate::Trace::from_bytes(&writer.finish(0).unwrap().0, "test").unwrap();
    let rows: Vec<Box<dyn Row>> =
        vec![Box::new(Requests::default()), Box::new(crate::price::rows::deferred_flush::DeferredFlush)];
    let limit = Duration::from_secs(60);
    let priced = price(&SoloTrace::new(trace), 1 << 28, rows, &Default::default(), limit).unwrap();
    for one in priced.rows {
        assert_eq!(one.answer.unwrap_err(), "the recording has no flushes of TLBs");
    }
}
