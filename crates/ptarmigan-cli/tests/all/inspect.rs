//! `inspect` on good and bad files, with the built program.
use crate::program::{Ran, Temporary, program, ptarmigan, reader_goes_away, shipped};
use ptarmigan_trace::{
    CloneKind, Event, FaultFlags, Header, Kind, Method, Note, Reader, Sampled, UnreadReason, Writer,
};

fn trace() -> Vec<u8> {
    let mut w =
        Writer::new(Vec::new(), &Header::new("small", 2, Method::Synthetic), 3).expect("a good header");
    let fault = |page| Kind::Fault { page, flags: FaultFlags(FaultFlags::USER | FaultFlags::WRITE) };
    let kinds = [
        (0, Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 }),
        (0, fault(0x400)),
        (0, fault(0x7_ffff_fffe)),
        (0, Kind::Clone { child: 1, kind: CloneKind::Fork }),
        (1, fault(0x400)),
        (1, Kind::Truth { tables: 3, at: Sampled::Exit }),
        (1, Kind::Exit { last: true }),
        (0, Kind::Truth { tables: 6, at: Sampled::Exit }),
        (0, Kind::Exit { last: true }),
    ];
    for (task, kind) in kinds {
        w.event(&Event { task, cpu: 1, kind }).expect("a good event");
    }
    w.finish(0).expect("memory takes everything").0
}

/// Runs `inspect` on these bytes.
fn inspect(name: &str, bytes: &[u8], args: &[&str]) -> Ran {
    ptarmigan(&[&["inspect", Temporary::file(name, bytes).path()], args].concat())
}

#[test]
fn a_trace_is_counted() {
    let Ran { status, out, err } = inspect("good", &trace(), &[]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
    assert!(
        out.contains("2 (2 processes, 0 threads)") && out.contains("1 fork, 0 vforks, 1 exec\n"),
        "{out}"
    );
    assert!(out.contains("2 equal to the number of regions touched"), "{out}");
    let json = inspect("json", &trace(), &["--json"]).json();
    assert_eq!(json["by_kind"]["fault"], 3);
    assert_eq!(json["samples"]["max"], 6);
}

/// A trace with settings, and with programs that are not in it.
fn trace_of_a_machine() -> Vec<u8> {
    let mut w =
        Writer::new(Vec::new(), &Header::new("machine", 2, Method::Synthetic), 3).expect("a good header");
    for (name, value) in [
        ("kernel", "6.1.0-9-amd64"),
        ("cpus online", "2"),
        ("enabled", "always"),
        ("hugepages-64kB/enabled", "always"),
        ("hugepages-2048kB/enabled", "inherit"),
    ] {
        w.setting(name, value).expect("a good setting");
    }
    let name = Some(w.text("hush").expect("a text"));
    let unread = |name, why| Kind::Note(Note::Unread { name, why });
    let kinds = [
        Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 },
        unread(name, UnreadReason::Ended),
        unread(name, UnreadReason::Ended),
        Kind::Exit { last: true },
        unread(None, UnreadReason::Narrow),
    ];
    for kind in kinds {
        w.event(&Event { task: 0, cpu: 0, kind }).expect("a good event");
    }
    w.set_unrecorded(3);
    w.finish(0).expect("memory takes everything").0
}

#[test]
fn the_machine_and_the_programs_that_are_missing_are_shown() {
    let trace = trace_of_a_machine();
    let out = inspect("machine", &trace, &[]).good();
    for line in [
        "machine      2 CPUs, Linux 6.1.0, 64 KiB blocks always, huge pages always",
        "programs     1 of 4 programs recorded; the others ended or changed before they",
        "             such as 2 hush (ended)",
    ] {
        assert!(out.lines().any(|l| l == line), "{line}: {out}");
    }
    let json = inspect("machine-json", &trace, &["--json"]).json();
    assert_eq!(json["settings"]["hugepages-64kB/enabled"], "always");
    let unread = |name: Option<&str>, why, programs| serde_json::json!({"name": name, "why": why, "programs": programs});
    let expected = serde_json::json!([unread(Some("hush"), "ended", 2), unread(None, "32 bits", 1)]);
    assert_eq!(json["unread"], expected);
    let events = inspect("machine-events", &trace, &["--events", "--kind", "setting,unread"]).good();
    assert!(
        events.starts_with("0 0.000 cpu=0 task=0 setting name=\"kernel\" value=\"6.1.0-9-amd64\"\n"),
        "{events}"
    );
    assert!(events.contains("6 0.000 cpu=0 task=0 unread why=ended name=\"hush\"\n"), "{events}");
}

#[test]
fn a_copy_for_others_has_the_settings_and_no_names_of_programs() {
    let (file, copy) = (Temporary::file("own", trace_of_a_machine()), Temporary::new("copy"));
    ptarmigan(&["inspect", file.path(), "--share", copy.path()]).good();
    let copied = std::fs::read(copy.path()).expect("the copy");
    let mut reader = Reader::new(&copied[..]).expect("a header");
    let (mut named, mut unread) = (0, 0);
    for event in reader.by_ref() {
        if let Kind::Note(Note::Unread { name, .. }) = event.expect("an event").kind {
            unread += 1;
            named += usize::from(name.is_some());
        }
    }
    assert_eq!((named, unread), (0, 3));
    assert_eq!(reader.settings().get("hugepages-64kB/enabled"), Some("always"));
    assert_eq!(reader.settings().iter().count(), 5);
    assert!(reader.symbols().texts().all(|text| text != "hush"));
}

#[test]
fn bad_files_get_one_line() {
    let good = trace();
    let mut changed = good.clone();
    changed[60] ^= 1;
    let mut newer = good.clone();
    newer[8] = 9;
    let cases: [(&str, &[u8], &str); 6] = [
        ("empty", b"", "not a trace"),
        ("text", b"hello, world\n", "not a trace"),
        ("cut", &good[..good.len() - 10], "truncated"),
        ("start", &good[..5], "truncated"),
        ("changed", &changed, "checksum"),
        ("newer", &newer, "newer version (format 9"),
    ];
    for (name, bytes, message) in cases {
        let Ran { status, out, err } = inspect(name, bytes, &[]);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{name}");
        assert!(
            err.starts_with("ptarmigan: ") && err.lines().count() == 1 && err.contains(message),
            "{name}: {err}"
        );
    }
}

#[test]
fn a_reader_may_stop_at_once_and_at_any_line() {
    // More events than a pipe holds.
    let path = shipped("configure.ptrace");
    for (what, enough) in [("--json", 0), ("--events", 1), ("--events", 100_000)] {
        let text = reader_goes_away(&mut program(&["inspect", what, &path]), enough);
        assert!(text.is_empty() || text.starts_with(b"0"), "the first line is about event 0");
    }
}

#[test]
fn events_are_chosen_by_task_and_kind_and_keep_their_numbers() {
    let lines = |args: &[&str]| -> Vec<String> {
        let Ran { status, out, err } = inspect("choice", &trace(), &[&["--events"], args].concat());
        assert_eq!((status, err.as_str()), (Some(0), ""));
        out.lines().map(str::to_owned).collect()
    };
    let all = lines(&[]);
    assert_eq!(all.len(), 9);
    for (n, line) in all.iter().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[0], n.to_string());
        assert!(words[2] == "cpu=1" && words[3].starts_with("task="), "{line}");
        assert!(words[5..].iter().all(|field| field.contains('=')), "{line}");
    }
    let numbers = |lines: Vec<String>| -> Vec<String> {
        lines.iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(numbers(lines(&["--task", "1"])), ["4", "5", "6"]);
    assert_eq!(numbers(lines(&["--kind", "truth,exit", "--task", "0"])), ["7", "8"]);
    assert_eq!(lines(&["--kind", "lock"]), [""; 0]);
}

#[test]
fn everything_that_a_trace_may_have_fits_80_columns() {
    let mut header = Header::new(&"m".repeat(64), u16::MAX, Method::Perf);
    header.unseen = ptarmigan_trace::Unseen(2047);
    let mut w = Writer::new(Vec::new(), &header, 3).expect("a good header");
    let mut event = |kind| w.event(&Event { task: 0, cpu: 0, kind }).expect("a good event");
    for advice in 0..300 {
        event(Kind::Madvise { start: 1, pages: 1, advice });
    }
    for flags in [0, FaultFlags::USER] {
        event(Kind::Touched { start: 1 << 51, pages: 1 << 51, flags: FaultFlags(flags) });
    }
    event(Kind::LockAll { how: ptarmigan_trace::Locking(7) });
    event(Kind::StackLimit { pages: (1 << 52) - 1 });
    event(Kind::Pid(u32::MAX));
    event(Kind::Truth { tables: u32::MAX, at: Sampled::Exec });
    let trace = w.finish(u64::MAX).expect("memory takes everything").0;
    let Ran { status, out, err } = inspect("wide", &trace, &[]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    for line in out.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(out.contains("at stops     2,251,799,813,685,248 pages found in 1 run that"), "{out}");
    assert!(out.contains("system calls of 32-bit programs") && out.contains("stack-limit 1"), "{out}");
}

#[test]
fn flushes_and_requests_are_distinct_and_unknown_reasons_named() {
    let mut w =
        Writer::new(Vec::new(), &Header::new("flushes", 2, Method::Synthetic), 3).expect("a good header");
    let mut event = |kind| w.event(&Event { task: 0, cpu: 0, kind }).expect("a good event");
    let written = FaultFlags(FaultFlags::USER | FaultFlags::WRITE | FaultFlags::PRESENT);
    event(Kind::Fault { page: 1, flags: written });
    for (reason, pages) in [(4, 1), (3, 1), (0, 0), (1, 7), (5, 0), (5, 0), (77, 1)] {
        event(Kind::TlbFlush { pages, reason });
    }
    event(Kind::Exit { last: true });
    let trace = w.finish(0).expect("memory takes everything").0;
    let out = inspect("flushes", &trace, &[]).good();
    for line in [
        "flushes      1 (1 of one page, 0 of a range, 0 full)",
        "             1 request to other CPUs, 1 for others, 2 to the wrong CPU",
        "             flushes for reason 77, which is not known: 1 event left out",
        "         1 100.0 %  (start): fault",
    ] {
        assert!(out.lines().any(|l| l.starts_with(line)), "{line}: {out}");
    }
    assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
    let flushes = &inspect("flushes-json", &trace, &["--json"]).json()["flushes"];
    assert_eq!(flushes["unknown"]["77"], 1, "{flushes}");
    assert_eq!(flushes["requests"][0]["cause"], "fault", "{flushes}");
    assert!(inspect("none", &trace_without_flushes(), &["--json"]).json()["flushes"].is_null());
}

/// Returns a trace of a method that sees no flushes.
fn trace_without_flushes() -> Vec<u8> {
    let mut header = Header::new("none", 1, Method::Perf);
    header.unseen = ptarmigan_trace::Unseen(ptarmigan_trace::Unseen::TLB_FLUSHES);
    let w = Writer::new(Vec::new(), &header, 3).expect("a good header");
    w.finish(0).expect("memory takes everything").0
}

#[test]
fn events_are_a_table_for_a_data_frame() {
    let out = inspect("csv", &trace(), &["--events", "--csv"]).good();
    let mut lines = out.lines();
    let columns = lines.next().expect("a head").split(',').count();
    // Commas between quotes are no borders.
    let cells =
        |line: &str| line.split('"').step_by(2).map(|part| part.matches(',').count()).sum::<usize>() + 1;
    assert!(lines.clone().count() == 9 && lines.all(|line| cells(line) == columns), "{out}");
    assert_eq!(inspect("csv-alone", &trace(), &["--csv"]).status, Some(2));
}

#[test]
fn wrong_usage() {
    assert_eq!(ptarmigan(&["inspect"]).status, Some(2));
}
