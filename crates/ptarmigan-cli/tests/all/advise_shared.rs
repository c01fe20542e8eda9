//! Advice on shared memory that many processes map, and to servers that fork for each connection.
use crate::advise::{BASE, EXEC, advice, figure, kinds, made, piece, reason, write};
use crate::program::Temporary;
use ptarmigan_trace::{
    CloneKind, Event, FaultFlags, Header, Kind, MapFlags, Method, Name, Note, Object, Prot, Writer,
};
use serde_json::Value;

const EXIT: Kind = Kind::Exit { last: true };
const REGION: u64 = 512;

fn shared(start: u64, pages: u64) -> Kind {
    Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(MapFlags::ANON | MapFlags::SHARED) }
}

fn fork(child: u32) -> Kind {
    Kind::Clone { child, kind: CloneKind::Fork }
}

/// A server that maps 20 MiB of shared memory, and forks a child for each of `children`
/// connections, each of which writes 20 pages of each region. So many of them live at once.
fn server(name: &str, program: &str, flags: u16, children: u32, at_once: u32) -> Temporary {
    let map = |flags| Kind::Mmap { start: BASE, pages: 10 * REGION, prot: Prot(3), flags: MapFlags(flags) };
    let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new(program))), (0, map(flags))];
    events.push((0, write(BASE)));
    for child in 1..=children {
        if child > at_once {
            events.push((child - at_once, EXIT));
        }
        events.push((0, fork(child)));
        events.extend((0..10 * 20).map(|n| (child, write(BASE + n / 20 * REGION + n % 20))));
    }
    events.extend(((children - at_once + 1)..=children).map(|child| (child, EXIT)));
    events.push((0, EXIT));
    made(name, |_| {}, 0, &events)
}

const SHARED: u16 = MapFlags::ANON | MapFlags::SHARED;

fn how(found: &Value) -> &str {
    found["how"].as_str().expect("a text")
}

#[test]
fn shared_memory_of_many_processes_gets_huge_pages_by_program() {
    let trace = server("shared", "postgres", SHARED, 12, 12);
    let report = advice(&trace.0, &[]);
    assert_eq!(kinds(&report), ["shared-memory"], "{report:#}");
    let found = piece(&report, "shared-memory");
    // Ten tables of each child, and one of the server.
    assert!(figure(found).contains(": 121 tables (484 KiB) in all, at most 121 tables"), "{found:#}");
    assert_eq!(found["saved"]["tables_made"], 121, "{found:#}");
    assert_eq!(found["saved"]["tables_peak"], 121, "{found:#}");
    // The first fault of each region stays.
    assert_eq!(found["saved"]["faults"], 12 * 10 * 19, "{found:#}");
    assert!(how(found).contains("huge_pages = on"), "{found:#}");
    let title = found["title"].as_str().expect("a text");
    assert!(title.contains("20 MiB of shared memory that 13 processes map: postgres"), "{title}");
    assert_eq!(found["places"][0]["address"], BASE << 12, "{found:#}");
    let expect = &found["expect"][0];
    assert_eq!((&expect["figure"], &expect["programs"][0]), (&"faults".into(), &"postgres".into()));
    assert_eq!(expect["without"].as_f64(), Some(1.0 + 2400.0), "{found:#}");
    assert_eq!(expect["with"].as_f64(), Some(2401.0 - 2280.0), "{found:#}");
}

#[test]
fn the_switch_is_that_of_the_memory() {
    let of = |name: &str, flags| {
        let report = advice(&server(name, "server", flags, 12, 12).0, &[]);
        how(piece(&report, "shared-memory")).to_owned()
    };
    let anonymous = of("anonymous", SHARED);
    assert!(anonymous.contains("MAP_HUGETLB") && !anonymous.contains("huge_pages"), "{anonymous}");
    let segment = of("segment", SHARED | MapFlags::SEGMENT);
    assert!(segment.contains("SHM_HUGETLB"), "{segment}");
}

#[test]
fn private_memory_files_and_one_process_get_no_shared_advice() {
    let why = |name: &str, flags, children: u32| {
        let report = advice(&server(name, "server", flags, children, children).0, &[]);
        reason(&report, "shared-memory").to_owned()
    };
    assert!(why("file", MapFlags::SHARED, 12).starts_with("no shared memory"));
    assert!(why("huge", SHARED | MapFlags::HUGE_ONLY, 12).starts_with("no shared memory"));
    let one: Vec<(u32, Kind)> = [(0, shared(BASE, 10 * REGION))]
        .into_iter()
        .chain((0..10).map(|region| (0, write(BASE + region * REGION))))
        .chain([(0, EXIT)])
        .collect();
    let report = advice(&made("one", |_| {}, 0, &one).0, &[]);
    assert!(reason(&report, "shared-memory").contains("no two processes"), "{report:#}");
}

/// Four processes that map a file of 20 MiB shared, and read a page of each region.
fn readers() -> Temporary {
    let file = Temporary::new("readers");
    let mut writer =
        Writer::new(Vec::new(), &Header::new("readers", 1, Method::Synthetic), 3).expect("a header");
    let name = Some(writer.text("data.mdb").expect("a text"));
    let map = |task| {
        let (pages, prot, flags) = (10 * REGION, Prot(1), MapFlags(MapFlags::SHARED));
        let mapped = Note::Mapped { start: BASE, pages, object: Object::File, name };
        [(task, Kind::Mmap { start: BASE, pages, prot, flags }), (task, Kind::Note(mapped))]
    };
    let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new("reader")))];
    events.extend((1..=4).flat_map(|child| [vec![(0, fork(child))], map(child).to_vec()].concat()));
    let read = |page| Kind::Fault { page, flags: FaultFlags(FaultFlags::USER) };
    events.extend((1..=4).flat_map(|task| (0..10).map(move |n| (task, read(BASE + n * REGION)))));
    events.extend((1..=4).map(|child| (child, EXIT)));
    for (task, kind) in [events, vec![(0, EXIT)]].concat() {
        writer.event(&Event { task, cpu: 0, kind }).expect("an event");
    }
    std::fs::write(&file.0, writer.finish(0).expect("a trace").0).expect("a temporary file");
    file
}

#[test]
fn a_file_that_many_map_is_named_with_its_tables() {
    let report = advice(&readers().0, &[]);
    let said = reason(&report, "shared-memory");
    let begins = "data.mdb of 20 MiB: 40 leaf tables, at most 40 tables (160 KiB) at once, for 40 KiB of a file \
                  that 4 processes map (reader); ";
    assert!(said.starts_with(begins), "{said}");
    assert!(said.contains("fewer processes, or threads of one"), "{said}");
}

#[test]
fn huge_pages_only_have_no_last_level_table_in_a_replay() {
    let tables = |name: &str, flags| {
        let report = advice(&server(name, "server", flags, 2, 2).0, &[]);
        report["whole"]["tables_made"].as_i64().expect("a count")
    };
    // One of the server, ten of each child.
    assert_eq!(tables("small", SHARED) - tables("only", SHARED | MapFlags::HUGE_ONLY), 21);
}

#[test]
fn a_server_forking_per_connection_should_keep_processes() {
    let trace = server("pooler", "postgres", SHARED, 60, 3);
    let report = advice(&trace.0, &[]);
    let found = piece(&report, "pooler");
    let title = found["title"].as_str().expect("a text");
    assert!(title.ends_with("60 forks of postgres"), "{title}");
    assert!(figure(found).starts_with("60 children of one postgres use its shared memory"), "{found:#}");
    assert!(how(found).contains("pgbouncer"), "{found:#}");
    // The faults of 57 children go, and their tables: ten for the memory, two above, one root.
    assert_eq!(found["saved"]["faults"], 57 * 200, "{found:#}");
    let tables = found["saved"]["tables_made"].as_i64().expect("a count");
    assert!(tables >= 57 * 13, "{found:#}");
    let forks = found["expect"].as_array().expect("a list").iter().find(|e| e["figure"] == "forks");
    let forks = forks.unwrap_or_else(|| panic!("{found:#}"));
    assert_eq!((forks["without"].as_f64(), forks["with"].as_f64()), (Some(60.0), Some(3.0)));
}

#[test]
fn children_that_stay_or_start_a_program_need_no_pooler() {
    let report = advice(&server("stay", "server", SHARED, 60, 60).0, &[]);
    let why = reason(&report, "pooler");
    assert_eq!(why, "server forked 60 times for processes that do its work, at most 60 at once");
    let mut events = vec![(0, shared(BASE, 10 * REGION)), (0, write(BASE))];
    for child in 1..=60 {
        events.extend([(0, fork(child)), (child, write(BASE)), (child, EXEC), (child, EXIT)]);
    }
    events.push((0, EXIT));
    let report = advice(&made("start", |_| {}, 0, &events).0, &[]);
    assert!(reason(&report, "pooler").starts_with("no process forks children"), "{report:#}");
}

#[test]
fn pages_that_were_found_at_stops_are_part_of_the_shared_memory() {
    let mut events = vec![(0, shared(BASE, 10 * REGION))];
    for child in 1..=4 {
        events.push((0, fork(child)));
        let flags = FaultFlags(FaultFlags::WRITE);
        events.push((child, Kind::Touched { start: BASE, pages: 5 * REGION, flags }));
    }
    events.extend((1..=4).chain([0]).map(|task| (task, EXIT)));
    let report = advice(&made("found", |_| {}, 0, &events).0, &[]);
    let found = piece(&report, "shared-memory");
    assert_eq!(found["saved"]["tables_made"], 20, "{found:#}");
}

#[test]
fn huge_pages_are_counted_from_the_start_of_the_object() {
    // The memory begins 100 pages behind a multiple of 2 MiB, and so has 11 tables for 10 huge
    // pages.
    let base = BASE + 100;
    let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new("server"))), (0, shared(base, 10 * REGION))];
    for child in 1..=12 {
        events.push((0, fork(child)));
        // Two pages of each huge page: one on each side of the multiple of 2 MiB in it.
        for huge in 0..10 {
            events.extend([0, 500].map(|page| (child, write(base + huge * REGION + page))));
        }
    }
    events.extend((1..=12).chain([0]).map(|task| (task, EXIT)));
    let report = advice(&made("unaligned", |_| {}, 0, &events).0, &[]);
    let found = piece(&report, "shared-memory");
    assert!(figure(found).contains(": 132 tables (528 KiB) in all"), "{found:#}");
    assert_eq!(found["saved"]["tables_made"], 12 * 11, "{found:#}");
    // The second page of each huge page in each child.
    assert_eq!(found["saved"]["faults"], 12 * 10, "{found:#}");
}

#[test]
fn pages_found_beside_shared_memory_stay_as_they_were() {
    let base = BASE + 100;
    let beside = Kind::Mmap {
        start: base - 10,
        pages: 10,
        prot: Prot(3),
        flags: MapFlags(MapFlags::ANON | MapFlags::SHARED),
    };
    let mut events = vec![(0, shared(base, 10 * REGION)), (0, beside)];
    for child in 1..=4 {
        events.push((0, fork(child)));
        let flags = FaultFlags(FaultFlags::WRITE);
        events.push((child, Kind::Touched { start: base - 10, pages: 10 + 5 * REGION, flags }));
    }
    events.extend((1..=4).chain([0]).map(|task| (task, EXIT)));
    let report = advice(&made("beside", |_| {}, 0, &events).0, &[]);
    // Of six tables of each child one is for the memory beside, too.
    assert_eq!(piece(&report, "shared-memory")["saved"]["tables_made"], 4 * 5, "{report:#}");
}

#[test]
fn processes_from_before_the_recording_share_memory() {
    let flags = MapFlags(MapFlags::ANON | MapFlags::SHARED | MapFlags::FIXED);
    let memory = Kind::Mmap { start: BASE, pages: 10 * REGION, prot: Prot(3), flags };
    let running = Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 0 };
    let mut events = Vec::new();
    for task in 0..3 {
        if task > 0 {
            events.push((0, Kind::Clone { child: task, kind: CloneKind::Vfork }));
        }
        events.extend([running, memory, Kind::StackLimit { pages: 2048 }].map(|kind| (task, kind)));
    }
    // One of them alone fills ten tables, another one.
    events.extend((0..20).map(|n| (1, write(BASE + n / 2 * REGION + n % 2))));
    events.push((2, write(BASE)));
    events.extend((0..3).map(|task| (task, EXIT)));
    let report = advice(&made("running", |_| {}, 0, &events).0, &[]);
    let found = piece(&report, "shared-memory");
    assert_eq!(found["saved"]["tables_made"], 11, "{found:#}");
    // A call of a process that runs makes memory of its own.
    let events = events.into_iter().map(|(task, kind)| match kind {
        Kind::Exec { stack_end, .. } => (task, Kind::Exec { stack_end, arg_pages: 1 }),
        Kind::Clone { child, .. } => (task, fork(child)),
        kind => (task, kind),
    });
    let report = advice(&made("started", |_| {}, 0, &events.collect::<Vec<_>>()).0, &[]);
    assert!(reason(&report, "shared-memory").contains("no two processes"), "{report:#}");
}
