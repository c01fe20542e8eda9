//! Recordings pin the faults and tables that are shared.
use super::*;
use crate::input::trace::Trace;
use crate::pages::REGION;
use crate::price::price;
use crate::price::tests::{END, START, answer, map, write};
use crate::setup::SoloTrace;
use ptarmigan_trace::{CloneKind, Event, Header, Kind, MapFlags, Method, Note, Object, Prot, Writer};
use std::time::Duration;

fn shared(start: u64, pages: u64, flags: u16) -> Kind {
    Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(MapFlags::SHARED | flags) }
}

fn fork(child: u32) -> (u32, Kind) {
    (0, Kind::Clone { child, kind: CloneKind::Fork })
}

/// All figures, in their order: faults, spared, spared by huge pages, in parts of tables, on files
/// without a name; tables made today, and if shared; at once today, and if shared.
fn values(answer: &Answer) -> Vec<f64> {
    answer.figures.iter().map(|figure| figure.value).collect()
}

fn figures(events: &[(u32, Kind)]) -> Vec<f64> {
    values(&answer(&[events, &[(0, END)]].concat(), SharedTables::default()).unwrap())
}

#[test]
fn children_find_the_pages_of_their_parent() {
    let events = [
        (0, shared(START, 2 * REGION, MapFlags::ANON)),
        (0, write(START)),
        (0, write(START + 1)),
        fork(1),
        (1, write(START + 1)),
        (1, write(START + 2)),
        (1, write(START + REGION)),
        (0, write(START + 2)),
        (1, END),
        // The table is the parent's now, with the child's page.
        fork(2),
        (2, write(START + 2)),
        (2, END),
    ];
    assert_eq!(figures(&events), [7.0, 3.0, 3.0, 0.0, 0.0, 4.0, 2.0, 3.0, 2.0]);
}

#[test]
fn a_table_goes_with_its_last_space() {
    let again =
        [(0, Kind::Munmap { start: START, pages: REGION }), (0, shared(START, REGION, MapFlags::ANON))];
    let events = [(0, shared(START, REGION, MapFlags::ANON)), (0, write(START)), again[0], again[1]];
    let figures = figures(&[&events[..], &[(0, write(START))]].concat());
    assert_eq!(figures, [2.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 1.0, 1.0], "it is another object, too");
}

#[test]
fn areas_must_cover_a_table() {
    let pages = REGION + 8;
    let events = [(0, shared(START, pages, MapFlags::ANON)), (0, write(START + REGION)), fork(1)];
    let child = [(1, write(START + REGION)), (1, write(START)), (1, END)];
    let all = [&events[..], &child].concat();
    assert_eq!(figures(&all), [3.0, 0.0, 0.0, 2.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    let priced = answer(&[&all[..], &[(0, END)]].concat(), SharedTables::default()).unwrap();
    assert_eq!(priced.when_not, "3 of 3 faults stay: 2 of them lie in areas that cover no whole table.");
    let small = [(0, shared(START, 8, MapFlags::ANON)), (0, write(START)), (0, END)];
    let refused = answer(&small, SharedTables::default()).unwrap_err();
    assert_eq!(refused, "no area of shared memory with faults covers a whole table (1 fault)");
}

/// Two programs that are no relatives map a file, the second at another place, and gives its first
/// pages up.
fn strangers(named: bool, second: u64, skip: u64) -> Result<Answer, String> {
    let mut writer = Writer::new(Vec::new(), &Header::new("app", 1, Method::Synthetic), 3).unwrap();
    let name = named.then(|| writer.text("data").unwrap());
    let pages = 2 * REGION;
    let mapped = |start| Kind::Note(Note::Mapped { start, pages, object: Object::File, name });
    let exec = Kind::Exec { stack_end: 1 << 34, arg_pages: 1 };
    let events = [
        fork(1),
        (0, shared(START, pages, 0)),
        (0, mapped(START)),
        (0, write(START)),
        (0, write(START + REGION)),
        (1, exec),
        (1, shared(second, pages, 0)),
        (1, mapped(second)),
        (1, Kind::Munmap { start: second, pages: skip.max(1) }),
        (1, write(second + REGION)),
        (1, write(second)),
        (1, END),
        (0, END),
    ];
    let skipped = |kind: &Kind| skip == 0 && matches!(kind, Kind::Munmap { .. });
    for (task, kind) in events.into_iter().filter(|(_, kind)| !skipped(kind)) {
        writer.event(&Event { task, cpu: 0, kind }).unwrap();
    }
    let trace = Trace::from_bytes(&writer.finish(0).unwrap().0, "test").unwrap();
    let rows: Vec<Box<dyn Row>> = vec![Box::new(SharedTables::default())];
    let priced = price(&SoloTrace::new(trace), 1 << 28, rows, &Default::default(), Duration::from_secs(60));
    priced.unwrap().rows.remove(0).answer
}

#[test]
fn files_are_known_by_their_names() {
    let figures = |second, skip| values(&strangers(true, second, skip).unwrap());
    let second = START + 8 * REGION;
    assert_eq!(figures(second, 0), [4.0, 2.0, 0.0, 0.0, 0.0, 4.0, 2.0, 4.0, 2.0]);
    // Its second table shows the second half of the file.
    assert_eq!(figures(second, REGION), [3.0, 1.0, 0.0, 0.0, 0.0, 3.0, 2.0, 3.0, 2.0]);
    // The file lies otherwise in its tables.
    assert_eq!(figures(second + 4, 0), [4.0, 0.0, 0.0, 1.0, 0.0, 3.0, 3.0, 3.0, 3.0]);
    let refused = strangers(false, second, 0).unwrap_err();
    assert_eq!(refused, "it does not tell which programs map the same file: it lacks their names");
}

#[test]
fn segments_are_known_by_their_place() {
    let exec = Kind::Exec { stack_end: 1 << 34, arg_pages: 1 };
    let attach = |flags| {
        let map = shared(START, REGION, flags);
        let all = [fork(1), (0, map), (0, write(START)), (1, exec), (1, map), (1, write(START)), (1, END)];
        figures(&all)[1]
    };
    assert_eq!(attach(MapFlags::ANON | MapFlags::SEGMENT), 1.0);
    assert_eq!(attach(MapFlags::ANON), 0.0, "each call makes new memory");
}

#[test]
fn processes_that_ran_already_share_what_a_parent_had() {
    let open = Kind::Exec { stack_end: 1 << 34, arg_pages: 0 };
    let vfork = (0, Kind::Clone { child: 1, kind: CloneKind::Vfork });
    let (map, end) = (shared(START, REGION, MapFlags::ANON), Kind::StackLimit { pages: 2048 });
    let opening = [(0, open), (0, map), (0, end), vfork, (1, open), (1, map), (1, end)];
    let writes = [(0, write(START)), (1, write(START)), (1, END)];
    assert_eq!(figures(&[&opening[..], &writes].concat())[..2], [2.0, 1.0]);
}

#[test]
fn private_memory_is_not_shared() {
    let events = [(0, map(START, REGION)), (0, write(START)), fork(1), (1, write(START)), (1, END), (0, END)];
    assert_eq!(answer(&events, SharedTables::default()).unwrap_err(), "it has no fault on shared memory");
}
