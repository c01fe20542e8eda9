//! The format: a reader gets exactly the records that were written.
use proptest::collection::vec;
use proptest::prelude::*;
use ptsan_log::{
    AccessKind, Architecture, BarrierKind, Check, Content, DecodeError, Encoder, ExceptionLevel,
    HEADER_BYTES, Header, HeaderError, MAX_BYTES, MAX_ENTRY, MAX_FILL, MAX_RECORD, MAX_TEXT, ReadError,
    Reader, Record, Scope, What,
};

/// A record whose text and bytes are its own.
#[derive(Clone, Debug)]
enum Made {
    Plain(Record<'static>),
    Memory(u64, Vec<u8>),
    Entry(u64, Vec<u8>),
    Mark(String),
}

impl Made {
    fn record(&self) -> Record<'_> {
        match self {
            Self::Plain(record) => *record,
            Self::Memory(phys, bytes) => Record::Memory { phys: *phys, bytes },
            Self::Entry(phys, bytes) => Record::DeviceEntryWritten { phys: *phys, bytes },
            Self::Mark(text) => Record::Mark { text },
        }
    }
}

fn scope() -> impl Strategy<Value = Scope> {
    let n = any::<u64>;
    prop_oneof![
        (n(), n()).prop_map(|(space, va)| Scope::Page { space, va }),
        (n(), n(), n(), n()).prop_map(|(space, start, end, stride)| Scope::Range {
            space,
            start,
            end,
            stride
        }),
        (n(), n(), n()).prop_map(|(start, end, stride)| Scope::EverySpace { start, end, stride }),
        n().prop_map(Scope::Space),
        Just(Scope::All),
    ]
}

/// Any exception level.
fn exception_level() -> impl Strategy<Value = ExceptionLevel> {
    prop_oneof![Just(ExceptionLevel::El1), Just(ExceptionLevel::El2), Just(ExceptionLevel::El3)]
}

/// Whether an invalidation spares tables, and the levels that it names.
fn named() -> impl Strategy<Value = (bool, Option<u8>, Option<ExceptionLevel>)> {
    (any::<bool>(), proptest::option::of(0u8..255), proptest::option::of(exception_level()))
}

/// Records that version 2 added.
fn second() -> impl Strategy<Value = Record<'static>> {
    let n = any::<u64>;
    let cpu = any::<u16>;
    let access = prop_oneof![Just(AccessKind::Read), Just(AccessKind::Write), Just(AccessKind::Exec)];
    let maybe = || proptest::option::of(any::<u64>());
    prop_oneof![
        (cpu(), scope(), named()).prop_map(|(device, scope, (leaf_only, level, exception_level))| {
            Record::FlushQueued { device, scope, leaf_only, level, exception_level }
        }),
        cpu().prop_map(|device| Record::QueueCompleted { device }),
        (cpu(), n(), 0u32..4, 0u8..8, 1..=u64::MAX).prop_map(|(device, phys, shift, word, valid)| {
            Record::DeviceEntry {
                device,
                phys: phys >> (shift + 3) << (shift + 3),
                bytes: 8 << shift,
                word: word % (1 << shift),
                valid,
            }
        }),
        (cpu(), maybe()).prop_map(|(device, phys)| Record::DeviceEntriesFlushed { device, phys }),
        (n(), n()).prop_map(|(id, root)| Record::ReaderBegins { id, root }),
        (n(), n()).prop_map(|(id, table)| Record::ReaderReads { id, table }),
        n().prop_map(|id| Record::ReaderEnds { id }),
        (n(), n(), any::<bool>()).prop_map(|(table, lock, flush_first)| Record::LockGuards {
            table,
            lock,
            flush_first
        }),
        (cpu(), n(), any::<bool>()).prop_map(|(cpu, lock, shared)| Record::LockTaken { cpu, lock, shared }),
        (cpu(), n()).prop_map(|(cpu, lock)| Record::LockReleased { cpu, lock }),
        (n(), n()).prop_map(|(root, space)| Record::NumberGiven { root, space }),
        Just(Record::NumbersTakenBack),
        (cpu(), maybe(), maybe()).prop_map(|(cpu, number, va)| Record::Stage1PartFlushed { cpu, number, va }),
        (cpu(), n(), n(), n(), access).prop_map(|(cpu, number, va, gpa, kind)| Record::AccessCombined {
            cpu,
            number,
            va,
            gpa,
            kind
        }),
    ]
}

fn plain() -> impl Strategy<Value = Record<'static>> {
    let n = any::<u64>;
    let cpu = any::<u16>;
    let content = prop_oneof![Just(Content::Zero), Just(Content::Unknown), Just(Content::Unchecked)];
    let access = prop_oneof![Just(AccessKind::Read), Just(AccessKind::Write), Just(AccessKind::Exec)];
    let barrier = proptest::sample::select(vec![
        BarrierKind::Data,
        BarrierKind::Instruction,
        BarrierKind::Fence,
        BarrierKind::Stores,
    ]);
    prop_oneof![
        (n(), n(), proptest::option::of(0u8..255), content).prop_map(|(phys, size, level, content)| {
            Record::TableAllocated { phys, size, level, content }
        }),
        (n(), n()).prop_map(|(phys, size)| Record::TableFreed { phys, size }),
        (n(), n(), 0u32..4).prop_map(|(phys, value, shift)| Record::Store {
            phys: phys >> shift << shift,
            value,
            bytes: 1 << shift
        }),
        (n(), 0..=MAX_FILL / 8, n()).prop_map(|(phys, words, value)| Record::Fill {
            phys: phys >> 4 << 3,
            bytes: words * 8,
            value
        }),
        (cpu(), n(), n(), any::<bool>()).prop_map(|(cpu, root, space, flushes)| Record::RootLoaded {
            cpu,
            root,
            space,
            flushes
        }),
        cpu().prop_map(|cpu| Record::Lazy { cpu }),
        cpu().prop_map(|cpu| Record::Resume { cpu }),
        cpu().prop_map(|cpu| Record::Leave { cpu }),
        (proptest::option::of(cpu()), scope(), named()).prop_map(
            |(cpu, scope, (leaf_only, level, exception_level))| Record::Invalidate {
                cpu,
                scope,
                leaf_only,
                level,
                exception_level
            }
        ),
        n().prop_map(|space| Record::SpaceCreated { space }),
        n().prop_map(|space| Record::SpaceDestroyed { space }),
        (n(), n()).prop_map(|(phys, size)| Record::DataFreed { phys, size }),
        (n(), n()).prop_map(|(phys, size)| Record::DataReused { phys, size }),
        (n(), n(), 0u32..4).prop_map(|(phys, value, shift)| Record::Exchange {
            phys: phys >> shift << shift,
            value,
            bytes: 1 << shift
        }),
        (n(), n()).prop_map(|(space, va)| Record::DataMapped { space, va }),
        (cpu(), barrier).prop_map(|(cpu, kind)| Record::Barrier { cpu, kind }),
        Just(Record::FlushesDone),
        cpu().prop_map(|cpu| Record::Running { cpu }),
        cpu().prop_map(|cpu| Record::Stage1Flushed { cpu }),
        n().prop_map(|id| Record::OperationBegins { id }),
        n().prop_map(|id| Record::OperationEnds { id }),
        (cpu(), n(), access, any::<bool>()).prop_map(|(cpu, va, kind, user)| Record::Access {
            cpu,
            va,
            kind,
            user
        }),
    ]
}

fn made() -> impl Strategy<Value = Made> {
    prop_oneof![
        8 => plain().prop_map(Made::Plain),
        6 => second().prop_map(Made::Plain),
        1 => (any::<u64>(), 0u32..=6, vec(any::<u8>(), MAX_ENTRY)).prop_map(|(phys, shift, bytes)| {
            Made::Entry(phys >> shift << shift, bytes[..1 << shift].to_vec())
        }),
        1 => (any::<u32>(), vec(any::<u8>(), 0..=MAX_BYTES)).prop_map(|(at, bytes)| Made::Memory(at.into(), bytes)),
        1 => "\\PC{0,40}".prop_map(Made::Mark),
    ]
}

fn header() -> impl Strategy<Value = Header> {
    let architecture = proptest::sample::select(Architecture::ALL);
    let flags = any::<[bool; 8]>();
    let readers = prop_oneof![
        (1..=u16::MAX, Just(0)),
        (0u16..9, 1u16..9),
        Just((u16::MAX - 1, 1)),
        Just((0, u16::MAX))
    ];
    (architecture, readers, flags, any::<u32>(), any::<u8>(), any::<u8>(), exception_level()).prop_map(
        |(
            architecture,
            (cpus, devices),
            [asids, upper, barriers, accessed_dirty, two_stages, common_numbers, locks, keeps_invalid],
            table_bytes,
            va_bits,
            start_level,
            exception_level,
        )| Header {
            architecture,
            cpus,
            devices,
            asids,
            table_bytes,
            va_bits,
            start_level,
            upper,
            barriers,
            accessed_dirty,
            two_stages,
            common_numbers,
            locks,
            keeps_invalid,
            exception_level,
        },
    )
}

fn written(header: &Header, records: &[(Option<u64>, Made)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sink = |part: &[u8]| -> Result<(), ()> {
        assert!(part.len() <= MAX_RECORD);
        bytes.extend_from_slice(part);
        Ok(())
    };
    let mut log = Encoder::new(sink, header).unwrap();
    for (pc, record) in records {
        match pc {
            Some(pc) => log.record_at(*pc, &record.record()).unwrap(),
            None => log.record(&record.record()).unwrap(),
        }
    }
    log.end(true).unwrap();
    bytes
}

/// Reads all of a log; returns how many records there were, and how it ended.
fn read(bytes: &[u8]) -> (u64, Result<(), ReadError>) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(e) => return (0, Err(e)),
    };
    loop {
        match reader.next() {
            Ok(Some(entry)) => assert!(entry.offset < bytes.len() as u64),
            Ok(None) => return (reader.records(), Ok(())),
            Err(e) => {
                assert!(e.offset <= bytes.len() as u64 && e.record == reader.records() + 1, "{e}");
                assert!(matches!(reader.next(), Ok(None)), "an error is not the end");
                return (reader.records(), Err(e));
            }
        }
    }
}

/// A log with a record of each kind.
fn sample() -> Vec<u8> {
    let plain = [
        Record::TableAllocated { phys: 0x1000, size: 0, level: Some(3), content: Content::Unknown },
        Record::Store { phys: 0x1008, value: 0x2007, bytes: 8 },
        Record::Fill { phys: 0x1000, bytes: 4096, value: 0 },
        Record::RootLoaded { cpu: 0, root: 0x1000, space: 1, flushes: false },
        Record::Lazy { cpu: 0 },
        Record::Resume { cpu: 0 },
        Record::Invalidate {
            cpu: Some(0),
            scope: Scope::Page { space: 1, va: !0 },
            leaf_only: true,
            level: None,
            exception_level: None,
        },
        Record::SpaceCreated { space: 2 },
        Record::SpaceDestroyed { space: 2 },
        Record::DataFreed { phys: 0x9000, size: 4096 },
        Record::DataReused { phys: 0x9000, size: 4096 },
        Record::DataMapped { space: 1, va: 0x123 },
        Record::Exchange { phys: 0x1008, value: 0x2005, bytes: 8 },
        Record::Barrier { cpu: 0, kind: BarrierKind::Instruction },
        Record::FlushesDone,
        Record::Running { cpu: 1 },
        Record::Stage1Flushed { cpu: 1 },
        Record::OperationBegins { id: 7 },
        Record::OperationEnds { id: 7 },
        Record::Access { cpu: 0, va: 0x123, kind: AccessKind::Write, user: true },
        Record::Leave { cpu: 0 },
        Record::TableFreed { phys: 0x1000, size: 0 },
        Record::FlushQueued {
            device: 2,
            scope: Scope::Space(7),
            leaf_only: false,
            level: None,
            exception_level: None,
        },
        Record::QueueCompleted { device: 2 },
        Record::DeviceEntry { device: 2, phys: 0x5000, bytes: 16, word: 1, valid: 1 },
        Record::DeviceEntryWritten { phys: 0x5000, bytes: &[7; 16] },
        Record::DeviceEntriesFlushed { device: 2, phys: Some(0x5008) },
        Record::DeviceEntriesFlushed { device: 2, phys: None },
        Record::ReaderBegins { id: 1, root: 0x1000 },
        Record::ReaderReads { id: 1, table: 0x1000 },
        Record::ReaderEnds { id: 1 },
        Record::LockGuards { table: 0x1000, lock: 9, flush_first: true },
        Record::LockTaken { cpu: 0, lock: 9, shared: false },
        Record::LockReleased { cpu: 0, lock: 9 },
        Record::NumberGiven { root: 0x1000, space: 7 },
        Record::NumbersTakenBack,
        Record::Stage1PartFlushed { cpu: 0, number: None, va: Some(0x123) },
        Record::AccessCombined { cpu: 0, number: 1, va: 0x123, gpa: 0x456, kind: AccessKind::Exec },
    ];
    let mut records: Vec<_> = plain.map(|r| (Some(0xffff_ffff_8000_1234), Made::Plain(r))).into();
    records.push((None, Made::Memory(0x1000, vec![1, 2, 3])));
    records.push((None, Made::Mark("boot — done".to_owned())));
    written(&Header { asids: true, devices: 1, ..Header::new(Architecture::X86_64, 2) }, &records)
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(header in header(), records in vec((proptest::option::of(any::<u64>()), made()), 0..40)) {
        let bytes = written(&header, &records);
        let mut reader = Reader::new(&bytes[..]).unwrap();
        prop_assert_eq!(*reader.header(), header);
        let more = usize::from(header.exception_level != ExceptionLevel::El1);
        let mut offset = (HEADER_BYTES + more) as u64;
        for (n, (pc, record)) in records.iter().enumerate() {
            let entry = reader.next().unwrap().unwrap();
            prop_assert_eq!(entry.record, record.record());
            prop_assert_eq!((entry.pc, entry.number, entry.offset), (*pc, n as u64 + 1, offset));
            offset = reader.offset();
        }
        let end = reader.next().unwrap().unwrap();
        prop_assert_eq!(end.record, Record::End { all_freed: true });
        prop_assert!(reader.next().unwrap().is_none());
        prop_assert_eq!(reader.offset(), bytes.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]

    #[test]
    fn random_bytes_end_in_an_error(bytes in vec(any::<u8>(), 0..80), begins_well in any::<bool>()) {
        let log = if begins_well {
            let mut log = written(&Header::new(Architecture::Sv39, 1), &[]);
            log.truncate(HEADER_BYTES);
            log.extend_from_slice(&bytes);
            log
        } else {
            bytes
        };
        // One record in 65,536 has the right check by chance; all of a log has not.
        prop_assert!(read(&log).1.is_err());
    }

    #[test]
    fn random_payloads_with_a_right_check_are_records_or_errors(
        tag in any::<u8>(),
        payload in vec(prop_oneof![Just(0u8), Just(0xff), 0u8..8, any::<u8>()], 0..40),
    ) {
        let mut log = written(&Header::new(Architecture::Sv39, 1), &[]);
        log.truncate(HEADER_BYTES);
        let check = Check::new().with(&log[..HEADER_BYTES - 2]);
        let record = [&[tag, payload.len() as u8], &payload[..]].concat();
        log.extend_from_slice(&record);
        log.extend_from_slice(&check.with(&record).value().to_le_bytes());
        match read(&log) {
            (1, Ok(()) ) => prop_assert_eq!(tag & 0x7f, 0x13),
            (1, Err(e)) => prop_assert!(matches!(e.what, What::NoEnd), "{}", e),
            (0, Err(e)) => prop_assert!(
                matches!(e.what, What::Record(DecodeError::Kind(_) | DecodeError::Field { .. })), "{}", e),
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

#[test]
fn a_log_cut_at_any_byte_says_so_after_its_whole_records() {
    let whole = sample();
    let (all, done) = read(&whole);
    assert!(done.is_ok() && all == 41, "{all} {done:?}");
    let mut before = 0;
    for length in 0..whole.len() {
        let (records, done) = read(&whole[..length]);
        let error = done.expect_err("a part is no log");
        assert!(error.is_cut(), "{length}: {error}");
        assert_eq!(error.record == 0, length < HEADER_BYTES, "{length}: {error}");
        assert!(records == before || records == before + 1, "{length}");
        before = records;
    }
    assert_eq!(before, all - 1, "only the end is missing");
}

#[test]
fn a_bit_that_flips_is_noticed_at_the_record_it_is_in() {
    let whole = sample();
    // Where each record begins.
    let mut starts = Vec::new();
    let mut reader = Reader::new(&whole[..]).unwrap();
    while let Some(entry) = reader.next().unwrap() {
        starts.push(entry.offset);
    }
    for bit in 0..whole.len() * 8 {
        let mut log = whole.clone();
        log[bit / 8] ^= 1 << (bit % 8);
        let error = read(&log).1.expect_err("a flipped bit");
        let record = starts.partition_point(|start| *start <= (bit / 8) as u64);
        // A length that grew may reach beyond the end.
        assert_eq!(error.record, record as u64, "bit {bit}: {error}");
    }
}

#[test]
fn a_record_that_is_lost_or_repeated_is_noticed() {
    let whole = sample();
    let mut reader = Reader::new(&whole[..]).unwrap();
    let mut starts = vec![];
    while let Some(entry) = reader.next().unwrap() {
        starts.push(entry.offset as usize);
    }
    for pair in starts.windows(2) {
        let mut lost = whole.clone();
        lost.drain(pair[0]..pair[1]);
        assert!(read(&lost).1.is_err(), "lost at {}", pair[0]);
        let mut twice = whole.clone();
        twice.splice(pair[1]..pair[1], whole[pair[0]..pair[1]].to_vec());
        assert!(read(&twice).1.is_err(), "twice at {}", pair[0]);
    }
}

#[test]
fn kinds_that_may_be_skipped_are_and_others_are_not() {
    let header = written(&Header::new(Architecture::X86_64, 1), &[])[..HEADER_BYTES].to_vec();
    let with = |tags: &[u8]| {
        let (mut log, mut check) = (header.clone(), Check::new().with(&header[..HEADER_BYTES - 2]));
        for tag in tags {
            let record = [*tag, 1, 0];
            check = check.with(&record);
            log.extend_from_slice(&record);
            log.extend_from_slice(&check.value().to_le_bytes());
        }
        log
    };
    assert!(matches!(read(&with(&[0x60, 0x7f, 0x13])), (3, Ok(()))));
    let (_, done) = read(&with(&[0x60, 0x3f, 0x13]));
    let error = done.unwrap_err();
    assert!(matches!(error.what, What::Record(DecodeError::Kind(0x3f))) && error.record == 2, "{error}");
    let error = read(&with(&[0x13, 0x13])).1.unwrap_err();
    assert!(matches!(error.what, What::AfterEnd), "{error}");
}

#[test]
fn a_longer_header_is_read_and_a_newer_version_refused() {
    let old = written(&Header::new(Architecture::Sv39, 3), &[]);
    let mut fields = old[..HEADER_BYTES - 2].to_vec();
    fields[10] += 4;
    fields.extend_from_slice(&[1, 2, 3, 4]);
    let check = Check::new().with(&fields);
    let mut log = fields.clone();
    log.extend_from_slice(&check.value().to_le_bytes());
    let end = [0x13, 1, 0];
    log.extend_from_slice(&end);
    log.extend_from_slice(&check.with(&end).value().to_le_bytes());
    assert_eq!(Reader::new(&log[..]).unwrap().header().cpus, 3);
    assert!(read(&log).1.is_ok());
    for (at, value, expected) in [
        (8, 3, HeaderError::Version(3)),
        (8, 0, HeaderError::Version(0)),
        (10, 11, HeaderError::Short(11)),
        (0, 0, HeaderError::NotALog),
    ] {
        let mut bad = old.clone();
        bad[at] = value;
        let What::Header(found) = read(&bad).1.unwrap_err().what else { panic!("{expected}") };
        assert_eq!(found, expected);
    }
}

#[test]
fn fields_out_of_range_are_named() {
    let entry = |phys, bytes, word, valid| Record::DeviceEntry { device: 1, phys, bytes, word, valid };
    let records = [
        (Record::Store { phys: 0x1004, value: 0, bytes: 8 }, "address cannot be 0x1004"),
        (Record::Store { phys: 0x1000, value: 0, bytes: 3 }, "bytes cannot be 0x3"),
        (Record::Fill { phys: 0x1004, bytes: 8, value: 0 }, "address cannot be 0x1004"),
        (Record::Fill { phys: !7, bytes: 16, value: 0 }, "address cannot be"),
        (Record::Fill { phys: 0x1000, bytes: 12, value: 0 }, "bytes cannot be 0xc"),
        (Record::Fill { phys: 0x1000, bytes: MAX_FILL + 8, value: 0 }, "bytes cannot be 0x10008"),
        (Record::Memory { phys: !0, bytes: &[1, 2] }, "address cannot be"),
        (entry(0x1000, 24, 0, 1), "bytes cannot be 0x18"),
        (entry(0x1000, 128, 0, 1), "bytes cannot be 0x80"),
        (entry(0x1008, 16, 0, 1), "address cannot be 0x1008"),
        (entry(0x1000, 16, 2, 1), "word cannot be 0x2"),
        (entry(0x1000, 16, 1, 0), "valid bits cannot be 0x0"),
        (Record::DeviceEntryWritten { phys: 0x1000, bytes: &[] }, "bytes cannot be 0x0"),
        (Record::DeviceEntryWritten { phys: 0x1000, bytes: &[1; 12] }, "bytes cannot be 0xc"),
        (Record::DeviceEntryWritten { phys: 0x1008, bytes: &[1; 16] }, "address cannot be 0x1008"),
    ];
    for (record, what) in records {
        let made = vec![(None, Made::Plain(record))];
        let error = read(&written(&Header::new(Architecture::Sv39, 1), &made)).1.unwrap_err();
        assert!(error.to_string().contains(what) && error.record == 1, "{error}");
    }
}

#[test]
fn long_texts_are_cut_and_memory_takes_several_records() {
    let text = "ä".repeat(MAX_TEXT);
    let bytes = written(&Header::new(Architecture::Sv39, 1), &[(Some(!0), Made::Mark(text))]);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let Some(Record::Mark { text }) = reader.next().unwrap().map(|e| e.record) else { panic!() };
    assert_eq!(text, "ä".repeat(MAX_TEXT / 2));

    let memory: Vec<u8> = (0..=255).cycle().take(450).collect();
    let mut log = Encoder::new(ptsan_log::Written(Vec::new()), &Header::new(Architecture::Sv39, 1)).unwrap();
    log.memory(0x1000, &memory).unwrap();
    log.end(false).unwrap();
    let bytes = log.into_sink().0;
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut seen = Vec::new();
    while let Some(Record::Memory { phys, bytes }) = reader.next().unwrap().map(|e| e.record) {
        assert_eq!(phys, 0x1000 + seen.len() as u64);
        seen.extend_from_slice(bytes);
    }
    assert_eq!(seen, memory);
}

/// Returns a log of one record as these bytes, with a right check, and its end.
fn with_record(record: &[u8]) -> Vec<u8> {
    let mut log = written(&Header::new(Architecture::X86_64, 1), &[])[..HEADER_BYTES].to_vec();
    let mut check = Check::new().with(&log[..HEADER_BYTES - 2]);
    for record in [record, &[0x13, 1, 0]] {
        check = check.with(record);
        log.extend_from_slice(record);
        log.extend_from_slice(&check.value().to_le_bytes());
    }
    log
}

#[test]
fn an_exchange_is_a_store_to_readers_that_do_not_know_it() {
    let first = |log: &[u8]| {
        let mut reader = Reader::new(log).unwrap();
        let record = reader.next().map(|entry| entry.map(|e| format!("{:?}", e.record)));
        record.map_err(|e| e.to_string())
    };
    let exchange = Record::Exchange { phys: 8, value: 5, bytes: 8 };
    let log = written(&Header::new(Architecture::X86_64, 1), &[(None, Made::Plain(exchange))]);
    // As a store, with one field behind the fields that version 1 always had.
    assert_eq!(&log[HEADER_BYTES..][..6], [3, 4, 8, 8, 5, 1]);
    let store = Record::Store { phys: 8, value: 5, bytes: 8 };
    for record in [&[3, 3, 8, 8, 5][..], &[3, 4, 8, 8, 5, 0]] {
        assert_eq!(first(&with_record(record)).unwrap(), Some(format!("{store:?}")));
    }
    assert_eq!(first(&with_record(&[3, 6, 8, 8, 5, 1, 9, 9])).unwrap(), Some(format!("{exchange:?}")));
    let error = first(&with_record(&[3, 4, 8, 8, 5, 2])).unwrap_err();
    assert!(error.contains("exchanged cannot be 0x2"), "{error}");
    let error = first(&with_record(&[0x40, 2, 0, 4])).unwrap_err();
    assert!(error.contains("barrier cannot be 0x4"), "{error}");
    for (record, what) in [
        (&[0x17, 4, 0, 4, 1, 2][..], "content is missing"),
        (&[0x18, 2, 1, 2], "one entry cannot be 0x2"),
        (&[0x18, 2, 1, 1], "address is missing"),
        (&[0x1d, 3, 0, 0, 2], "shared cannot be 0x2"),
        (&[0x21, 3, 0, 2, 0], "one space cannot be 0x2"),
        (&[0x22, 5, 0, 0, 0, 0, 4], "access cannot be 0x4"),
        (&[0x14, 2, 1, 5], "scope cannot be 0x5"),
        (&[0x14, 4, 0x80, 0x80, 4, 4], "device cannot be 0x10000"),
    ] {
        let error = first(&with_record(record)).unwrap_err();
        assert!(error.contains(what), "{what}: {error}");
    }
}
