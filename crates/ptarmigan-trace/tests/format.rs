//! The format preserves events and notices every change.
mod harness;
#[path = "harness/wrap.rs"]
mod wrap;

use proptest::prelude::*;
use ptarmigan_trace::{
    AreaKind, Call, Cause, CloneKind, Event, FailedCall, FaultFlags, Header, HugePages, Kind, Locking,
    MapFlags, Method, Name, Note, Object, Prot, ReadError, Reader, Runtime, Sampled, Summary, TraceFile,
    UnreadReason, Unseen, WriteError, Writer, kind_index,
};

const CPUS: u16 = 300;

/// Returns one event of every kind, with tasks that come and go.
fn small() -> Vec<Event> {
    let at = |task, cpu, kind| Event { task, cpu, kind };
    vec![
        at(
            0,
            0,
            Kind::Fault { page: 0x7_ffff_f7ff, flags: FaultFlags(FaultFlags::USER | FaultFlags::WRITE) },
        ),
        at(0, 0, Kind::Clone { child: 1, kind: CloneKind::Fork }),
        at(0, 1, Kind::Clone { child: 2, kind: CloneKind::Vfork }),
        at(2, 299, Kind::Exec { stack_end: 0x7_ffff_f000, arg_pages: 3 }),
        at(2, 1, Kind::Area { start: 0x5_5555_5554, pages: 30, prot: Prot(5), kind: AreaKind::File }),
        at(2, 1, Kind::Area { start: 0x7_fff0_0000, pages: 34, prot: Prot(3), kind: AreaKind::Stack }),
        at(
            1,
            0,
            Kind::Mmap {
                start: 0x7_f000_0000,
                pages: 1 << 20,
                prot: Prot(3),
                flags: MapFlags(MapFlags::ANON),
            },
        ),
        at(1, 0, Kind::Mprotect { start: 0x7_f000_0001, pages: 5, prot: Prot(0) }),
        at(1, 0, Kind::Madvise { start: 0x7_f000_0003, pages: 9, advice: 4 }),
        at(1, 0, Kind::Madvise { start: 0x7_f000_0003, pages: 9, advice: 65535 }),
        at(1, 0, Kind::Mremap { from: 0x7_f000_0000, old_pages: 2, to: 1, new_pages: 4, keep: true }),
        at(1, 0, Kind::Mremap { from: 0x7_f000_0000, old_pages: 0, to: 9, new_pages: 4, keep: false }),
        at(1, 0, Kind::Munmap { start: 1, pages: (1 << 52) - 1 }),
        at(1, 0, Kind::Brk { end: 0x5_6000_0000 }),
        at(1, 0, Kind::Truth { tables: 14, at: Sampled::Exec }),
        at(1, 0, Kind::Truth { tables: u32::MAX, at: Sampled::Exit }),
        at(1, 0, Kind::Exit { last: true }),
        at(1, 0, Kind::TlbFlush { pages: 0, reason: 3 }),
        at(1, 0, Kind::Idle),
        at(2, 1, Kind::Clone { child: 3, kind: CloneKind::Share }),
        at(3, 1, Kind::Fault { page: (1 << 52) - 1, flags: FaultFlags(0x5f) }),
        at(
            3,
            1,
            Kind::Lock { start: 0x7_f000_0000, pages: 3, how: Locking(Locking::NOW | Locking::ON_FAULT) },
        ),
        at(3, 1, Kind::LockAll { how: Locking(7) }),
        at(3, 1, Kind::StackLimit { pages: u64::MAX >> 12 }),
        at(3, 1, Kind::Name(Name::new("/usr/bin/größer"))),
        at(3, 1, Kind::Pid(4_000_000)),
        at(3, 1, Kind::Touched { start: 5, pages: 1, flags: FaultFlags(FaultFlags::WRITE) }),
        at(
            3,
            1,
            Kind::Failed { errno: 12, call: FailedCall::Mprotect { start: 5, pages: 9, prot: Prot(1) } },
        ),
        at(3, 1, Kind::Failed { errno: 22, call: FailedCall::Madvise { start: 5, pages: 9, advice: 300 } }),
        at(3, 1, Kind::Failed { errno: 12, call: FailedCall::Lock { start: 5, pages: 9, how: Locking(1) } }),
        at(
            3,
            1,
            Kind::Failed { errno: 14, call: FailedCall::Mremap { start: 9, pages: 3, to: 2, keep: true } },
        ),
        at(3, 1, Kind::Exit { last: false }),
    ]
}

fn write(events: &[Event]) -> (Vec<u8>, Summary) {
    let mut header = Header::new("a name", CPUS, Method::Tracefs);
    header.unseen = Unseen(Unseen::IDLE);
    let mut w = Writer::new(Vec::new(), &header, 3).expect("a good header");
    for e in events {
        w.event(e).expect("a good event");
    }
    w.finish(7).expect("memory takes everything")
}

fn read(bytes: &[u8]) -> Result<Vec<Event>, ReadError> {
    Reader::new(bytes)?.collect()
}

#[test]
fn every_kind_comes_back() {
    let (bytes, summary) = write(&small());
    let mut reader = Reader::new(&bytes[..]).expect("a header");
    let back: Vec<Event> = reader.by_ref().map(|e| e.expect("an event")).collect();
    assert_eq!(back, small());
    assert_eq!(reader.summary(), Some(&summary));
    assert_eq!((summary.lost, summary.tasks, summary.events), (7, 4, 32));
    assert_eq!(summary.count(&Kind::Idle), 1);
    assert!(small().iter().all(|e| summary.by_kind[kind_index(&e.kind)] > 0));
    assert_eq!(reader.header().name(), "a name");
    assert!(reader.header().unseen.has(Unseen::IDLE));
}

#[test]
fn cut_anywhere_is_an_error() {
    let (bytes, _) = write(&small());
    for n in 0..bytes.len() {
        match read(&bytes[..n]) {
            Err(ReadError::Truncated { .. }) => {}
            Err(ReadError::NotATrace) if n == 0 => {}
            other => panic!("{n} of {} bytes: {other:?}", bytes.len()),
        }
    }
}

#[test]
fn any_changed_bit_is_an_error() {
    let (bytes, _) = write(&small());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            assert!(read(&bad).is_err(), "byte {at}, bit {bit}");
        }
        let mut bad = bytes.clone();
        bad[at] = !bad[at];
        assert!(read(&bad).is_err(), "byte {at} inverted");
    }
}

#[test]
fn more_bytes_are_an_error() {
    let (mut bytes, _) = write(&small());
    bytes.push(0);
    assert!(matches!(read(&bytes), Err(ReadError::TrailingBytes)));
}

#[test]
fn a_newer_version_says_so() {
    let (mut bytes, _) = write(&small());
    bytes[8] = 5;
    let e = read(&bytes).expect_err("version 5");
    assert!(matches!(e, ReadError::NewerVersion { found: 5, known: 4 }));
    assert_eq!(
        e.to_string(),
        "made by a newer version (format 5, this program reads up to 4): update ptarmigan"
    );
}

#[test]
fn times_pass_and_never_run_backwards() {
    let mut header = Header::new("t", 1, Method::Synthetic);
    header.huge = HugePages::Always;
    let mut w = Writer::new(Vec::new(), &header, 3).expect("a good header");
    let event = |kind| Event { task: 0, cpu: 0, kind };
    let times = [0, 0, 7, 7, 1 << 40, (1 << 52) - 1];
    for (n, time) in times.into_iter().enumerate() {
        w.time(time).expect("it has passed");
        w.event(&event(Kind::Brk { end: n as u64 })).expect("a good event");
    }
    assert!(matches!(w.time(6), Err(WriteError::Invalid { .. })), "backwards");
    assert!(matches!(w.time(1 << 52), Err(WriteError::Invalid { .. })), "too late");
    let (bytes, _) = w.finish(0).expect("memory takes everything");
    let mut reader = Reader::new(&bytes[..]).expect("a header");
    assert_eq!((reader.header().huge, reader.header().version()), (HugePages::Always, 4));
    for time in times {
        assert!(reader.next().is_some_and(|e| e.is_ok()));
        assert_eq!(reader.time(), time);
    }
    assert!(reader.next().is_none());
    // An empty step, a step too far, a time with a task: rows that only a forger writes.
    for rows in
        [&[14, 0, 0, 15][..], &[14, 0, 255, 255, 255, 255, 255, 255, 255, 255, 1, 15], &[0x2e, 0, 0, 1, 15]]
    {
        let error = read(&wrap::rows(rows)).expect_err("no time");
        assert!(matches!(error, ReadError::Damaged { .. }), "{error}");
    }
}

#[test]
fn the_name_of_a_program_is_one() {
    assert_eq!(Name::new("/bin/sh\n").as_str(), "sh");
    assert_eq!(Name::new("a name of many bytes").as_str(), "a name of many ");
    assert_eq!(Name::new("fünfzehn Zeichä").as_str(), "fünfzehn Zeich");
    for name in [&b"a/b"[..], b"\xff", b"a\n", b"sixteen letters!"] {
        let mut rows = vec![14, 4, name.len() as u8];
        rows.extend(name);
        rows.push(15);
        let error = read(&wrap::rows(&rows)).expect_err("no name");
        assert!(error.to_string().contains("the name of a program"), "{error}");
    }
}

#[test]
fn other_files_are_not_traces() {
    for bytes in [&b"#!/bin/sh\nexit 0\n"[..], &[0; 4096], b"\x7fELF", b"PERFILE2........................"] {
        assert!(matches!(read(bytes), Err(ReadError::NotATrace)));
    }
}

#[test]
fn a_file_is_checked_before_its_events() {
    let path = tempfile::NamedTempFile::new().expect("a temporary file").into_temp_path();
    let (bytes, summary) = write(&small());
    std::fs::write(&path, &bytes).expect("a temporary file");
    let file = TraceFile::open(&path).expect("a whole trace");
    assert_eq!((file.summary(), file.bytes(), file.header().cpus), (&summary, bytes.len() as u64, CPUS));
    let back: Vec<Event> = file.events().expect("a header").map(|e| e.expect("an event")).collect();
    assert_eq!(back, small());
    for n in 0..bytes.len() {
        std::fs::write(&path, &bytes[..n]).expect("a temporary file");
        let e = TraceFile::open(&path).err().expect("it was cut");
        assert!(matches!(e, ReadError::Truncated { .. } | ReadError::NotATrace), "{n}: {e}");
        let mut bad = bytes.clone();
        bad[n] ^= 0x10;
        std::fs::write(&path, &bad).expect("a temporary file");
        assert!(TraceFile::open(&path).is_err(), "byte {n}");
    }
}

#[test]
fn the_writer_refuses_what_no_reader_takes() {
    let mut w = Writer::new(Vec::new(), &Header::new("x", 2, Method::Synthetic), 3).expect("a good header");
    let mut refuse = |task, cpu, kind| {
        assert!(matches!(w.event(&Event { task, cpu, kind }), Err(WriteError::Invalid { .. })), "{kind:?}");
    };
    refuse(0, 2, Kind::Idle);
    refuse(1, 0, Kind::Idle);
    refuse(0, 0, Kind::Clone { child: 2, kind: CloneKind::Fork });
    refuse(0, 0, Kind::Clone { child: 0, kind: CloneKind::Fork });
    refuse(0, 0, Kind::Fault { page: 1 << 52, flags: FaultFlags(0) });
    refuse(0, 0, Kind::Fault { page: 1, flags: FaultFlags(32) });
    refuse(0, 0, Kind::Lock { start: 1, pages: 1, how: Locking(Locking::FUTURE) });
    refuse(0, 0, Kind::LockAll { how: Locking(8) });
    refuse(0, 0, Kind::Touched { start: 1, pages: 1, flags: FaultFlags(FaultFlags::EXEC) });
    refuse(0, 0, Kind::Failed { errno: 1, call: FailedCall::Mprotect { start: 1, pages: 0, prot: Prot(1) } });
    refuse(0, 0, Kind::Munmap { start: 5, pages: 0 });
    refuse(0, 0, Kind::Munmap { start: 5, pages: u64::MAX });
    refuse(0, 0, Kind::Mprotect { start: 5, pages: 1, prot: Prot(8) });
    let exit = Event { task: 0, cpu: 0, kind: Kind::Exit { last: true } };
    w.event(&exit).expect("alive");
    assert!(w.event(&exit).is_err(), "dead");
    let (bytes, _) = w.finish(0).expect("memory takes everything");
    assert_eq!(read(&bytes).expect("still a trace"), [exit]);
}

#[test]
fn rows_that_repeat_without_end_need_no_memory() {
    // 64 MiB of forks in a few kilobytes: too many tasks for a trace, noticed without storing them.
    let mut rows = Vec::new();
    while rows.len() < 64 << 20 {
        rows.extend([1, 0]);
    }
    let bytes = wrap::rows(&rows);
    assert!(bytes.len() < 1 << 16);
    let mut reader = Reader::new(&bytes[..]).expect("a header");
    let error = reader.find_map(Result::err).expect("too many tasks");
    assert!(error.to_string().contains("too many tasks"), "{error}");
}

#[test]
fn thousands_of_mutations_never_panic() {
    let (bytes, _) = write(&small());
    let mut rng = fastrand::Rng::with_seed(1);
    assert_eq!(harness::read_any(&bytes), (32, true));
    for _ in 0..4000 {
        let mut bad = bytes.clone();
        for _ in 0..=rng.usize(..4) {
            match rng.u8(..3) {
                0 => {
                    let at = rng.usize(..bad.len());
                    bad[at] = rng.u8(..);
                }
                1 => bad.truncate(rng.usize(..bad.len()) + 1),
                _ => {
                    let at = rng.usize(..bad.len());
                    bad.insert(at, rng.u8(..));
                }
            }
        }
        if bad != bytes {
            assert!(!harness::read_any(&bad).1);
        }
        // Arbitrary rows with correct checksums. Small numbers are often meaningful.
        let rows: Vec<u8> = (0..rng.usize(..200))
            .map(|_| {
                let below = if rng.bool() { 16 } else { 256 };
                rng.usize(..below) as u8
            })
            .collect();
        harness::read_any(&wrap::rows(&rows));
    }
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (prop_oneof![0..1u64 << 20, 0..1u64 << 52], prop_oneof![1..600u64, 1..=1u64 << 52])
        .prop_map(|(start, pages)| (start, pages.min((1 << 52) - start)))
}

fn note() -> impl Strategy<Value = Note> {
    let time = 0..1u64 << 56;
    prop_oneof![
        (0..Call::ALL.len(), time.clone(), time.clone()).prop_map(|(call, nanos, away)| Note::Took {
            call: Call::ALL[call],
            nanos,
            away
        }),
        (time.clone(), time.clone(), any::<u32>(), any::<u32>(), any::<u32>()).prop_map(
            |(user, system, major, waits, preempted)| Note::Used {
                user,
                system,
                minor: user / 2,
                major,
                waits,
                preempted
            }
        ),
        range().prop_map(|(start, pages)| Note::Mapped { start, pages, object: Object::Device, name: None }),
        Just(Note::Runtime(Runtime::Python)),
        (range(), 1..1u64 << 56).prop_map(|((page, _), events)| Note::Caller {
            cause: Cause::Call(Call::Segment),
            page,
            events,
            place: None
        }),
        time.prop_map(|nanos| Note::StopCost { nanos }),
        (0..UnreadReason::ALL.len()).prop_map(|why| Note::Unread { name: None, why: UnreadReason::ALL[why] }),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        (range(), 0..8u8)
            .prop_map(|((page, _), f)| Kind::Fault { page, flags: FaultFlags((f & 3) | (f & 4) << 2) }),
        (0..3u8).prop_map(|k| Kind::Clone {
            child: 0,
            kind: [CloneKind::Fork, CloneKind::Vfork, CloneKind::Share][usize::from(k)]
        }),
        (range(), any::<u32>()).prop_map(|((stack_end, _), arg_pages)| Kind::Exec { stack_end, arg_pages }),
        (range(), 0..8u8).prop_map(|((start, pages), p)| Kind::Area {
            start,
            pages,
            prot: Prot(p),
            kind: AreaKind::Special
        }),
        any::<bool>().prop_map(|last| Kind::Exit { last }),
        (range(), 0..8u8, 0..2048u16).prop_map(|((start, pages), p, f)| Kind::Mmap {
            start,
            pages,
            prot: Prot(p),
            flags: MapFlags(f)
        }),
        range().prop_map(|(start, pages)| Kind::Munmap { start, pages }),
        range().prop_map(|(end, _)| Kind::Brk { end }),
        (range(), range(), any::<bool>()).prop_map(|((from, old_pages), (to, new_pages), keep)| {
            Kind::Mremap { from, old_pages, to, new_pages, keep }
        }),
        (range(), 0..8u8).prop_map(|((start, pages), p)| Kind::Mprotect { start, pages, prot: Prot(p) }),
        (range(), any::<u16>()).prop_map(|((start, pages), advice)| Kind::Madvise { start, pages, advice }),
        (0..1u64 << 52, any::<u8>()).prop_map(|(pages, reason)| Kind::TlbFlush { pages, reason }),
        Just(Kind::Idle),
        any::<u32>().prop_map(|tables| Kind::Truth { tables, at: Sampled::Exec }),
        (range(), 0..2u8).prop_map(|((start, pages), how)| Kind::Lock { start, pages, how: Locking(how) }),
        (range(), 0..8u8).prop_map(|((start, pages), how)| Kind::Failed {
            errno: how,
            call: FailedCall::Lock { start, pages, how: Locking(how & 5) }
        }),
        (range(), any::<u16>()).prop_map(|((start, pages), advice)| Kind::Failed {
            errno: 22,
            call: FailedCall::Madvise { start, pages, advice }
        }),
        ".*".prop_map(|name| Kind::Name(Name::new(&name))),
        any::<u32>().prop_map(Kind::Pid),
        (0..1u64 << 52).prop_map(|pages| Kind::StackLimit { pages }),
        note().prop_map(Kind::Note),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        settings in proptest::collection::btree_map("[a-z/ ]{1,9}", "[a-z0-9. ]{1,9}", 0..9),
        raw in proptest::collection::vec((any::<u32>(), 0..CPUS, kind()), 0..400),
    ) {
        let mut w = Writer::new(Vec::new(), &Header::new("p", CPUS, Method::Synthetic), 1).expect("a good header");
        for (name, value) in &settings {
            w.setting(name, value).expect("a good setting");
        }
        let (mut alive, mut tasks, mut events) = (vec![0u32], 1, Vec::new());
        for (pick, cpu, mut kind) in raw {
            if alive.is_empty() {
                break;
            }
            let at = pick as usize % alive.len();
            let task = alive[at];
            match &mut kind {
                Kind::Clone { child, .. } => {
                    *child = tasks;
                    alive.push(tasks);
                    tasks += 1;
                }
                Kind::Exit { .. } => {
                    alive.swap_remove(at);
                }
                _ => {}
            }
            let event = Event { task, cpu, kind };
            w.event(&event).expect("a good event");
            events.push(event);
        }
        let (bytes, summary) = w.finish(0).expect("memory takes everything");
        prop_assert_eq!(summary.tasks, tasks);
        let mut reader = Reader::new(&bytes[..]).expect("a header");
        let mut back: Vec<Event> = reader.by_ref().map(|e| e.expect("an event")).collect();
        prop_assert_eq!(back.split_off(settings.len()), events);
        let settings = settings.iter().map(|(name, value)| (&**name, &**value));
        prop_assert!(reader.settings().iter().eq(settings));
    }
}
