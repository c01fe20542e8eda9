//! The records of devices, readers, locks, numbers of spaces and second stages: a replay finds what
//! the calls of the hooks find, and finds nothing in the corrected log.
use ptsan::{
    Access, Arch, Barrier, Config, Content, DeviceEntry, Flush, Format, Granule, Guard, GuestPage, Hold,
    Reader, Sanitizer, Target,
};
use ptsan_log::{
    self as log, AccessKind, Architecture, BarrierKind, Encoder, Header, Record, Scope, Written,
};
use std::collections::HashMap;

mod common;

use common::{invalidate, queued, replay};

/// The number of the only device of a machine of two CPUs.
const DEVICE: u16 = 2;
/// The domain of that device.
const DOMAIN: u64 = 1 << 32;
const ENTRY: u64 = 0x5000;

/// Returns kind and rule of each finding that the lines of a JSON report have.
fn rules(json: &str) -> Vec<(String, String)> {
    let lines = json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    lines.filter(|v| v["type"] == "finding").map(|v| (text(&v["kind"]), text(&v["rule"]))).collect()
}

fn arch(header: &Header) -> Arch {
    match header.architecture {
        Architecture::X86TwoLevel => Arch::x86_2level(),
        Architecture::Aarch64K4 => Arch::aarch64_4k(header.va_bits),
        Architecture::Stage2K4 => Arch::aarch64_stage2(Granule::K4, header.va_bits, header.start_level),
        Architecture::Ept => Arch::ept(),
        Architecture::Npt => Arch::npt(),
        Architecture::Sv39x4 => Arch::riscv_sv39x4(),
        Architecture::Sv48x4 => Arch::riscv_sv48x4(),
        other => panic!("{other}"),
    }
}

fn access(kind: AccessKind, user: bool) -> Access {
    let access = match kind {
        AccessKind::Read => Access::READ,
        AccessKind::Write => Access::WRITE,
        AccessKind::Exec => Access::EXEC,
    };
    Access { user, ..access }
}

fn flush(scope: Scope) -> Flush {
    match scope {
        Scope::Page { space, va } => Flush::page(space, va),
        Scope::Range { space, start, end, stride } => Flush::range(space, start, end, stride),
        Scope::EverySpace { start, end, stride } => {
            Flush { target: Target::EverySpace { start, end, stride }, ..Flush::all() }
        }
        Scope::Space(space) => Flush::space(space),
        Scope::All => Flush::all(),
    }
}

/// Calls the hook that each record stands for, and returns what the sanitizer finds.
fn direct(header: &Header, records: &[Record<'_>]) -> Vec<(String, String)> {
    let mut san = Sanitizer::new(Config {
        cpus: header.cpus.into(),
        devices: header.devices.into(),
        asids: header.asids,
        barriers: header.barriers,
        accessed_dirty: header.accessed_dirty,
        two_stages: header.two_stages,
        common_numbers: header.common_numbers,
        locks: header.locks,
        ..Config::new(arch(header))
    });
    if header.accessed_dirty || header.locks || header.barriers {
        san.running_on(0);
    }
    let mut ram = vec![0u8; 1 << 16];
    let mut readers: HashMap<u64, Reader> = HashMap::new();
    for record in records {
        match *record {
            Record::TableAllocated { phys, size, level, .. } => {
                let size = if size == 0 { 4096 } else { size };
                san.table_allocated(&ram, phys, size, level, Content::Zero);
            }
            Record::TableFreed { phys, .. } => san.table_freed(&ram, phys, 4096),
            Record::Store { phys, value, bytes } => {
                let at = phys as usize;
                ram[at..at + usize::from(bytes)].copy_from_slice(&value.to_le_bytes()[..usize::from(bytes)]);
                san.entry_written(&ram, phys);
            }
            Record::Exchange { phys, value, bytes } => {
                let at = phys as usize;
                ram[at..at + usize::from(bytes)].copy_from_slice(&value.to_le_bytes()[..usize::from(bytes)]);
                san.entry_exchanged(&ram, phys);
            }
            Record::RootLoaded { cpu, root, space, .. } => san.switch(&ram, cpu.into(), root, space),
            Record::Leave { cpu } => san.leave(cpu.into()),
            Record::Invalidate { cpu: Some(cpu), scope, .. } => san.flush(&ram, cpu.into(), flush(scope)),
            Record::Invalidate { cpu: None, scope, .. } => san.flush_everywhere(&ram, flush(scope)),
            Record::Barrier { cpu, kind } => {
                let barrier = match kind {
                    BarrierKind::Data => Barrier::Data,
                    BarrierKind::Instruction => Barrier::Instruction,
                    BarrierKind::Fence => Barrier::Fence,
                    BarrierKind::Stores => Barrier::Stores,
                };
                san.barrier(cpu.into(), barrier);
            }
            Record::FlushesDone => san.flushes_done(&ram),
            Record::Running { cpu } => san.running_on(cpu.into()),
            Record::Stage1Flushed { cpu } => san.stage1_flushed(cpu.into()),
            Record::Access { cpu, va, kind, user } => {
                _ = san.translate(&ram, cpu.into(), va, access(kind, user));
            }
            Record::FlushQueued { device, scope, .. } => san.flush_queued(device.into(), flush(scope)),
            Record::QueueCompleted { device } => san.queue_completed(&ram, device.into()),
            Record::DeviceEntry { device, phys, bytes, word, valid } => {
                san.device_entry(&ram, device.into(), phys, DeviceEntry { bytes, valid: (word, valid) });
            }
            Record::DeviceEntryWritten { phys, bytes } => {
                ram[phys as usize..][..bytes.len()].copy_from_slice(bytes);
                san.device_entry_written(&ram, phys);
            }
            Record::DeviceEntriesFlushed { device, phys } => san.device_entries_flushed(device.into(), phys),
            Record::ReaderBegins { id, root } => _ = readers.insert(id, san.reader_begins(&ram, root)),
            Record::ReaderReads { id, table } => san.reader_reads(&ram, readers[&id], table),
            Record::ReaderEnds { id } => san.reader_ends(readers[&id]),
            Record::LockGuards { table, lock, flush_first } => {
                san.lock_guards(table, Guard { lock, flush_first });
            }
            Record::LockTaken { cpu, lock, shared } => {
                san.lock_taken(cpu.into(), lock, if shared { Hold::Shared } else { Hold::Exclusive });
            }
            Record::LockReleased { cpu, lock } => san.lock_released(&ram, cpu.into(), lock),
            Record::NumberGiven { root, space } => san.number_given(root, space),
            Record::NumbersTakenBack => san.numbers_taken_back(),
            Record::Stage1PartFlushed { cpu, number, va } => san.stage1_part_flushed(cpu.into(), number, va),
            Record::AccessCombined { cpu, number, va, gpa, kind } => {
                let page = GuestPage { number, va };
                _ = san.translate_combined(&ram, cpu.into(), page, gpa, access(kind, true));
            }
            other => panic!("{other:?}"),
        }
    }
    rules(&san.report_as(Format::Json).to_string())
}

/// Checks that the replay of a log finds `expected`, a kind and a rule, or nothing, and that calls
/// of the hooks find the same.
fn finds(header: &Header, records: &[Record<'_>], expected: &[(&str, &str)]) {
    let mut log = Encoder::new(Written(Vec::new()), header).unwrap();
    records.iter().for_each(|record| log.record(record).unwrap());
    log.end(false).unwrap();
    let (status, text) = replay(&log.into_sink().0, &["--no-seed", "--json"]);
    assert_eq!(status, i32::from(!expected.is_empty()), "{text}");
    let found = rules(&text);
    let expected: Vec<_> = expected.iter().map(|(k, r)| ((*k).to_owned(), (*r).to_owned())).collect();
    assert_eq!(found, expected, "{records:?}: {text}");
    assert_eq!(found, direct(header, records), "{records:?}");
}

fn table(phys: u64, level: u8) -> Record<'static> {
    Record::TableAllocated { phys, size: 0, level: Some(level), content: log::Content::Zero }
}

fn store(phys: u64, value: u64) -> Record<'static> {
    Record::Store { phys, value, bytes: 4 }
}

fn store8(phys: u64, value: u64) -> Record<'static> {
    Record::Store { phys, value, bytes: 8 }
}

fn load(cpu: u16, root: u64, space: u64) -> Record<'static> {
    Record::RootLoaded { cpu, root, space, flushes: false }
}

fn read(cpu: u16, va: u64) -> Record<'static> {
    Record::Access { cpu, va, kind: AccessKind::Read, user: true }
}

const FREE: Record<'_> = Record::TableFreed { phys: 0x2000, size: 0 };

/// Two levels, of which the page at 0 is 0x9000.
fn tree() -> Vec<Record<'static>> {
    vec![table(0x1000, 1), table(0x2000, 0), store(0x2000, 0x9007), store(0x1000, 0x2007)]
}

fn two_level() -> Header {
    Header { devices: 1, ..Header::new(Architecture::X86TwoLevel, 2) }
}

fn after_tree(records: &[Record<'static>]) -> Vec<Record<'static>> {
    [&tree(), records].concat()
}

#[test]
fn a_queued_invalidation_counts_once_waited_for() {
    let queued = |scope| queued(DEVICE, scope);
    let completed = Record::QueueCompleted { device: DEVICE };
    let page = |space, va| Scope::Page { space, va };
    let range = |space, start| Scope::Range { space, start, end: start + 0x2000, stride: 0x1000 };
    let begin = [load(DEVICE, 0x1000, DOMAIN), read(DEVICE, 0x10), store(0x1000, 0)];
    let run = |rest: &[Record<'static>], expected: &[(&str, &str)]| {
        finds(&two_level(), &after_tree(&[&begin, rest].concat()), expected);
    };
    let held = [("free-before-flush", "HeldInStructureCache")];
    for scope in [Scope::Space(DOMAIN), Scope::All, page(DOMAIN, 0), range(DOMAIN, 0)] {
        run(&[queued(scope), completed, FREE], &[]);
        run(&[queued(scope), FREE, completed], &held);
    }
    for scope in [Scope::Space(7), page(7, 0)] {
        run(&[queued(scope), completed, FREE], &held);
    }
    // An invalidation that is over when its record comes; of all CPUs, no device takes part.
    run(&[invalidate(Some(DEVICE), Scope::Space(DOMAIN)), FREE], &[]);
    run(&[invalidate(Some(0), Scope::All), FREE], &held);
    run(&[invalidate(None, Scope::All), FREE], &held);
    // Tables of devices alone.
    let only = Header { devices: 3, ..Header::new(Architecture::X86TwoLevel, 0) };
    for (completed, expected) in [(&[completed][..], &[][..]), (&[], &held)] {
        let records = [&begin, &[queued(Scope::Space(DOMAIN))][..], completed, &[FREE]].concat();
        finds(&only, &after_tree(&records), expected);
    }
}

#[test]
fn a_plain_store_loses_the_dirty_bit_that_a_device_sets() {
    let header = Header { accessed_dirty: true, ..two_level() };
    let write = Record::Access { cpu: DEVICE, va: 0x10, kind: AccessKind::Write, user: true };
    let (phys, value, bytes) = (0x2000, 0x9025, 4);
    for (record, expected) in [
        (Record::Store { phys, value, bytes }, &[("bit-lost", "DirtyLost")][..]),
        (Record::Exchange { phys, value, bytes }, &[]),
    ] {
        let begin = [store(0x2000, 0x9027), load(DEVICE, 0x1000, DOMAIN), write];
        let end = [record, invalidate(Some(DEVICE), Scope::Space(DOMAIN)), Record::FlushesDone];
        finds(&header, &after_tree(&[&begin[..], &end].concat()), expected);
    }
}

#[test]
fn a_device_entry_is_written_whole_and_flushed_before_reuse() {
    const VALID: [u8; 16] = [1, 0x10, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 0, 0, 0, 0];
    const OTHER: [u8; 16] = [1, 0x20, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 0, 0, 0, 0];
    let announced = Record::DeviceEntry { device: DEVICE, phys: ENTRY, bytes: 16, word: 0, valid: 1 };
    let written = |at: u64, bytes: &'static [u8]| Record::DeviceEntryWritten { phys: ENTRY + at, bytes };
    let forgotten = |phys| Record::DeviceEntriesFlushed { device: DEVICE, phys };
    let torn = [("torn-entry", "ChangedInPieces")];
    let run = |records: &[Record<'static>], expected: &[(&str, &str)]| {
        finds(&two_level(), &[&[announced], records].concat(), expected);
    };
    // A device may read the entry between two stores.
    run(&[written(0, &VALID[..8]), written(8, &VALID[8..])], &torn);
    run(&[written(8, &VALID[8..]), written(0, &VALID[..8])], &[]);
    run(&[written(0, &VALID)], &[]);
    let replaced = |between: &[Record<'static>]| {
        [&[written(0, &VALID), forgotten(None), written(0, &[0; 8])], between, &[written(0, &OTHER)]].concat()
    };
    run(&replaced(&[Record::FlushesDone]), &[("flush-missing", "EntryNotFlushed")]);
    run(&replaced(&[forgotten(None)]), &[]);
    run(&replaced(&[forgotten(Some(ENTRY + 8))]), &[]);
}

#[test]
fn a_table_is_not_freed_under_a_reader_without_a_lock() {
    let begins = Record::ReaderBegins { id: 7, root: 0x1000 };
    let ends = Record::ReaderEnds { id: 7 };
    let reads = |table| Record::ReaderReads { id: 7, table };
    let other = [Record::ReaderBegins { id: 8, root: 0x1000 }, Record::ReaderEnds { id: 8 }];
    let unlink = store(0x1000, 0);
    let run = |records: &[Record<'static>], expected: &[(&str, &str)]| {
        finds(&two_level(), &after_tree(records), expected);
    };
    run(&[begins, unlink, FREE, ends], &[("free-under-reader", "HeldByReader")]);
    run(&[begins, unlink, ends, FREE], &[]);
    run(&[begins, other[0], other[1], unlink, ends, FREE], &[]);
    // A table that no store has linked: only a record tells that it is read.
    let free = Record::TableFreed { phys: 0x3000, size: 0 };
    run(&[table(0x3000, 0), begins, free, reads(0x3000), ends], &[("use-after-free", "ReadAfterFree")]);
    run(&[table(0x3000, 0), begins, reads(0x3000), free, ends], &[("free-under-reader", "HeldByReader")]);
    run(&[table(0x3000, 0), begins, reads(0x3000), ends, free], &[]);
}

#[test]
fn a_store_needs_the_lock_of_its_table() {
    let header = Header { locks: true, ..two_level() };
    let taken = |cpu, shared| Record::LockTaken { cpu, lock: 9, shared };
    let released = Record::LockReleased { cpu: 0, lock: 9 };
    let change = store(0x2000, 0xa007);
    let flushed = invalidate(Some(0), Scope::Space(1));
    let run = |flush_first, records: &[Record<'static>], expected: &[(&str, &str)]| {
        let begin =
            [Record::LockGuards { table: 0x1000, lock: 9, flush_first }, load(0, 0x1000, 1), read(0, 0)];
        finds(&header, &after_tree(&[&begin, records].concat()), expected);
        // Without the flag of the header, nothing asks for a lock.
        if expected.iter().any(|(kind, _)| *kind == "unlocked-write") {
            finds(&Header { locks: false, ..header }, &after_tree(&[&begin, records].concat()), &[]);
        }
    };
    run(false, &[taken(0, false), change, flushed, released], &[]);
    run(false, &[taken(0, false), released, change, flushed], &[("unlocked-write", "NotLocked")]);
    run(
        false,
        &[taken(0, false), Record::Running { cpu: 1 }, change, flushed, released],
        &[("unlocked-write", "NotLocked")],
    );
    run(false, &[taken(1, true), taken(0, true), change, flushed], &[("unlocked-write", "SharedLock")]);
    let exchange = Record::Exchange { phys: 0x2000, value: 0xa007, bytes: 4 };
    run(false, &[taken(1, true), taken(0, true), exchange, flushed], &[]);
    run(true, &[taken(0, false), change, released, flushed], &[("flush-missing", "ReleasedBeforeFlush")]);
    run(true, &[taken(0, false), change, flushed, released], &[]);
}

#[test]
fn a_number_belongs_to_one_root() {
    let header = Header { asids: true, ..two_level() };
    let given = |root, space| Record::NumberGiven { root, space };
    let run = |common_numbers, records: &[Record<'static>], expected: &[(&str, &str)]| {
        let header = Header { common_numbers, ..header };
        finds(&header, &[&[table(0x1000, 1), table(0x2000, 1)], records].concat(), expected);
    };
    run(false, &[given(0x1000, 7), given(0x2000, 7)], &[("wrong-number", "NumberTaken")]);
    run(false, &[given(0x1000, 7), given(0x2000, 8), load(0, 0x1000, 7), load(1, 0x2000, 8)], &[]);
    run(false, &[given(0x1000, 7), load(0, 0x1000, 8)], &[("wrong-number", "OtherNumber")]);
    run(false, &[given(0x1000, 7), Record::NumbersTakenBack, given(0x2000, 7)], &[]);
    run(
        false,
        &[given(0x1000, 7), load(0, 0x1000, 7), Record::NumbersTakenBack, given(0x2000, 7)],
        &[("wrong-number", "NumberTaken")],
    );
    let both = [load(0, 0x1000, 7), load(1, 0x2000, 7)];
    run(true, &both, &[("wrong-number", "NumberShared")]);
    run(false, &both, &[]);
    run(true, &[load(0, 0x1000, 7), load(1, 0x2000, 8)], &[]);
}

#[test]
fn a_barrier_of_stores_completes_no_invalidation() {
    let header = Header { va_bits: 30, barriers: true, ..Header::new(Architecture::Aarch64K4, 2) };
    let barrier = |kind| Record::Barrier { cpu: 0, kind };
    let (stores, data) = (barrier(BarrierKind::Stores), barrier(BarrierKind::Data));
    let run = |before: Record<'static>, after: Record<'static>, expected: &[(&str, &str)]| {
        let records = [
            table(0x1000, 1),
            table(0x2000, 0),
            store8(0x2000, 0x9443),
            store8(0x1000, 0x2003),
            data,
            load(0, 0x1000, 1),
            barrier(BarrierKind::Instruction),
            read(0, 0x10),
            store8(0x2000, 0),
            before,
            invalidate(Some(0), Scope::Page { space: 1, va: 0 }),
            after,
            Record::FlushesDone,
        ];
        finds(&header, &records, expected);
    };
    run(stores, data, &[]);
    run(data, data, &[]);
    run(data, stores, &[("flush-missing", "UnmapNotFlushed")]);
    run(stores, stores, &[("flush-missing", "UnmapNotFlushed")]);
}

/// The tables of a guest's page 0, from the root down, and the scope of the invalidation that the
/// format has.
fn second_stage(architecture: Architecture) -> (Header, Vec<Record<'static>>, Scope) {
    let header = Header { asids: true, ..Header::new(architecture, 2) };
    let (levels, root_bytes, by_address, link, leaf): (u8, u64, bool, fn(u64) -> u64, u64) =
        match architecture {
            Architecture::Ept => (4, 0, false, |phys| phys | 7, 0x9037),
            Architecture::Npt => (4, 0, false, |phys| phys | 7, 0x9007),
            Architecture::Sv39x4 => (3, 0x4000, true, |phys| phys >> 2 | 1, 0x9000 >> 2 | 0xdf),
            _ => (4, 0x4000, true, |phys| phys >> 2 | 1, 0x9000 >> 2 | 0xdf),
        };
    let place = |level: u8| if level == levels - 1 { 0x4000 } else { 0x1000 + 0x1000 * u64::from(level) };
    let allocated = (0..levels).rev().map(|level| Record::TableAllocated {
        phys: place(level),
        size: if level == levels - 1 { root_bytes } else { 0 },
        level: Some(level),
        content: log::Content::Zero,
    });
    let linked = (1..levels).map(|level| store8(place(level), link(place(level - 1))));
    let mut records: Vec<_> = allocated.collect();
    records.push(store8(0x1000, leaf));
    records.extend(linked);
    let scope = if by_address { Scope::Page { space: 7, va: 0 } } else { Scope::Space(7) };
    (header, records, scope)
}

#[test]
fn each_stage_2_format_owes_a_flush_after_an_unmap() {
    for architecture in [Architecture::Ept, Architecture::Npt, Architecture::Sv39x4, Architecture::Sv48x4] {
        let (header, tables, scope) = second_stage(architecture);
        let used = [load(0, 0x4000, 7), read(0, 0x123), store8(0x1000, 0)];
        let freed = Record::DataFreed { phys: 0x9000, size: 4096 };
        let log = |rest: &[Record<'static>]| [&tables, &used[..], rest].concat();
        finds(&header, &log(&[Record::FlushesDone]), &[("flush-missing", "UnmapNotFlushed")]);
        finds(
            &header,
            &log(&[invalidate(Some(1), scope), Record::FlushesDone]),
            &[("flush-missing", "UnmapNotFlushed")],
        );
        finds(&header, &log(&[invalidate(Some(0), scope), Record::FlushesDone]), &[]);
        let (status, text) = replay(&common::log(&header, &log(&[freed])), &["--no-seed"]);
        assert!(status == 1 && text.contains("data-freed-before-flush"), "{architecture}: {text}");
    }
}

/// AMD: number 0 is the host's.
#[test]
fn a_guest_has_not_the_number_of_the_host() {
    let (header, tables, _) = second_stage(Architecture::Npt);
    let load = |space| [&tables[..], &[load(0, 0x4000, space)]].concat();
    finds(&header, &load(0), &[("wrong-number", "NumberOfHost")]);
    finds(&header, &load(1), &[]);
    let (header, tables, _) = second_stage(Architecture::Ept);
    finds(&header, &[&tables[..], &[self::load(0, 0x4000, 0)]].concat(), &[]);
}

#[test]
fn a_combined_translation_outlives_the_flush_of_one_stage() {
    let header =
        Header { va_bits: 39, start_level: 1, two_stages: true, ..Header::new(Architecture::Stage2K4, 1) };
    let combined =
        Record::AccessCombined { cpu: 0, number: 1, va: 0x5123, gpa: 0x123, kind: AccessKind::Read };
    let begin = [
        table(0x1000, 2),
        table(0x2000, 1),
        table(0x3000, 0),
        store8(0x3000, 0x97ff),
        store8(0x2000, 0x3003),
        store8(0x1000, 0x2003),
        load(0, 0x1000, 7),
        combined,
        store8(0x3000, 0),
        invalidate(Some(0), Scope::Page { space: 7, va: 0 }),
    ];
    let part = |number, va| Record::Stage1PartFlushed { cpu: 0, number, va };
    let run = |stage1: &[Record<'static>], expected: &[(&str, &str)]| {
        finds(&header, &[&begin, stage1, &[combined]].concat(), expected);
    };
    let stale = [("stale-use", "CombinedStale")];
    run(&[], &stale);
    run(&[part(Some(2), None)], &stale);
    run(&[part(Some(1), Some(0x6000))], &stale);
    run(&[part(Some(1), Some(0x5000))], &[]);
    run(&[part(Some(1), None)], &[]);
    run(&[part(None, None)], &[]);
    run(&[Record::Stage1Flushed { cpu: 0 }], &[]);
    // A part helps against no change of stage 2, all of it does.
    let due = |stage1| [&begin[..], &[stage1, Record::FlushesDone]].concat();
    finds(&header, &due(part(Some(1), Some(0x5000))), &[("flush-missing", "UnmapNotFlushed")]);
    finds(&header, &due(part(None, None)), &[]);
}
