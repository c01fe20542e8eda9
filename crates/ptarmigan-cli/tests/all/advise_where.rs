//! Advice says where: the program, the mapping, the allocator and its switch, the function.
use crate::advise::{BASE, EXEC, advice, figure, kinds, made, map, piece, reason, write};
use crate::program::{Temporary, crate_file};
use crate::report::{Dir, report};
use ptarmigan_trace::{Cause, Event, Header, Kind, Method, Name, Note, Object, Place, Runtime, Writer};
use serde_json::Value;

const EXIT: Kind = Kind::Exit { last: true };

/// A program that fills 8 MiB, with the given runtimes, in its heap or not.
fn dense(name: &str, runtimes: &[Runtime], heap: bool) -> Temporary {
    let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new("app")))];
    events.extend(runtimes.iter().map(|runtime| (0, Kind::Note(Note::Runtime(*runtime)))));
    if heap {
        events.extend([(0, Kind::Brk { end: BASE }), (0, Kind::Brk { end: BASE + 4 * 512 })]);
    } else {
        events.push((0, map(BASE, 4 * 512)));
    }
    events.extend((0..4 * 512).map(|page| (0, write(BASE + page))));
    events.push((0, EXIT));
    made(name, |_| {}, 0, &events)
}

fn how(report: &Value) -> String {
    piece(report, "huge-pages")["how"].as_str().expect("a text").to_owned()
}

#[test]
fn the_switch_is_that_of_the_allocator_that_owns_the_mapping() {
    use Runtime::{Glibc, Go, Jemalloc, Jvm, Python, V8};
    let of = |name: &str, runtimes: &[Runtime], heap| how(&advice(&dense(name, runtimes, heap).0, &[]));
    let cases: [(&str, &[Runtime], bool, &str); 7] = [
        ("glibc-heap", &[Glibc], true, "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"),
        ("glibc", &[Glibc], false, "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"),
        ("jemalloc", &[Glibc, Jemalloc], false, "MALLOC_CONF=thp:always"),
        ("jvm", &[Glibc, Jvm], false, "-XX:+UseTransparentHugePages"),
        ("go", &[Go], false, "Go's runtime has no switch"),
        ("node", &[Glibc, V8], false, "--v8-enable-hugepage"),
        ("python", &[Glibc, Python], false, "PYTHON_PYMALLOC_HUGEPAGES=1"),
    ];
    for (name, runtimes, heap, switch) in cases {
        let how = of(name, runtimes, heap);
        assert!(how.contains("app: ") && how.contains(switch), "{name}: {how}");
        let glibc = switch.starts_with("GLIBC") || name == "python";
        assert_eq!(how.contains("GLIBC_TUNABLES"), glibc, "{name}: {how}");
    }
    let unknown = of("unknown", &[], false);
    assert!(unknown.contains("no switch is named") && unknown.contains("MADV_HUGEPAGE"), "{unknown}");
    assert!(!unknown.contains("GLIBC_TUNABLES"), "{unknown}");
}

/// A program with 8 MiB of shared memory, `cache`, that `load` fills to three quarters.
fn named() -> Temporary {
    named_with(300, 100)
}

fn named_with(known: u64, unknown: u64) -> Temporary {
    let file = Temporary::new(&format!("named{known}.ptrace"));
    let mut writer = Writer::new(Vec::new(), &Header::new("run", 1, Method::Synthetic), 3).expect("a header");
    let texts = ["load", "store.c", "cache"].map(|text| writer.text(text).expect("a text"));
    let place = Place { function: Some(texts[0]), file: Some(texts[1]), line: 12, ..Place::default() };
    let place = Some(writer.place(place).expect("a place"));
    let note = |note| Kind::Note(note);
    let mapped =
        Note::Mapped { start: BASE, pages: 2048, object: Object::SharedMemory, name: Some(texts[2]) };
    let caller = |events, place| note(Note::Caller { cause: Cause::Fault, page: BASE, events, place });
    let mut kinds = vec![EXEC, Kind::Name(Name::new("app")), map(BASE, 2048), note(mapped)];
    kinds.extend((0..2048).map(|page| write(BASE + page)));
    kinds.extend([caller(known, place), caller(unknown, None), EXIT]);
    for kind in kinds {
        writer.event(&Event { task: 0, cpu: 0, kind }).expect("an event");
    }
    std::fs::write(&file.0, writer.finish(0).expect("a trace").0).expect("a temporary file");
    file
}

#[test]
fn advice_names_program_mapping_and_function() {
    let file = named();
    let report = advice(&file.0, &[]);
    let found = piece(&report, "huge-pages");
    assert_eq!(found["title"], "use huge pages for 4 regions of 2 MiB, all full: app");
    let place = &found["places"][0];
    assert_eq!((&place["program"], &place["mapping"]), (&"app".into(), &"shared memory cache".into()));
    assert_eq!((&place["address"], &place["bytes"]), (&(BASE << 12).into(), &(8 << 20).into()));
    assert_eq!(found["caller"], "load (store.c:12): 75 % of those of app");
    let text = crate::program::ptarmigan(&["advise", "--rounds", "0", file.path()]).good();
    assert!(text.contains("\n   Where: shared memory cache of app at 0x8000000000, 8 MiB."), "{text}");
    assert!(text.contains("\n   Function: load (store.c:12): 75 % of those of app."), "{text}");
    assert!(text.contains("\n   A second recording should show: 4 faults instead of 2,048 (app)."), "{text}");
    assert!(!figure(found).contains("By program"), "one program is in the title: {found:#}");
}

#[test]
fn advice_in_short_has_its_place_and_function_in_one_line() {
    let dir = Dir::new("short-place");
    let file = named();
    let text = report(&[file.path(), "--markdown"]).out;
    let line = "\n   Where: shared memory cache of app at 0x8000000000, 8 MiB. Function: load (store.c:12): 75 % \
                of those of app.\n";
    assert!(text.contains(line), "{text}");
    let page = dir.path("page.html");
    assert_eq!(report(&[file.path(), "-o", &page]).status, Some(0));
    let html = dir.read("page.html");
    assert!(
        html.contains("<br>Where: shared memory cache of app at 0x8000000000, 8 MiB. Function: "),
        "{html}"
    );
    // A recording without either has no such line.
    let dense = crate_file("tests/advise/dense.ptrace");
    assert!(!report(&[&dense, "--markdown"]).out.contains("Function:"));
}

#[test]
fn a_layout_of_a_runtime_is_not_the_users() {
    let sparse = |name: &str, runtime: Option<Runtime>| {
        let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new("app")))];
        events.extend(runtime.map(|runtime| (0, Kind::Note(Note::Runtime(runtime)))));
        events.push((0, map(BASE, 40 * 512)));
        events.extend((0..40).map(|region| (0, write(BASE + region * 512))));
        events.push((0, EXIT));
        advice(&made(name, |_| {}, 0, &events).0, &[])
    };
    for (name, runtime) in [("own", None), ("own-glibc", Some(Runtime::Glibc))] {
        let title = piece(&sparse(name, runtime), "sparse-layout")["title"].clone();
        assert_eq!(title, "keep pages together: 40 pages are spread over 40 tables: app");
    }
    for (runtime, owner) in
        [(Runtime::Jvm, "the Java virtual machine"), (Runtime::Go, "Go's runtime"), (Runtime::V8, "V8")]
    {
        let report = sparse("laid-out", Some(runtime));
        assert_eq!(kinds(&report), [""; 0], "{report:#}");
        let said =
            format!("keep pages together: 40 pages are spread over 40 tables, laid out by {owner} of app");
        assert_eq!(reason(&report, "sparse-layout"), said);
    }
}

#[test]
fn a_function_of_a_small_part_is_not_the_answer() {
    let named = |known| {
        let file = named_with(known, 1000 - known);
        piece(&advice(&file.0, &[]), "huge-pages")["caller"].clone()
    };
    assert_eq!(named(100), "load (store.c:12): 10 % of those of app");
    assert_eq!(named(99), Value::Null);
}

#[test]
fn sentences_about_no_table_are_left_out() {
    // Small pages and huge pages need as many tables without a reserve: one region.
    let mut events = vec![(0, EXEC), (0, map(BASE, 2 * 512)), (0, map(BASE + 2 * 512, 16))];
    events.extend((0..512 + 512 / 2).map(|page| (0, write(BASE + page))));
    events.push((0, EXIT));
    let report = advice(&made("one-table", |_| {}, 0, &events).0, &[]);
    let all = report.to_string();
    for phrase in [" 0 fewer", "makes 0", "most 0", "0 tables (0 KiB)", " 0 more"] {
        assert!(!all.contains(phrase), "{phrase}: {report:#}");
    }
}

#[test]
fn several_programs_are_listed_with_their_shares() {
    let mut events = Vec::new();
    for (task, name, regions) in [(0, "first", 1), (1, "second", 3)] {
        if task > 0 {
            events.push((0, Kind::Clone { child: 1, kind: ptarmigan_trace::CloneKind::Fork }));
        }
        events.extend([(task, EXEC), (task, Kind::Name(Name::new(name))), (task, map(BASE, regions * 512))]);
        events.extend((0..regions * 512).map(|page| (task, write(BASE + page))));
    }
    events.extend([(1, EXIT), (0, EXIT)]);
    let file = made("several", |_| {}, 0, &events);
    let report = advice(&file.0, &[]);
    let found = piece(&report, "huge-pages");
    let title = found["title"].as_str().expect("a text");
    assert!(title.ends_with(": second 3, first 1"), "{title}");
    let text = crate::program::ptarmigan(&["advise", "--rounds", "0", file.path()]).good();
    assert!(text.contains("\n   By program: second 3, first 1.\n"), "{text}");
}

#[test]
fn memory_of_a_shell_is_not_the_users() {
    let mut events = vec![(0, EXEC), (0, Kind::Name(Name::new("bash"))), (0, map(BASE, 4 * 512))];
    events.extend((0..4 * 512).map(|page| (0, write(BASE + page))));
    events.push((0, EXIT));
    let report = advice(&made("shell", |_| {}, 0, &events).0, &[]);
    assert_eq!(kinds(&report), [""; 0], "{report:#}");
    assert_eq!(reason(&report, "huge-pages"), "4 regions were full of programs that start others");
}

#[test]
fn pieces_of_munmap_leave_a_table_as_long_as_an_area_is_left() {
    let mut events = vec![(0, map(BASE, 100 * 512))];
    for region in 0..40 {
        let start = BASE + region * 512;
        events.extend((0..64).map(|page| (0, write(start + page))));
        // All but the last quarter, which has no pages.
        events.push((0, Kind::Munmap { start, pages: 200 }));
        events.push((0, Kind::Munmap { start: start + 200, pages: 184 }));
        if region < 10 {
            // These are given up as a whole in the end: their tables go.
            events.push((0, Kind::Munmap { start: start + 384, pages: 128 }));
        }
    }
    events.push((0, EXIT));
    let report = advice(&made("pieces", |_| {}, 0, &events).0, &[]);
    let found = piece(&report, "empty-tables");
    assert_eq!(found["saved"]["tables_at_end"], 30, "{found:#}");
    assert!(figure(found).contains(" and 30 tables (120 KiB) at the ends of address spaces."), "{found:#}");
}

#[test]
fn whole_tables_that_linux_takes_back_since_6_14_are_counted() {
    let mut events = vec![(0, map(BASE, 40 * 512))];
    events.extend((0..40 * 64).map(|n| (0, write(BASE + n / 64 * 512 + n % 64))));
    events.push((0, Kind::Madvise { start: BASE, pages: 40 * 512, advice: 4 }));
    events.push((0, EXIT));
    let report = advice(&made("whole", |_| {}, 0, &events).0, &[]);
    let why = reason(&report, "empty-tables");
    assert!(why.starts_with("memory that is given back leaves no empty table behind"), "{why}");
    assert!(why.contains("for whole tables give 40 tables (160 KiB) back on Linux 6.14"), "{why}");
}
