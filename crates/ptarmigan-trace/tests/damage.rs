//! Damaged and forged traces of all formats: always a clear error, never a panic, and no more
//! memory than the trailer promises.
#[path = "harness/forge.rs"]
mod forge;
mod harness;

use forge::Parts;
use ptarmigan_trace::{
    AreaKind, Call, Cause, CloneKind, Event, FailedCall, FaultFlags, Header, HugePages, Kind, Locking,
    MapFlags, Method, Name, Note, Object, Place, Prot, ReadError, Reader, Runtime, Sampled, Summary,
    TraceFile, UnreadReason, Writer,
};
use std::fs::OpenOptions;
use std::io::Write;
use tempfile::NamedTempFile;

/// Makes a file that is removed when it is dropped.
fn temporary(bytes: &[u8]) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a temporary file");
    put(&file, bytes);
    file
}

fn put(file: &NamedTempFile, bytes: &[u8]) {
    std::fs::write(file.path(), bytes).expect("our file");
}

/// Events that all formats have.
fn old_events() -> Vec<Event> {
    let at = |task, cpu, kind| Event { task, cpu, kind };
    let fault = |page, flags| Kind::Fault { page, flags: FaultFlags(flags) };
    let (start, pages) = (0x7_f000_0000, 700);
    vec![
        at(0, 0, Kind::Exec { stack_end: 0x7_ffff_efff, arg_pages: 2 }),
        at(0, 0, Kind::Area { start: 0x400, pages: 30, prot: Prot(5), kind: AreaKind::File }),
        at(0, 0, Kind::Area { start: 0x7_fff0_0000, pages: 34, prot: Prot(3), kind: AreaKind::Stack }),
        at(0, 0, Kind::Brk { end: 0x5000 }),
        at(0, 0, fault(0x400, 20)),
        at(0, 1, Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(MapFlags::ANON) }),
        at(0, 1, fault(start + 600, 6)),
        at(0, 1, Kind::Clone { child: 1, kind: CloneKind::Vfork }),
        at(1, 1, Kind::Mprotect { start, pages: 5, prot: Prot(0) }),
        at(1, 1, Kind::Madvise { start, pages, advice: 4 }),
        at(1, 1, Kind::Mremap { from: start, old_pages: 5, to: 0x9_0000, new_pages: 900, keep: false }),
        at(1, 1, Kind::Truth { tables: 12, at: Sampled::Exit }),
        at(1, 1, Kind::Exit { last: true }),
        at(1, 1, Kind::Idle),
        at(0, 0, Kind::Munmap { start, pages: 1 }),
        at(0, 0, Kind::TlbFlush { pages: 0, reason: 3 }),
        at(0, 0, Kind::Clone { child: 2, kind: CloneKind::Fork }),
        at(2, 2, fault(0x400, 6)),
        at(2, 2, Kind::Exit { last: false }),
        at(0, 0, Kind::Exit { last: true }),
    ]
}

/// Events of format 2.
fn new_events() -> Vec<Event> {
    let (start, pages) = (0x7_f000_0000, 9);
    let mut all = old_events();
    let more = [
        Kind::Name(Name::new("a program")),
        Kind::Pid(4_000_000),
        Kind::StackLimit { pages: 1 << 20 },
        Kind::Lock { start, pages, how: Locking(5) },
        Kind::LockAll { how: Locking(7) },
        Kind::Touched { start: 512, pages: 512, flags: FaultFlags(FaultFlags::HUGE) },
        Kind::Failed { errno: 12, call: FailedCall::Mprotect { start, pages, prot: Prot(1) } },
        Kind::Failed { errno: 22, call: FailedCall::Madvise { start, pages, advice: 300 } },
        Kind::Failed { errno: 12, call: FailedCall::Lock { start, pages, how: Locking(1) } },
        Kind::Failed { errno: 14, call: FailedCall::Mremap { start, pages, to: 2, keep: true } },
    ];
    all.splice(4..4, more.map(|kind| Event { task: 0, cpu: 0, kind }));
    all
}

/// Events of format 3, with the names and the place that they refer to.
fn noted_events(w: &mut Writer<Vec<u8>>) -> Vec<Event> {
    let function = Some(w.text("grow(int)").expect("a name"));
    let name = Some(w.text("libexample.so.1").expect("a name"));
    let main = Place { function, module: name, line: 7, ..Place::default() };
    let caller = Some(w.place(main).expect("a place"));
    let place = Some(w.place(Place { function, caller, ..Place::default() }).expect("a place"));
    let mut all = new_events();
    let notes = [
        Note::StopCost { nanos: 900 },
        Note::Mapped { start: 0x500, pages: 3, object: Object::Library, name },
        Note::Runtime(Runtime::Go),
        Note::Caller { cause: Cause::Fault, page: 0x501, events: 61, place },
        Note::Took { call: Call::Mmap, nanos: 1 << 40, away: 5 },
        Note::Used { user: 1, system: 2, minor: 3, major: 4, waits: 5, preempted: 6 },
    ];
    all.splice(5..5, notes.map(|note| Event { task: 0, cpu: 0, kind: Kind::Note(note) }));
    for note in [Note::Took { call: Call::Exit, nanos: 7, away: 0 }, notes[5]] {
        all.push(Event { task: 0, cpu: 0, kind: Kind::Note(note) });
    }
    all
}

/// Events of format 4: settings of the machine, and programs that were not read.
fn newest_events(w: &mut Writer<Vec<u8>>) -> Vec<Event> {
    let mut text = |text| w.text(text).expect("a text");
    let settings = [("enabled", "always"), ("hugepages-64kB/enabled", "inherit")]
        .map(|(name, value)| Note::Setting { name: text(name), value: text(value) });
    let named = Note::Unread { name: Some(text("quick")), why: UnreadReason::Ended };
    let mut all = noted_events(w);
    let at = |task, note| Event { task, cpu: 0, kind: Kind::Note(note) };
    all.splice(0..0, settings.map(|note| at(0, note)));
    all.insert(7, at(0, named));
    all.push(at(2, Note::Unread { name: None, why: UnreadReason::RecordingEnded }));
    all
}

fn writer() -> Writer<Vec<u8>> {
    Writer::new(Vec::new(), &Header::new("sample", 3, Method::Tracefs), 3).expect("a good header")
}

/// Returns a trace of format `version` with three CPUs.
fn sample(version: u16) -> Parts {
    let mut header = Header::new("sample", 3, Method::Tracefs);
    header.huge = if version == 1 { HugePages::Unknown } else { HugePages::Advised };
    let mut w = Writer::new(Vec::new(), &header, 3).expect("a good header");
    let events = match version {
        1 => old_events(),
        2 => new_events(),
        3 => noted_events(&mut w),
        _ => newest_events(&mut w),
    };
    for (n, e) in events.iter().enumerate() {
        if version > 1 {
            w.time(n as u64 / 3 * 1000).expect("it has passed");
        }
        w.event(e).expect("a good event");
    }
    let (trace, counts) = w.finish(0).expect("memory takes everything");
    forge::parts(&trace, &counts).version(version)
}

fn read(bytes: &[u8]) -> Result<Vec<Event>, ReadError> {
    Reader::new(bytes)?.collect()
}

/// Reads all events of a file.
fn read_file(file: &NamedTempFile) -> Result<Vec<Event>, ReadError> {
    TraceFile::open(file.path())?.events()?.collect()
}

#[test]
fn all_formats_are_read() {
    let (noted, newest) = (noted_events(&mut writer()), newest_events(&mut writer()));
    for (version, events) in [(1, old_events()), (2, new_events()), (3, noted), (4, newest)] {
        let trace = sample(version).trace();
        assert_eq!(Reader::new(&trace[..]).expect("a header").header().version(), version);
        assert_eq!(read(&trace).expect("a whole trace"), events);
        assert_eq!(read_file(&temporary(&trace)).expect("a whole trace"), events);
    }
}

#[test]
fn an_older_format_has_no_kinds_of_a_newer_one() {
    for (version, older) in [(3, 2), (4, 3), (4, 2)] {
        let error =
            read(&sample(version).version(older).trace()).expect_err("it has newer kinds").to_string();
        assert!(error.contains("unknown kind of event"), "{error}");
    }
    // The other kind of format 4, without the texts of a setting before it.
    let unread = [14, 20, 0, 0, 15];
    let forged = Parts::new(&Header::new("unread", 1, Method::Synthetic), &unread).version(3);
    assert!(
        matches!(read(&forged.trace()), Err(ReadError::Damaged { what, .. }) if what.contains("unknown kind"))
    );
}

#[test]
fn unrecorded_programs_are_counted_in_the_newest_format() {
    let header = Header::new("part", 1, Method::Tracefs);
    let mut w = Writer::new(Vec::new(), &header, 1).expect("a good header");
    w.set_unrecorded(3_229);
    let (trace, counts) = w.finish(7).expect("memory takes everything");
    let file = temporary(&trace);
    let summary = *TraceFile::open(file.path()).expect("a whole trace").summary();
    assert_eq!((summary, summary.unrecorded, summary.lost), (counts, 3_229, 7));
    let mut reader = Reader::new(&trace[..]).expect("a header");
    assert!(reader.by_ref().all(|event| event.is_ok()));
    assert_eq!(reader.summary(), Some(&counts));
    // The bytes were 0 before.
    for version in [1, 2] {
        let older = forge::parts(&trace, &counts).version(version);
        let old = older.clone().trace();
        let error = read(&old).expect_err("nothing of the kind").to_string();
        assert!(error.contains("trailer"), "{error}");
        assert!(read_file(&temporary(&old)).is_err());
    }
}

#[test]
fn names_and_places_come_back() {
    let mut w = writer();
    let main = w.text("main").expect("a name");
    assert_eq!(w.text("main").expect("the same name"), main);
    let outer = w.place(Place { function: Some(main), line: 3, ..Place::default() }).expect("a place");
    let inner =
        Place { function: Some(w.text("grow").expect("a name")), caller: Some(outer), ..Place::default() };
    let place = Some(w.place(inner).expect("a place"));
    let caller = Note::Caller { cause: Cause::Call(Call::Fork), page: 0, events: 1, place };
    w.event(&Event { task: 0, cpu: 0, kind: Kind::Note(caller) }).expect("a good event");
    let (bytes, _) = w.finish(0).expect("memory takes everything");
    let mut reader = Reader::new(&bytes[..]).expect("a header");
    let Some(Ok(Event { kind: Kind::Note(Note::Caller { place: Some(place), .. }), .. })) = reader.next()
    else {
        panic!("the caller comes back")
    };
    let symbols = reader.symbols();
    let names: Vec<&str> =
        symbols.callers(place).map(|p| p.function.map_or("?", |text| symbols.text(text))).collect();
    assert_eq!(names, ["grow", "main"]);
}

#[test]
fn names_that_no_trace_may_have_are_refused() {
    let (mut w, mut other) = (writer(), writer());
    for bad in ["", "a\nb", &"x".repeat(513)] {
        assert!(w.text(bad).is_err(), "{bad:?}");
    }
    let path = w.text("lib/libexample.so").expect("functions may have slashes");
    let mapped = |name| Event {
        task: 0,
        cpu: 0,
        kind: Kind::Note(Note::Mapped { start: 1, pages: 1, object: Object::File, name: Some(name) }),
    };
    assert!(w.event(&mapped(path)).is_err(), "mappings have no path");
    let _first = other.text("first").expect("a name");
    let foreign = other.text("second").expect("a name");
    assert!(w.event(&mapped(foreign)).is_err());
    assert!(w.place(Place { function: Some(foreign), ..Place::default() }).is_err());
}

#[test]
fn a_stack_of_127_frames_comes_back_as_a_whole() {
    let mut w = writer();
    let mut place = None;
    for frame in 0..127 {
        // The same function calls itself: frames differ by their callers alone.
        let function = Some(w.text(["main", "descend"][usize::from(frame > 0)]).expect("a name"));
        place = Some(w.place(Place { function, caller: place, ..Place::default() }).expect("a place"));
    }
    let caller = Note::Caller { cause: Cause::Fault, page: 9, events: 1, place };
    w.event(&Event { task: 0, cpu: 0, kind: Kind::Note(caller) }).expect("a good event");
    let (bytes, _) = w.finish(0).expect("memory takes everything");
    let mut reader = Reader::new(&bytes[..]).expect("a header");
    let Some(Ok(Event { kind: Kind::Note(Note::Caller { place: Some(place), .. }), .. })) = reader.next()
    else {
        panic!("the caller comes back")
    };
    let names: Vec<&str> = reader
        .symbols()
        .callers(place)
        .map(|p| p.function.map_or("?", |text| reader.symbols().text(text)))
        .collect();
    assert_eq!((names.len(), names[0], names[125], names[126]), (127, "descend", "descend", "main"));
}

#[test]
fn a_trace_of_any_format_that_is_cut_says_so() {
    for version in [1, 2, 3, 4] {
        let trace = sample(version).trace();
        let file = temporary(&trace);
        let open = OpenOptions::new().write(true).open(file.path()).expect("our file");
        for n in (1..trace.len()).rev() {
            let cut = |e: ReadError| assert!(matches!(e, ReadError::Truncated { .. }), "{n}: {e}");
            cut(read(&trace[..n]).expect_err("it was cut"));
            open.set_len(n as u64).expect("our file");
            cut(read_file(&file).expect_err("it was cut"));
        }
        assert!(matches!(read(&[]), Err(ReadError::NotATrace)));
    }
}

#[test]
fn a_changed_byte_of_any_format_is_noticed() {
    for version in [1, 2, 3, 4] {
        let trace = sample(version).trace();
        let file = temporary(&trace);
        for at in 0..trace.len() {
            for flip in [1, 0x10, 0x80, 0xff] {
                let mut bad = trace.clone();
                bad[at] ^= flip;
                let error = read(&bad).expect_err("it was changed").to_string();
                assert!(!error.contains('\n') && !error.contains("event 18446744073709551615"), "{error}");
                put(&file, &bad);
                assert!(TraceFile::open(file.path()).is_err(), "byte {at}: noticed before any event is read");
            }
        }
    }
}

#[test]
fn parts_of_one_trace_in_another_are_noticed() {
    let (a, b) = (sample(1), sample(2));
    let (one, two) = (a.trace(), b.trace());
    let ends = |p: &Parts, t: &[u8]| [p.header.len() + 8, t.len() - 184];
    let ([a1, a2], [b1, b2]) = (ends(&a, &one), ends(&b, &two));
    let piece = |n: usize, part: usize| match (n, part) {
        (0, 0) => &one[..a1],
        (0, 1) => &one[a1..a2],
        (0, _) => &one[a2..],
        (_, 0) => &two[..b1],
        (_, 1) => &two[b1..b2],
        _ => &two[b2..],
    };
    for mix in 1..7 {
        let spliced = [piece(mix & 1, 0), piece(mix >> 1 & 1, 1), piece(mix >> 2, 2)].concat();
        let error = read(&spliced).expect_err("parts of two traces").to_string();
        assert!(error.contains("checksum") || error.contains("damaged"), "{mix}: {error}");
        let file = temporary(&spliced);
        assert!(matches!(TraceFile::open(file.path()), Err(ReadError::Checksum { part: "events" })));
    }
}

#[test]
fn any_rows_with_correct_checksums_are_read_or_refused() {
    // Every byte of the rows takes values that mean something elsewhere.
    const VALUES: [u8; 18] = [0, 1, 2, 3, 4, 7, 8, 13, 14, 15, 16, 0x20, 0x2e, 0x40, 0x7f, 0x80, 0xfe, 0xff];
    let mut refused = 0;
    for version in [1, 2, 3, 4] {
        let whole = sample(version);
        for at in 0..whole.rows.len() {
            for value in VALUES {
                let mut bad = whole.clone();
                bad.rows[at] = value;
                let (_, complete) = harness::read_any(&bad.trace());
                refused += usize::from(!complete);
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn rows_of_one_trace_in_another_are_read_or_refused() {
    let (old, new) = (sample(1), sample(2));
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..3000 {
        let (mut into, from) = if random.bool() { (old.clone(), &new) } else { (new.clone(), &old) };
        let at = random.usize(..into.rows.len());
        let gone = random.usize(..into.rows.len() - at).min(random.usize(..20));
        let start = random.usize(..from.rows.len());
        let end = start + random.usize(..from.rows.len() - start).min(40);
        into.rows.splice(at..at + gone, from.rows[start..end].iter().copied());
        into.counts.row_bytes = into.rows.len() as u64;
        harness::read_any(&into.trace());
    }
}

#[test]
fn headers_that_lie_are_refused() {
    for version in [1, 2, 3, 4] {
        let whole = sample(version);
        let good = Reader::new(&whole.trace()[..]).expect("a header").header().clone();
        for at in 8..whole.header.len() {
            for value in 0..=255 {
                let mut bad = whole.clone();
                bad.header[at] = value;
                let trace = bad.trace();
                let Ok(reader) = Reader::new(&trace[..]) else { continue };
                let h = reader.header();
                assert!(h.cpus > 0 && (10..=16).contains(&h.page_shift), "{h:?}");
                assert!(!h.name().contains(|c: char| c.is_control() || c == '/'), "{h:?}");
                assert!(h.version() > 1 || (h.unseen.0 < 128 && h.huge == HugePages::Unknown), "{h:?}");
                if *h != good {
                    harness::read_any(&trace);
                }
            }
        }
    }
    // The name is the last six bytes.
    for name in [&b"a\xffmple"[..], b"sam\0le", b"sam\x1b[m", b"sam/le", b"s\xc2\x85ple", b"sam\x7fle"] {
        let mut bad = sample(2);
        let at = bad.header.len() - name.len();
        bad.header[at..].copy_from_slice(name);
        let error = read(&bad.trace()).expect_err("no name").to_string();
        assert!(error.contains("the name is not"), "{error}");
    }
}

#[test]
fn trailers_that_lie_are_refused() {
    let file = temporary(b"");
    let lies: [fn(&mut Summary); 12] = [
        |s| s.events += 1,
        |s| s.events -= 1,
        |s| s.events = u64::MAX,
        |s| s.tasks += 1,
        |s| s.tasks = 0,
        |s| s.tasks = u32::MAX,
        |s| s.by_kind[0] = u64::MAX,
        |s| s.by_kind[15] = 1,
        |s| s.row_bytes = 0,
        |s| s.row_bytes += 1,
        // These agree with themselves.
        |s| {
            s.events -= 1;
            s.by_kind[0] -= 1;
        },
        |s| {
            s.events += 1 << 60;
            s.by_kind[0] += 1 << 60;
            s.row_bytes += 1 << 61;
        },
    ];
    for (n, lie) in lies.iter().enumerate() {
        let mut bad = sample(2);
        lie(&mut bad.counts);
        let trace = bad.trace();
        put(&file, &trace);
        // Contradictions are seen before the first event.
        assert!(n > 8 || TraceFile::open(file.path()).is_err(), "{n}");
        for result in [read(&trace), read_file(&file)] {
            let error = result.expect_err("wrong counts").to_string();
            assert!(error.contains("the trailer c"), "{n}: {error}");
        }
    }
    // Losses are not among the events.
    let mut good = sample(2);
    good.counts.lost = u64::MAX;
    assert!(read(&good.trace()).is_ok());
}

#[test]
fn a_file_is_read_no_further_than_its_trailer_counts() {
    // 64 MiB of rows in a few kilobytes, behind a trailer that counts three of them: faults, times,
    // and forks.
    for row in [&[0u8, 4, 2][..], &[14, 0, 1], &[1, 0]] {
        let rows: Vec<u8> = row.iter().copied().cycle().take((64 << 20) / row.len() * row.len()).collect();
        let mut bomb = Parts::new(&Header::new("bomb", 1, Method::Synthetic), &rows);
        (bomb.counts.events, bomb.counts.by_kind[0], bomb.counts.row_bytes) = (3, 3, 10);
        let trace = bomb.trace();
        assert!(trace.len() < 1 << 16);
        let file = temporary(&trace);
        let mut reader =
            TraceFile::open(file.path()).and_then(TraceFile::events).expect("its checksums agree");
        let read = reader.by_ref().take_while(Result::is_ok).count();
        assert!(read <= 3, "{read} events");
        assert!(reader.next().is_none() && reader.summary().is_none());
        let mut reader =
            TraceFile::open(file.path()).and_then(TraceFile::events).expect("its checksums agree");
        let error = reader.find_map(Result::err).expect("too much");
        assert!(error.to_string().contains("the trailer counts other events"), "{error}");
    }
}

#[test]
fn frames_that_are_not_what_a_trace_has() {
    let whole = sample(2);
    let frame = zstd::encode_all(&whole.rows[..], 1).expect("memory takes everything");
    let half = whole.rows.len() / 2;
    let split = [&whole.rows[..half], &whole.rows[half..]]
        .map(|part| zstd::encode_all(part, 1).expect("memory takes everything"))
        .concat();
    let mut wide = zstd::Encoder::new(Vec::new(), 1).expect("memory takes everything");
    wide.window_log(30).and_then(|()| wide.include_contentsize(false)).expect("a setting");
    // Enough for the frame to need its window.
    let long: Vec<u8> = whole.rows.iter().copied().chain(std::iter::repeat_n(0, 1 << 20)).collect();
    wide.write_all(&long).expect("memory takes everything");
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4][..], &frame].concat();
    let frames: [(&str, Vec<u8>); 7] = [
        ("none", Vec::new()),
        ("empty", zstd::encode_all(&[][..], 1).expect("memory takes everything")),
        ("two", split),
        ("twice", [&frame[..], &frame].concat()),
        ("a window of 1 GiB", wide.finish().expect("memory takes everything")),
        ("a skippable one first", skippable),
        ("no frame", vec![0x55; 200]),
    ];
    for (what, frame) in frames {
        let trace = whole.with_frame(&frame);
        let error = read(&trace).expect_err(what).to_string();
        assert!(error.lines().count() == 1, "{what}: {error}");
        assert!(read_file(&temporary(&trace)).is_err(), "{what}");
    }
}

#[test]
fn times_of_format_1_are_no_rows_of_it() {
    let header = Header::new("times", 1, Method::Synthetic);
    let rows = Parts::new(&header, &[14, 0, 1, 15]);
    let error = read(&rows.clone().version(1).trace()).expect_err("no row of format 1").to_string();
    assert!(error.contains("an unknown kind of event"), "{error}");
    assert_eq!(read(&rows.trace()).expect("a time"), []);
    // The step that would wrap to an earlier time, after one that is not too far.
    let wraps = [14, 0, 5, 14, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 15];
    let error = read(&Parts::new(&header, &wraps).trace()).expect_err("it wraps").to_string();
    assert!(error.contains("a time of more than 52 bits"), "{error}");
}

#[test]
fn tasks_that_never_existed_are_refused() {
    // Tasks 1, 2^31 and the last of all; and one below 0.
    for delta in [&[2u8][..], &[0x80, 0x80, 0x80, 0x80, 0x10], &[0xfe, 0xff, 0xff, 0xff, 0x1f], &[1]] {
        for kind in [4u8, 12, 6] {
            let rows = [&[kind | 0x20][..], delta, &[0, 0, 1, 15]].concat();
            for version in [1, 2, 3, 4] {
                let forged = Parts::new(&Header::new("tasks", 1, Method::Synthetic), &rows).version(version);
                let error = read(&forged.trace()).expect_err("no such task").to_string();
                assert!(error.contains("a task that"), "{error}");
            }
        }
    }
}
