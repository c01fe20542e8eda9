//! Advice on children that live on: few requests for each, subshells, and inherited memory that is
//! copied page after page.
use crate::advise::{BASE, EXEC, advice, figure, kinds, made, made_with, map, piece, reason, write};
use crate::program::{Temporary, text};
use ptarmigan_trace::{
    Call, Cause, CloneKind, Event, FaultFlags, Header, Kind, MapFlags, Method, Name, Note, Object, Place,
    Prot, Runtime, Writer,
};

const EXIT: Kind = Kind::Exit { last: true };

fn fork(child: u32) -> Kind {
    Kind::Clone { child, kind: CloneKind::Fork }
}

fn named(task: u32, name: &str) -> [(u32, Kind); 2] {
    [(task, EXEC), (task, Kind::Name(Name::new(name)))]
}

fn copy(page: u64) -> Kind {
    let flags = FaultFlags::WRITE | FaultFlags::USER | FaultFlags::PRESENT;
    Kind::Fault { page, flags: FaultFlags(flags) }
}

/// A process of 400 pages that forks 40 children, one after the other. Each copies `copies` pages
/// and touches 30 of its own; its parent copies `by_parent`.
fn forks_again(name: &str, program: &str, copies: u64, by_parent: u64) -> Temporary {
    let mut events = Vec::from(named(0, program));
    events.push((0, map(BASE, 400)));
    events.extend((0..400).map(|page| (0, write(BASE + page))));
    for child in 1..=40 {
        events.extend([
            (0, fork(child)),
            (0, Kind::Note(Note::Took { call: Call::Fork, nanos: 400_000, away: 0 })),
        ]);
        events.push((child, map(BASE << 1, 30)));
        events.extend((0..30).map(|page| (child, write((BASE << 1) + page))));
        events.extend((0..copies).map(|page| (child, copy(BASE + page))));
        events.extend((0..by_parent).map(|page| (0, copy(BASE + page))));
        events.push((child, EXIT));
    }
    events.push((0, EXIT));
    made(name, |_| {}, 0, &events)
}

#[test]
fn children_of_one_request_should_serve_several() {
    let report = advice(&forks_again("server", "fuzzed", 100, 2).0, &[]);
    let found = piece(&report, "pooler");
    assert_eq!(found["title"], "let a child serve several requests: 40 forks of fuzzed");
    let text = figure(found);
    assert!(text.starts_with("40 children of one fuzzed start no program, make 130 faults each"), "{text}");
    // 39 children only repeat faults.
    assert_eq!(found["saved"]["faults"], 39 * 130, "{found:#}");
    assert!(found["how"].as_str().is_some_and(|how| how.contains("__AFL_LOOP")), "{found:#}");
    let how = found["how"].as_str().expect("a text");
    assert!(how.contains("If it is a shell's script"), "no file's name is known: {how}");
    let report = advice(&forks_again("python", "python3", 100, 2).0, &[]);
    let how = piece(&report, "pooler")["how"].as_str().expect("a text").to_owned();
    assert!(how.contains("maxtasksperchild"), "{how}");
}

#[test]
fn snapshots_of_a_writing_parent_need_fresh_forks() {
    let report = advice(&forks_again("snapshots", "server", 10, 200).0, &[]);
    assert!(!kinds(&report).contains(&"pooler"), "{report:#}");
    assert!(reason(&report, "pooler").starts_with("server forked 40 times"), "{report:#}");
}

/// A shell that forks 60 children with 8 faults each, of which the last `programs` start one.
fn script(name: &str, shell: &str, programs: u32) -> Temporary {
    let mut events = Vec::from(named(0, shell));
    events.push((0, map(BASE, 100)));
    events.extend((0..100).map(|page| (0, write(BASE + page))));
    for child in 1..=60 {
        events.push((0, fork(child)));
        events.extend((0..8).map(|page| (child, copy(BASE + page))));
        events.extend((0..4).map(|page| (0, copy(BASE + page))));
        if child > 60 - programs {
            events.extend(named(child, "ls"));
        }
        events.push((child, EXIT));
    }
    events.push((0, EXIT));
    made(name, |_| {}, 0, &events)
}

#[test]
fn subshells_of_builtins_are_the_scripts_to_avoid() {
    let report = advice(&script("script", "bash", 2).0, &[]);
    let found = piece(&report, "subshells");
    let title = "let the shell do the work itself: 58 forks without a program, of bash";
    assert_eq!(found["title"], title, "{found:#}");
    assert!(figure(found).starts_with("The script that bash runs forks 58 of 60 times for"), "{found:#}");
    // Faults of the children, and of the shell on pages that these forks protected.
    assert_eq!(found["saved"]["faults"], 58 * (8 + 4), "{found:#}");
    assert!(found["how"].as_str().is_some_and(|how| how.starts_with("printf -v")), "{found:#}");
    assert!(!kinds(&report).contains(&"pooler"), "{report:#}");
    // Children that start programs, and children of other programs, are no subshells.
    let report = advice(&script("starts", "bash", 60).0, &[]);
    assert_eq!(reason(&report, "subshells"), "no shell forks children that start no program");
    let report = advice(&script("server", "server", 2).0, &[]);
    assert_eq!(reason(&report, "subshells"), "no shell forks children that start no program");
}

/// A parent of 4,000 pages with six workers that copy `copies` of them, by `collect` in three of
/// four samples.
fn workers(name: &str, copies: u64) -> Temporary {
    let file = Temporary::new(name);
    let mut writer = Writer::new(Vec::new(), &Header::new(name, 1, Method::Synthetic), 3).expect("a header");
    let mut place = |function| {
        let function = Some(writer.text(function).expect("a text"));
        Some(writer.place(Place { function, ..Place::default() }).expect("a place"))
    };
    let (collect, other) = (place("gc_reset_refs"), place("main"));
    let mut events = Vec::from(named(0, "app"));
    events.push((0, Kind::Note(Note::Runtime(Runtime::Python))));
    events.push((0, map(BASE, 4000)));
    for page in 0..4000 {
        events.push((0, write(BASE + page)));
        let caller = Note::Caller { cause: Cause::Fault, page: BASE + page, events: 1, place: other };
        events.push((0, Kind::Note(caller)));
    }
    for child in 1..=6 {
        events.push((0, fork(child)));
        for page in 0..copies {
            events.push((child, copy(BASE + page)));
            let place = if page % 4 == 0 { other } else { collect };
            let caller = Note::Caller { cause: Cause::Fault, page: BASE + page, events: 1, place };
            events.push((child, Kind::Note(caller)));
        }
    }
    events.extend((1..=6).chain([0]).map(|task| (task, EXIT)));
    for (task, kind) in events {
        writer.event(&Event { task, cpu: 0, kind }).expect("an event");
    }
    std::fs::write(&file.0, writer.finish(0).expect("a trace").0).expect("a temporary file");
    file
}

#[test]
fn workers_that_copy_what_they_inherit_have_their_function() {
    let report = advice(&workers("workers", 1000).0, &[]);
    let found = piece(&report, "sharing-lost");
    assert_eq!(found["title"], "keep memory shared with forked children: 6,000 pages of app copied");
    assert!(figure(found).contains("(an upper bound)"), "{found:#}");
    assert_eq!(found["caller"], "gc_reset_refs: 75 % of those copies", "{found:#}");
    assert!(found["how"].as_str().is_some_and(|how| how.contains("gc.freeze()")), "{found:#}");
    assert_eq!(found["saved"]["faults"], 6000, "{found:#}");
    let report = advice(&workers("few", 200).0, &[]);
    assert!(reason(&report, "sharing-lost").starts_with("no forked child copies"), "{report:#}");
}

/// A shell that starts a program so many times: 300 faults up to its last library, and `job` more.
fn starts(name: &str, program: &str, times: u32, job: u64) -> Temporary {
    let mut events = Vec::from(named(0, "bash"));
    let library = |start: u64| {
        let flags = MapFlags(0);
        Kind::Mmap { start, pages: 16, prot: Prot(5), flags }
    };
    for child in 1..=times {
        events.push((0, fork(child)));
        events.extend(named(child, program));
        events.push((child, map(BASE, 4096)));
        events.extend((0..300).map(|page| (child, write(BASE + page))));
        events.push((child, library(BASE << 1)));
        events.extend((300..300 + job).map(|page| (child, write(BASE + page))));
        events.push((child, EXIT));
    }
    events.push((0, EXIT));
    made(name, |_| {}, 0, &events)
}

#[test]
fn an_interpreter_should_do_several_jobs() {
    let report = advice(&starts("interpreter", "python3.11", 12, 50).0, &[]);
    let found = piece(&report, "starts");
    assert_eq!(found["title"], "let one interpreter do several jobs: 12 starts of python3.11");
    assert!(figure(found).starts_with("python3.11 was started 12 times, with 300 faults"), "{found:#}");
    assert_eq!(found["saved"]["faults"], 11 * 300, "the jobs stay: {found:#}");
    assert!(found["how"].as_str().is_some_and(|how| how.contains("multiprocessing.Pool")), "{found:#}");
    // What stands behind the end of a task is no start.
    let mut ended = Vec::from(named(0, "python3"));
    ended.extend([(0, EXIT), (0, Kind::Note(Note::Took { call: Call::Exit, nanos: 9, away: 0 }))]);
    let ended = advice(&made("ended", |_| {}, 0, &ended).0, &[]);
    assert_eq!(reason(&ended, "starts"), "no program is started often for small jobs");
    let compiler = advice(&starts("compiler", "cc1", 12, 50).0, &[]);
    assert_eq!(reason(&compiler, "starts"), "no program is started often for small jobs", "12 times");
}

#[test]
fn a_small_program_should_do_several_jobs() {
    let often = starts("often", "git", 40, 50);
    let report = advice(&often.0, &[]);
    let found = piece(&report, "starts");
    assert_eq!(found["title"], "let one start do several jobs: 40 starts of git");
    assert_eq!(found["saved"]["faults"], 39 * 350, "{found:#}");
    let large = advice(&starts("large", "cc1", 40, 1000).0, &[]);
    assert_eq!(reason(&large, "starts"), "no program is started often for small jobs");
    // Once instead of forty times, or not at all: that was the advice.
    for (after, program) in [("batch", "git"), ("builtin", "other")] {
        let after = starts(after, program, 1, 50);
        let check = advice(&often.0, &["--check", text(&after.0)]);
        let all = check["check"]["advice"].as_array().expect("a list").clone();
        let one = all.iter().find(|one| one["kind"] == "starts").expect("the piece");
        assert_eq!(one["result"], "held", "{check:#}");
    }
}

#[test]
fn a_script_is_known_by_the_file_of_its_interpreter() {
    let file = made_with(
        "script",
        |_| {},
        0,
        |writer| {
            let name = Some(writer.text("perl").expect("a text"));
            let mut events = Vec::from(named(0, "server"));
            for child in 1..=12 {
                events.push((0, fork(child)));
                events.extend(named(child, "app.cgi"));
                let (start, pages) = (BASE >> 1, 16);
                let mapped = Note::Mapped { start, pages, object: Object::Program, name };
                events.extend([(child, map(start, pages)), (child, Kind::Note(mapped))]);
                events.push((child, map(BASE, 512)));
                events.extend((0..300).map(|page| (child, write(BASE + page))));
                let (prot, flags) = (Prot(5), MapFlags(0));
                events.push((child, Kind::Mmap { start: BASE << 1, pages: 16, prot, flags }));
                events.push((child, EXIT));
            }
            events.push((0, EXIT));
            events
        },
    );
    let report = advice(&file.0, &[]);
    let how = piece(&report, "starts")["how"].as_str().expect("a text").to_owned();
    assert!(how.starts_with("Perl: a process that stays"), "{how}");
}
