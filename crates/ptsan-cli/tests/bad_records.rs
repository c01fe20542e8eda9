//! Logs that are cut, of another version than their records, or about devices, readers and locks
//! that are not there.
use ptsan_log::{AccessKind, Architecture, Check, HEADER_BYTES, Header, Reader, Record, Scope};

mod common;

use common::{invalidate, log, ptsan, queued, replay};

const DEVICE: u16 = 2;

fn machine() -> Header {
    Header { devices: 2, asids: true, locks: true, ..Header::new(Architecture::X86_64, 2) }
}

/// One record of each kind of version 2 that a format without a second stage has.
fn honest() -> Vec<Record<'static>> {
    vec![
        Record::TableAllocated { phys: 0x1000, size: 0, level: Some(3), content: ptsan_log::Content::Zero },
        Record::NumberGiven { root: 0x1000, space: 7 },
        Record::LockGuards { table: 0x1000, lock: 9, flush_first: true },
        Record::RootLoaded { cpu: DEVICE, root: 0x1000, space: 7, flushes: false },
        Record::LockTaken { cpu: 0, lock: 9, shared: false },
        queued(DEVICE, Scope::Space(7)),
        Record::QueueCompleted { device: DEVICE },
        Record::DeviceEntry { device: DEVICE, phys: 0x5000, bytes: 16, word: 0, valid: 1 },
        Record::DeviceEntryWritten { phys: 0x5000, bytes: &[1; 16] },
        Record::DeviceEntriesFlushed { device: DEVICE, phys: Some(0x5008) },
        Record::ReaderBegins { id: 1, root: 0x1000 },
        Record::ReaderReads { id: 1, table: 0x1000 },
        Record::ReaderEnds { id: 1 },
        Record::LockReleased { cpu: 0, lock: 9 },
        Record::NumbersTakenBack,
        Record::Leave { cpu: DEVICE },
        Record::TableFreed { phys: 0x1000, size: 0 },
    ]
}

#[test]
fn a_log_with_all_records_is_clean() {
    let (status, text) = replay(&log(&machine(), &honest()), &[]);
    assert!(status == 0 && text.contains("no findings"), "{text}");
    for part in ["x86-64, 2 CPUs, 2 devices, ASIDs, locks", "queued invalidations: 1", "readers: 1"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_log_that_is_cut_at_any_byte_is_replayed_up_to_there() {
    let whole = log(&machine(), &honest());
    for length in 0..whole.len() {
        let (status, text) = replay(&whole[..length], &["--no-seed"]);
        assert_eq!(status, 2, "{length}: {text}");
        assert!(text.contains("the log ends"), "{length}: {text}");
        assert_eq!(text.contains("no findings"), length >= HEADER_BYTES, "{length}: {text}");
    }
}

/// Returns the log with another version in its header, and right checks.
fn in_version(log: &[u8], version: u16) -> Vec<u8> {
    let mut starts = vec![];
    let mut reader = Reader::new(log).unwrap();
    while let Some(entry) = reader.next().unwrap() {
        starts.push(entry.offset as usize);
    }
    starts.push(log.len());
    let mut made = log[..HEADER_BYTES - 2].to_vec();
    made[8..10].copy_from_slice(&version.to_le_bytes());
    let mut check = Check::new().with(&made);
    made.extend_from_slice(&check.value().to_le_bytes());
    for pair in starts.windows(2) {
        let record = &log[pair[0]..pair[1] - 2];
        check = check.with(record);
        made.extend_from_slice(record);
        made.extend_from_slice(&check.value().to_le_bytes());
    }
    made
}

#[test]
fn a_version_that_is_too_new_is_one_line() {
    let output = ptsan(&["replay", "-"], &in_version(&log(&machine(), &honest()), 3));
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    let line = "ptsan: standard input: byte 0, header: version 3 of the format; this program reads up to 2\n";
    assert_eq!((text.as_str(), output.stdout.len()), (line, 0));
}

#[test]
fn version_2_records_in_a_version_1_log_end_the_replay() {
    let of_2 = |r: &&Record<'_>| {
        !matches!(
            r,
            Record::TableAllocated { .. }
                | Record::RootLoaded { .. }
                | Record::Leave { .. }
                | Record::TableFreed { .. }
        )
    };
    for record in honest().iter().filter(of_2) {
        let old = in_version(&log(&machine(), &[Record::FlushesDone, *record]), 1);
        let (status, text) = replay(&old, &[]);
        assert_eq!(status, 2, "{text}");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let line =
            "version 2 of the format has it, and the header says version 1; what comes before was replayed";
        assert!(flat.contains("record 2: record of kind 0x") && flat.contains(line), "{text}");
        let output = ptsan(&["log", "dump", "-"], &old);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    }
    // Without them, the same bytes are a log of version 1: without devices and locks.
    let old = in_version(&log(&machine(), &[Record::FlushesDone]), 1);
    let (status, text) = replay(&old, &[]);
    assert!(status == 0 && text.starts_with("x86-64, 2 CPUs, ASIDs;"), "{text}");
    let header = Header::new(Architecture::Ept, 1);
    let (status, text) = replay(&in_version(&log(&header, &[]), 1), &[]);
    let line = "ptsan: standard input: byte 0, header: EPT: version 2 of the format has it, and the header says \
                version 1\n";
    assert_eq!((status, text.as_str()), (2, line));
}

#[test]
fn unknown_devices_readers_and_locks_are_errors_of_the_log() {
    let entry = |device, phys, bytes| Record::DeviceEntry { device, phys, bytes, word: 0, valid: 1 };
    let access = |cpu| Record::Access { cpu, va: 0, kind: AccessKind::Read, user: true };
    let combined = |cpu| Record::AccessCombined { cpu, number: 1, va: 0, gpa: 0, kind: AccessKind::Read };
    let taken = |cpu, lock, shared| Record::LockTaken { cpu, lock, shared };
    let written = |phys, bytes| Record::DeviceEntryWritten { phys, bytes };
    let forgotten = |device, phys| Record::DeviceEntriesFlushed { device, phys: Some(phys) };
    let no_device = "stands for no device, and the header says 2 CPUs and 2 devices";
    let not_cpu = "2 stands for device 0, and only a CPU does this";
    let lies: Vec<(Record<'static>, &str, &str)> = vec![
        (queued(1, Scope::All), no_device, "number of devices"),
        (queued(4, Scope::All), no_device, "number of devices"),
        (
            queued(2, Scope::Range { space: 7, start: 9, end: 3, stride: 1 }),
            "from 0x9 to 0x3",
            "first address",
        ),
        (Record::QueueCompleted { device: 0 }, no_device, "number of devices"),
        (entry(9, 0x6000, 16), no_device, "number of devices"),
        (entry(2, 1 << 60, 16), "an entry at 0x1000000000000000", "physical address"),
        (entry(2, 0x5008, 8), "the entry at 0x5000 lies in the same bytes", "its first address"),
        (entry(2, 0x5000 - 64, 64), "no findings", ""),
        (written(0x6000, &[1; 8]), "no device reads an entry", "device-entry before"),
        (written(0x5000, &[1; 32]), "32 bytes lie at 0x5000", "device-entry before"),
        (forgotten(2, 0x6000), "no device reads an entry", "device-entry before"),
        (forgotten(3, 0x5000), "device 0 reads the entry at 0x5000", "the device that forgot"),
        (forgotten(7, 0x5000), no_device, "number of devices"),
        (Record::ReaderReads { id: 5, table: 0x1000 }, "reader 5 is not under way", "reader-begins"),
        (Record::ReaderEnds { id: 5 }, "reader 5 is not under way", "reader-begins"),
        (Record::ReaderBegins { id: 1, root: 0x1000 }, "reader 1 is under way", "number of its own"),
        (Record::ReaderBegins { id: 6, root: 0x1008 }, "a root at 0x1008", "physical address alone"),
        (Record::LockReleased { cpu: 1, lock: 9 }, "CPU 1 does not hold lock 0x9", "lock-taken"),
        (Record::LockReleased { cpu: 0, lock: 77 }, "CPU 0 does not hold lock 0x4d", "lock-taken"),
        (taken(1, 9, true), "CPU 0 holds lock 0x9", "lock-released right before"),
        (taken(0, 9, false), "CPU 0 holds lock 0x9", "lock-released right before"),
        (taken(DEVICE, 8, false), not_cpu, "number of the CPU"),
        (taken(9, 8, false), "CPU 9, and the header says 2 CPUs and 2 devices", "number CPUs from 0"),
        (Record::LockGuards { table: 0x1003, lock: 1, flush_first: false }, "at 0x1003", "physical address"),
        (Record::NumberGiven { root: 0x1010, space: 7 }, "a root at 0x1010", "physical address alone"),
        (Record::Running { cpu: DEVICE }, not_cpu, "number of the CPU"),
        (Record::Lazy { cpu: DEVICE }, not_cpu, "number of the CPU"),
        (access(3), "device 1 has no root loaded", "root-loaded"),
        (access(4), "CPU 4, and the header says", "number CPUs from 0"),
        (combined(0), "x86-64 is no format of stage 2", "hypervisor"),
        (Record::Stage1PartFlushed { cpu: 0, number: None, va: None }, "x86-64 is no format", "hypervisor"),
        (Record::SpaceDestroyed { space: 7 }, "device 0 has space 0x7 loaded", "leave"),
    ];
    for (lie, what, instead) in lies {
        let mut records = honest();
        records.insert(11, lie);
        let (status, text) = replay(&log(&machine(), &records), &["--no-seed"]);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(status, if instead.is_empty() { 0 } else { 2 }, "{lie:?}: {text}");
        assert!(flat.contains(what) && flat.contains(instead), "{lie:?}: {text}");
        assert!(flat.contains("no findings"), "{lie:?}: {text}");
        let line = format!("record 12, {}:", lie.name());
        assert_eq!(flat.contains(&line), !instead.is_empty(), "{lie:?}: {text}");
    }
}

#[test]
fn x86_has_no_invalidation_of_a_guest_s_address() {
    let page = |cpu| invalidate(cpu, Scope::Page { space: 7, va: 0 });
    for architecture in [Architecture::Ept, Architecture::Npt] {
        let header = Header { devices: 1, ..Header::new(architecture, 1) };
        for (cpu, status) in [(Some(0), 2), (None, 2), (Some(1), 0)] {
            let (found, text) = replay(&log(&header, &[page(cpu)]), &[]);
            assert_eq!(found, status, "{cpu:?}: {text}");
            assert_eq!(text.contains("has no invalidation by address"), status == 2, "{text}");
        }
        let combined = Record::AccessCombined { cpu: 0, number: 1, va: 0, gpa: 0, kind: AccessKind::Read };
        let (found, text) = replay(&log(&header, &[combined]), &[]);
        assert!(found == 2 && text.contains("CPU 0 has no root loaded"), "{text}");
    }
}

#[test]
fn too_many_readers_are_refused_and_none_panics() {
    let begins: Vec<_> = (0..1025).map(|id| Record::ReaderBegins { id, root: 0x1000 }).collect();
    let (status, text) = replay(&log(&machine(), &begins), &["--no-seed"]);
    assert!(text.contains("1024 readers are under way") && status != 0, "{text}");
}

#[test]
fn a_dump_names_devices_and_all_fields() {
    let more = [
        Record::Stage1PartFlushed { cpu: 0, number: Some(1), va: None },
        Record::AccessCombined { cpu: 0, number: 1, va: 0x5123, gpa: 0x123, kind: AccessKind::Write },
        Record::DeviceEntriesFlushed { device: 3, phys: None },
        invalidate(None, Scope::All),
    ];
    let records = [honest(), more.to_vec()].concat();
    let output = ptsan(&["log", "dump", "-"], &log(&machine(), &records));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let expected = [
        "number-given 0x1000 space 0x7",
        "lock-guards 0x1000 lock 0x9, flushes first",
        "root-loaded device 0 0x1000 space 0x7",
        "lock-taken cpu 0 lock 0x9",
        "flush-queued device 0 space 0x7",
        "queue-completed device 0",
        "device-entry device 0 0x5000 16 bytes, valid: 0x1 of word 0",
        "device-entry-written 0x5000 16 bytes 01010101010101010101010101010101",
        "device-entries-flushed device 0 0x5008",
        "reader-begins 1 0x1000",
        "reader-reads 1 0x1000",
        "reader-ends 1",
        "lock-released cpu 0 lock 0x9",
        "numbers-taken-back",
        "leave device 0",
        "table-freed 0x1000",
        "stage1-part-flushed cpu 0 space 0x1",
        "access-combined cpu 0 0x5123 in 0x1 is 0x123 write",
        "device-entries-flushed device 1 all",
        "invalidate cpu all everything",
    ];
    assert_eq!(lines[0], "x86-64, 2 CPUs, 2 devices, ASIDs, locks");
    for (line, what) in lines[2..].iter().zip(expected) {
        assert!(
            line.get(9..).is_some_and(|line| line.starts_with(&format!("{what} pc 0x"))),
            "{what}: {line}"
        );
    }
}
