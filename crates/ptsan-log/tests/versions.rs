//! Versions of the format: logs of older ones are read as they always were, and a log has no record
//! of a version that is newer than its header says.
use ptsan_log::{
    AccessKind, Architecture, BarrierKind, Check, Content, DecodeError, Encoder, ExceptionLevel,
    HEADER_BYTES, HEADER_START, Header, HeaderError, Reader, Record, Scope, VERSION, What, Written, decode,
};

/// A log that the encoder of version 1 wrote.
const FIRST: &[u8] = include_bytes!("data/version-1.ptl");

/// The machine and the records of [`FIRST`]: each kind of version 1, and each scope.
fn first() -> (Header, Vec<Record<'static>>) {
    let header = Header {
        asids: true,
        upper: true,
        barriers: true,
        accessed_dirty: true,
        two_stages: true,
        table_bytes: 0x4000,
        va_bits: 39,
        start_level: 1,
        ..Header::new(Architecture::Stage2K16, 2)
    };
    let invalidate = |cpu, scope, leaf_only| Record::Invalidate {
        cpu,
        scope,
        leaf_only,
        level: None,
        exception_level: None,
    };
    let (start, end, stride) = (0, 0x8000, 0x1000);
    let records = vec![
        Record::TableAllocated { phys: 0x1000, size: 0, level: Some(3), content: Content::Unknown },
        Record::TableAllocated { phys: 0x4000, size: 0x8000, level: None, content: Content::Unchecked },
        Record::Store { phys: 0x1008, value: 0x2007, bytes: 8 },
        Record::Exchange { phys: 0x1008, value: 0x2005, bytes: 8 },
        Record::Fill { phys: 0x1000, bytes: 4096, value: 0 },
        Record::Memory { phys: 0x1000, bytes: &[1, 2, 0xff] },
        Record::RootLoaded { cpu: 1, root: 0x1000, space: 1, flushes: true },
        Record::Lazy { cpu: 1 },
        Record::Resume { cpu: 1 },
        invalidate(Some(0), Scope::Page { space: 1, va: !0 }, true),
        invalidate(None, Scope::Range { space: 1, start, end, stride }, false),
        invalidate(Some(1), Scope::EverySpace { start, end, stride }, false),
        invalidate(Some(1), Scope::Space(7), false),
        invalidate(None, Scope::All, false),
        Record::SpaceCreated { space: 2 },
        Record::SpaceDestroyed { space: 2 },
        Record::DataFreed { phys: 0x9000, size: 4096 },
        Record::DataReused { phys: 0x9000, size: 4096 },
        Record::DataMapped { space: 1, va: 0x123 },
        Record::Barrier { cpu: 0, kind: BarrierKind::Data },
        Record::Barrier { cpu: 0, kind: BarrierKind::Instruction },
        Record::Barrier { cpu: 1, kind: BarrierKind::Fence },
        Record::FlushesDone,
        Record::Running { cpu: 1 },
        Record::Stage1Flushed { cpu: 1 },
        Record::OperationBegins { id: 7 },
        Record::OperationEnds { id: 7 },
        Record::Access { cpu: 0, va: 0x123, kind: AccessKind::Write, user: true },
        Record::Access { cpu: 0, va: 0x456, kind: AccessKind::Exec, user: false },
        Record::Leave { cpu: 1 },
        Record::TableFreed { phys: 0x1000, size: 0 },
        Record::Mark { text: "boot — done" },
        Record::End { all_freed: true },
    ];
    (header, records)
}

/// The address of the instruction behind a record of [`FIRST`]: every other one has one.
fn pc(n: usize) -> Option<u64> {
    (n.is_multiple_of(2) && n < 32).then(|| 0xffff_8000_0010_0000 + n as u64)
}

/// Returns a log of a version with these records as bytes, and right checks. `header` changes the
/// header.
fn log(version: u16, records: &[&[u8]], header: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = Encoder::new(Written(Vec::new()), &Header::new(Architecture::X86_64, 2)).unwrap();
    let mut bytes = std::mem::take(&mut bytes.sink().0);
    bytes.truncate(HEADER_BYTES - 2);
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    header(&mut bytes);
    let mut check = Check::new().with(&bytes);
    bytes.extend_from_slice(&check.value().to_le_bytes());
    for record in records.iter().copied().chain([&[0x13, 1, 0][..]]) {
        check = check.with(record);
        bytes.extend_from_slice(record);
        bytes.extend_from_slice(&check.value().to_le_bytes());
    }
    bytes
}

/// Returns the error of a log, and the record that it is in.
fn error(log: &[u8]) -> Option<(u64, What)> {
    let mut reader = match Reader::new(log) {
        Ok(reader) => reader,
        Err(e) => return Some((e.record, e.what)),
    };
    loop {
        match reader.next() {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(e) => return Some((e.record, e.what)),
        }
    }
}

#[test]
fn a_log_of_version_1_is_read_as_it_always_was() {
    let (header, records) = first();
    let mut reader = Reader::new(FIRST).unwrap();
    assert_eq!((*reader.header(), reader.version()), (header, 1));
    for (n, record) in records.iter().enumerate() {
        let entry = reader.next().unwrap().unwrap();
        assert_eq!((entry.record, entry.pc), (*record, pc(n)));
    }
    assert!(reader.next().unwrap().is_none());
    assert_eq!(reader.offset(), FIRST.len() as u64);
}

/// Only the version in the header, and so the checks, differ.
#[test]
fn the_records_of_version_1_are_the_same_bytes_in_this_version() {
    let (header, records) = first();
    let mut log = Encoder::new(Written(Vec::new()), &header).unwrap();
    for (n, record) in records.iter().enumerate() {
        match pc(n) {
            Some(pc) => log.record_at(pc, record).unwrap(),
            None => log.record(record).unwrap(),
        }
    }
    let log = log.into_sink().0;
    assert_eq!(log.len(), FIRST.len());
    let mut differ: Vec<usize> = (0..log.len()).filter(|at| log[*at] != FIRST[*at]).collect();
    let (mut at, mut checks) = (HEADER_BYTES, vec![HEADER_BYTES - 2]);
    while at < log.len() {
        at += 4 + usize::from(log[at + 1]);
        checks.push(at - 2);
    }
    differ.retain(|at| !checks.iter().any(|check| (check..&(check + 2)).contains(&at)));
    assert_eq!((differ, VERSION), (vec![8], 2));
}

#[test]
fn records_of_version_2_in_a_log_of_version_1_are_refused() {
    for kind in 0x14u8..=0x22 {
        // Enough zeroes for any of them: what matters is the kind.
        for kind in [kind, kind | 0x80] {
            let record = [kind, 6, 0, 0, 0, 0, 0, 0];
            let found = error(&log(1, &[&[7, 1, 0], &record], |_| {}));
            let Some((2, What::Record(e @ DecodeError::Newer { .. }))) = found else { panic!("{found:?}") };
            assert_eq!(e, DecodeError::Newer { kind: kind & 0x7f, needs: 2, version: 1 });
            let text = format!(
                "record of kind {:#04x}: version 2 of the format has it, and the header says version 1",
                kind & 0x7f
            );
            assert_eq!(e.to_string(), text);
        }
    }
    let ishst: &[u8] = &[0x40, 2, 0, 3];
    let found = error(&log(1, &[ishst], |_| {}));
    assert!(matches!(found, Some((1, What::Record(DecodeError::Newer { kind: 0x40, .. })))), "{found:?}");
    assert!(error(&log(2, &[ishst], |_| {})).is_none());
    // Kinds that no version has yet stay unknown, in a log of any.
    for version in [1, 2] {
        let found = error(&log(version, &[&[0x23, 1, 0]], |_| {}));
        assert!(matches!(found, Some((1, What::Record(DecodeError::Kind(0x23))))), "{found:?}");
        assert!(error(&log(version, &[&[0x50, 1, 0]], |_| {})).is_none());
    }
    // A header that is alone decides, not the record.
    let check = Check::new();
    let record = [0x15, 1, 2];
    let sum = check.with(&record).value().to_le_bytes();
    let whole = [&record[..], &sum].concat();
    assert!(decode(&whole, check, 1).is_err());
    assert_eq!(decode(&whole, check, 2).unwrap().record, Some(Record::QueueCompleted { device: 2 }));
}

#[test]
fn fields_of_a_header_of_version_2_mean_nothing_in_version_1() {
    let set = |header: &mut [u8]| {
        header[13] = 0x60;
        header[22] = 3;
    };
    let header = |version| *Reader::new(&log(version, &[], set)[..]).unwrap().header();
    let (old, new) = (header(1), header(2));
    assert_eq!((old.devices, old.common_numbers, old.locks), (0, false, false));
    assert_eq!((new.devices, new.common_numbers, new.locks), (3, true, true));
    assert_eq!((new.device(0), new.device(2)), (2, 4));
    for (code, architecture) in [
        (16, Architecture::Ept),
        (17, Architecture::Npt),
        (18, Architecture::Sv39x4),
        (19, Architecture::Sv48x4),
    ] {
        let of = |version| log(version, &[], |header: &mut [u8]| header[12] = code);
        assert_eq!(Reader::new(&of(2)[..]).unwrap().header().architecture, architecture);
        let Some((0, What::Header(e))) = error(&of(1)) else { panic!("{architecture}") };
        assert_eq!(e, HeaderError::NewArchitecture { architecture, needs: 2, version: 1 });
        assert!(e.to_string().contains("the header says version 1"), "{e}");
    }
}

#[test]
fn a_header_of_el2_has_a_field_more_and_others_are_as_they_were() {
    let written = |exception_level| {
        let header = Header { exception_level, ..Header::new(Architecture::Aarch64K4, 1) };
        let mut log = Encoder::new(Written(Vec::new()), &header).unwrap();
        log.end(false).unwrap();
        let log = log.into_sink().0;
        assert_eq!(*Reader::new(&log[..]).unwrap().header(), header);
        log
    };
    let [usual, el2] = [ExceptionLevel::El1, ExceptionLevel::El2].map(written);
    assert_eq!((usual[10], el2[10], el2[24]), (12, 13, 2));
    assert_eq!((usual.len() - HEADER_BYTES, el2.len() - HEADER_BYTES), (5, 6));
    for level in [4, 0xff] {
        let with = log(2, &[], |header: &mut [u8]| header[10] = 12);
        let mut fields = [&with[..HEADER_BYTES - 2], &[level]].concat();
        fields[10] = 13;
        let sum = Check::new().with(&fields).value().to_le_bytes();
        let Some((0, What::Header(e))) = error(&[&fields[..], &sum].concat()) else { panic!("{level}") };
        assert_eq!(e, HeaderError::ExceptionLevel(level));
        assert_eq!(e.to_string(), format!("exception level {level}; it is 1, 2 or 3"));
    }
    // An invalidation of no such level.
    let found = error(&log(2, &[&[0x0a, 4, 0, 4, 0, 4]], |_| {}));
    let Some((1, What::Record(e))) = found else { panic!("{found:?}") };
    assert_eq!(e.to_string(), "record of kind 0x0a: exception level cannot be 0x4");
}

#[test]
fn a_header_needs_a_cpu_or_a_device_and_not_too_many() {
    let of = |version: u16, cpus: u16, devices: u16| {
        let log = log(version, &[], |header: &mut [u8]| {
            header[14..16].copy_from_slice(&cpus.to_le_bytes());
            header[22..24].copy_from_slice(&devices.to_le_bytes());
        });
        match error(&log) {
            Some((0, What::Header(e))) => Some(e),
            None => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of(2, 0, 1), None);
    assert_eq!(of(1, 0, 1), Some(HeaderError::NoCpus), "version 1 has no devices");
    assert_eq!(of(2, 0, 0), Some(HeaderError::NoCpus));
    assert_eq!(of(2, 65_534, 1), None);
    assert_eq!(of(2, 65_535, 1), Some(HeaderError::TooMany { cpus: 65_535, devices: 1 }));
}

#[test]
fn a_version_that_is_too_new_is_refused_with_both_versions() {
    let text = |version| match error(&log(version, &[], |_| {})) {
        Some((0, What::Header(e))) => e.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(text(3), "version 3 of the format; this program reads up to 2");
    assert_eq!(text(0), "version 0 of the format; this program reads up to 2");
    let mut start = [0; HEADER_START];
    start.copy_from_slice(&FIRST[..HEADER_START]);
    assert_eq!(Header::start(&start), Ok((1, 12)));
}

/// The log that docs/ptsan-log.md shows as an example.
#[test]
fn the_example_of_the_document_is_what_the_encoder_writes() {
    let document = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ptsan-log.md");
    let Ok(document) = std::fs::read_to_string(&document) else {
        eprintln!("skipped: {} is not there", document.display());
        return;
    };
    let block = document.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let shown: Vec<u8> = block.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let header = Header { devices: 1, ..Header::new(Architecture::X86_64, 2) };
    let mut log = Encoder::new(Written(Vec::new()), &header).unwrap();
    let device = header.device(0);
    log.record(&Record::FlushQueued {
        device,
        scope: Scope::Space(1 << 32),
        leaf_only: false,
        level: None,
        exception_level: None,
    })
    .unwrap();
    log.record(&Record::QueueCompleted { device }).unwrap();
    log.end(false).unwrap();
    assert_eq!(log.into_sink().0, shown);
}
