//! The largest causes are told if no advice was found, and no more is said than is known.
use crate::advise::{BASE, EXEC, advice, made, map, write};
use crate::program::{Temporary, ptarmigan};
use ptarmigan_trace::{
    Call, Cause, CloneKind, Event, FaultFlags, Header, Kind, Method, Name, Note, Object, Place, Writer,
};
use serde_json::Value;

const EXIT: Kind = Kind::Exit { last: true };

fn named(task: u32, name: &str) -> [(u32, Kind); 2] {
    [(task, EXEC), (task, Kind::Name(Name::new(name)))]
}

fn used(user: u64, system: u64) -> Kind {
    Kind::Note(Note::Used { user, system, minor: 0, major: 0, waits: 0, preempted: 0 })
}

fn took(call: Call, nanos: u64, away: u64) -> Kind {
    Kind::Note(Note::Took { call, nanos, away })
}

fn text(file: &Temporary) -> String {
    ptarmigan(&["advise", "--rounds", "0", file.path()]).good()
}

fn cause<'v>(report: &'v Value, kind: &str) -> &'v Value {
    let all = report["causes"].as_array().expect("a list");
    all.iter().find(|one| one["kind"] == kind).unwrap_or_else(|| panic!("no {kind} in {report:#}"))
}

/// A program with 100 faults, and children without faults. `known` says if their time is known.
fn with_children(name: &str, user: u64, known: impl Fn(u32) -> bool) -> Temporary {
    let mut events = Vec::from(named(0, "app"));
    events.push((0, map(BASE, 512)));
    events.extend((0..100).map(|page| (0, write(BASE + page))));
    for child in 1..=9 {
        events.extend([(0, Kind::Clone { child, kind: CloneKind::Fork }), (0, took(Call::Fork, 100_000, 0))]);
        events.extend(known(child).then_some((child, used(1000, 0))));
        events.push((child, EXIT));
    }
    events.extend([(0, used(user, 2000)), (0, EXIT)]);
    made(name, |_| {}, 0, &events)
}

#[test]
fn nothing_would_help_is_said_only_of_little_known_time() {
    // 100 faults and nine forks are at most 1.9 ms of 10 s.
    let idle = text(&with_children("idle", 10_000_000, |_| true));
    assert!(idle.contains("\nNothing would help.\n") && !idle.contains("largest causes"), "{idle}");
    let busy = text(&with_children("busy", 100_000, |_| true));
    assert!(busy.contains("\nNo advice was found.\n\nThe largest causes:\n"), "{busy}");
    // Of two processes of ten no time is known.
    let unknown = text(&with_children("unknown", 10_000_000, |child| child > 2));
    assert!(unknown.contains("\nNo advice was found.\n"), "{unknown}");
}

#[test]
fn a_cause_has_program_mapping_function_count_and_time() {
    let file = Temporary::new("cause.ptrace");
    let mut writer = Writer::new(Vec::new(), &Header::new("run", 1, Method::Synthetic), 3).expect("a header");
    let texts = ["load", "store.c", "data.mdb", "liblmdb.so"].map(|text| writer.text(text).expect("a text"));
    let load = Place { function: Some(texts[0]), file: Some(texts[1]), line: 12, ..Place::default() };
    let load = Some(writer.place(load).expect("a place"));
    let library = Place { module: Some(texts[3]), ..Place::default() };
    let library = Some(writer.place(library).expect("a place"));
    let mapped = Note::Mapped { start: BASE, pages: 64, object: Object::File, name: Some(texts[2]) };
    let caller = |cause, place| Kind::Note(Note::Caller { cause, page: BASE, events: 10, place });
    let mut kinds = vec![EXEC, Kind::Name(Name::new("app")), map(BASE, 64), Kind::Note(mapped)];
    kinds.extend((0..60).map(|page| write(BASE + page)));
    kinds.extend([caller(Cause::Fault, load), caller(Cause::Call(Call::Munmap), library)]);
    for n in 0..5 {
        kinds.extend([Kind::Munmap { start: BASE + n, pages: 1 }, took(Call::Munmap, 2_000_000, 30_000_000)]);
    }
    kinds.extend([used(0, 20_000), EXIT]);
    for kind in kinds {
        writer.event(&Event { task: 0, cpu: 0, kind }).expect("an event");
    }
    std::fs::write(&file.0, writer.finish(0).expect("a trace").0).expect("a temporary file");
    let report = advice(&file.0, &[]);
    let faults = cause(&report, "fault");
    assert_eq!((&faults["program"], &faults["count"]), (&"app".into(), &60.into()));
    assert_eq!(faults["function"], "load (store.c:12), 100 %");
    assert!(faults["mapping"].as_str().is_some_and(|name| name.ends_with(" data.mdb")), "{faults:#}");
    assert_eq!(faults.get("seconds"), None, "too little CPU time to tell");
    let calls = cause(&report, "munmap");
    assert_eq!((&calls["count"], &calls["seconds"]), (&5.into(), &0.01.into()));
    assert_eq!(calls["longest_clock_seconds"], 0.032);
    assert_eq!(calls["function"], "a function of liblmdb.so without a symbol, 100 %");
    // 10 ms are more than 60 faults take.
    assert_eq!(report["causes"][0]["kind"], "munmap", "{report:#}");
    let text = text(&file).split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "5 munmap of app, 10 ms (the longest by the clock 32 ms; by a function of liblmdb.so without \
                a symbol, 100 %). Try: keep mappings";
    assert!(text.contains(said), "{text}");
}

#[test]
fn children_that_only_end_and_copies_after_forks_are_told() {
    let flags = FaultFlags(FaultFlags::WRITE | FaultFlags::USER | FaultFlags::PRESENT);
    let mut events = Vec::from(named(0, "python3"));
    events.push((0, map(BASE, 600)));
    events.extend((0..600).map(|page| (0, write(BASE + page))));
    for child in 1..=4 {
        events.push((0, Kind::Clone { child, kind: CloneKind::Fork }));
        let copies = if child == 1 { 600 } else { 200 };
        events.extend((0..copies).map(|page| (child, Kind::Fault { page: BASE + page, flags })));
        events.push((child, EXIT));
    }
    events.push((0, EXIT));
    let file = made("children", |_| {}, 0, &events);
    let report = advice(&file.0, &[]);
    let forks = cause(&report, "fork");
    // The first one has work of its own.
    assert_eq!((&forks["count"], &forks["only_end"]), (&4.into(), &3.into()), "{forks:#}");
    assert!(forks["attempt"].as_str().is_some_and(|text| text.contains("a shell")), "{forks:#}");
    let faults = cause(&report, "fault");
    assert_eq!((&faults["count"], &faults["copies"]), (&1800.into(), &1200.into()), "{faults:#}");
    assert!(faults["attempt"].as_str().is_some_and(|text| text.starts_with("gc.freeze()")), "{faults:#}");
}

#[test]
fn the_longest_call_by_the_clock_is_told_though_it_is_small() {
    let mut events = Vec::from(named(0, "server"));
    events.extend([(0, map(BASE, 100)), (0, took(Call::Mmap, 40_000_000, 0))]);
    events.extend((0..10).map(|page| (0, write(BASE + page))));
    events.extend([(0, Kind::Munmap { start: BASE, pages: 1 }), (0, took(Call::Munmap, 30_000_000, 0))]);
    events.extend([(0, Kind::Brk { end: BASE / 2 }), (0, took(Call::Brk, 20_000_000, 0))]);
    events.push((0, Kind::Clone { child: 1, kind: CloneKind::Fork }));
    events.extend([(0, took(Call::Fork, 5_148_217, 44_498_855)), (1, EXIT), (0, EXIT)]);
    let report = advice(&made("latency", |_| {}, 0, &events).0, &[]);
    let kinds: Vec<_> = report["causes"].as_array().expect("a list").iter().map(|one| &one["kind"]).collect();
    assert_eq!(kinds, ["mmap", "munmap", "brk", "fork"], "{report:#}");
    assert_eq!(cause(&report, "fork")["longest_clock_seconds"], 0.049647072);
}

#[test]
fn each_field_of_a_cause_is_documented() {
    let page = include_str!("../../advise-reference.md");
    let report = advice(&with_children("fields", 100_000, |_| true).0, &[]);
    let causes = report["causes"].as_array().expect("a list");
    assert!(causes.len() >= 2, "{report:#}");
    for name in causes.iter().flat_map(|cause| cause.as_object().expect("an object").keys()) {
        assert!(page.contains(&format!("`{name}`")), "docs/advise-reference.md lacks {name}");
    }
}

#[test]
fn a_program_that_is_started_often_is_told_to_start_less() {
    let mut events = Vec::from(named(0, "jobs"));
    for child in 1..=20 {
        events.push((0, Kind::Clone { child, kind: CloneKind::Vfork }));
        events.extend(named(child, "interpreter"));
        events.push((child, map(BASE, 100)));
        events.extend((0..100).map(|page| (child, write(BASE + page))));
        events.push((child, Kind::Exit { last: true }));
    }
    events.push((0, Kind::Exit { last: true }));
    let report = advice(&made("starts", |_| {}, 0, &events).0, &[]);
    let attempt = cause(&report, "fault")["attempt"].as_str().expect("a text");
    assert!(
        attempt.starts_with("start it less often: each of 20 starts makes 100 faults;"),
        "{attempt}: {report:#}"
    );
}
