//! The command, run on logs that the tests write.
use ptsan_log::{
    AccessKind, Architecture, BarrierKind, Content, Encoder, ExceptionLevel, Header, Record, Scope, Written,
};

mod common;

use common::{invalidate, log, ptsan, replay};

fn machine() -> Header {
    Header::new(Architecture::X86_64, 2)
}

/// A space of four tables that maps page 0, up to the store that unlinks the last table.
fn space() -> Vec<Record<'static>> {
    let table =
        |phys, level| Record::TableAllocated { phys, size: 0, level: Some(level), content: Content::Zero };
    let store = |phys, value| Record::Store { phys, value, bytes: 8 };
    vec![
        table(0x1000, 3),
        table(0x2000, 2),
        table(0x3000, 1),
        table(0x4000, 0),
        store(0x4000, 0x9007),
        store(0x3000, 0x4007),
        store(0x2000, 0x3007),
        store(0x1000, 0x2007),
        Record::RootLoaded { cpu: 0, root: 0x1000, space: 1, flushes: false },
        Record::Access { cpu: 0, va: 0x123, kind: AccessKind::Read, user: true },
        store(0x3000, 0),
    ]
}

fn freed() -> Vec<Record<'static>> {
    let free = |phys| Record::TableFreed { phys, size: 0 };
    vec![free(0x4000), Record::Leave { cpu: 0 }, free(0x3000), free(0x2000), free(0x1000)]
}

fn without_flush() -> Vec<u8> {
    log(&machine(), &[space(), freed()].concat())
}

fn with_flush() -> Vec<Record<'static>> {
    let flush = invalidate(Some(0), Scope::Page { space: 1, va: 0 });
    [space(), vec![flush], freed()].concat()
}

#[test]
fn a_kernel_that_flushes_is_clean() {
    let log = log(&machine(), &with_flush());
    for arguments in [&[][..], &["--seed", "0x77"], &["--no-seed"]] {
        let (status, text) = replay(&log, arguments);
        assert_eq!(status, 0, "{text}");
        assert!(text.contains("no findings") && text.contains("tables allocated: 4"), "{text}");
    }
}

#[test]
fn a_missing_flush_is_found_with_table_address_and_records() {
    let (status, text) = replay(&without_flush(), &["--no-seed"]);
    assert_eq!(status, 1, "{text}");
    for part in [
        "1 finding\n",
        "free-before-flush: a CPU holds the table",
        "at record 12, table frame 0x4000, PT (level 0)",
        "record 4: allocated",
        "record 10: walked by CPU 0",
        "since record 10",
        "found in\n    0xffff80000010000b\n",
        "summary: 1 memory-corruption, 1 cause",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_missing_flush_is_found_without_an_access() {
    let accesses = |r: &Record<'_>| !matches!(r, Record::Access { .. });
    let records: Vec<_> = [space(), freed()].concat().into_iter().filter(accesses).collect();
    let (status, text) = replay(&log(&machine(), &records), &["--no-seed"]);
    assert!(status == 1 && text.contains("free-before-flush: a table was unlinked and freed"), "{text}");
}

#[test]
fn the_adversary_finds_hidden_walks_and_repeats_itself() {
    // A log without stores: no record says which CPU may hold the table, unless it has walked.
    let memory = |phys, bytes: &'static [u8]| Record::Memory { phys, bytes };
    let table = |phys| Record::TableAllocated { phys, size: 0, level: None, content: Content::Unchecked };
    let other = invalidate(Some(1), Scope::All);
    let mut records =
        vec![memory(0x1000, &[7, 0x20]), memory(0x2000, &[7, 0x30]), memory(0x3000, &[7, 0x40])];
    records.extend([0x1000, 0x2000, 0x3000, 0x4000].map(table));
    records.push(Record::RootLoaded { cpu: 0, root: 0x1000, space: 1, flushes: false });
    records.extend([other; 40]);
    records.push(memory(0x3000, &[0, 0]));
    records.extend(freed());
    let log = log(&machine(), &records);
    assert_eq!(replay(&log, &["--no-seed"]).0, 0);
    let found =
        (0..40).map(|seed| replay(&log, &["--seed", &seed.to_string()])).find(|(status, _)| *status == 1);
    let (_, text) = found.expect("one of 40 seeds walks");
    let seed = text.split("seed ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    assert_eq!(replay(&log, &["--seed", seed]).1, text);
}

#[test]
fn each_scope_of_an_invalidation_covers_what_it_says() {
    let asids = Header { asids: true, ..machine() };
    let range = |space, start| Scope::Range { space, start, end: start + 0x1000, stride: 0x1000 };
    let every = |start| Scope::EverySpace { start, end: start + 0x1000, stride: 0x1000 };
    // On x86 any invalidation of a space drops all paging structures of the space.
    for (cpu, scope, covered) in [
        (Some(0), Scope::Page { space: 1, va: 0 }, true),
        (Some(1), Scope::Page { space: 1, va: 0 }, false),
        (Some(0), Scope::Page { space: 2, va: 0 }, false),
        (Some(0), range(1, 0), true),
        (Some(0), range(2, 0), false),
        (Some(0), every(0), true),
        (Some(1), every(0), false),
        (Some(0), Scope::Space(1), true),
        (Some(0), Scope::Space(2), false),
        (Some(0), Scope::All, true),
        (Some(1), Scope::All, false),
        (None, Scope::All, true),
    ] {
        let flush = invalidate(cpu, scope);
        let created = Record::SpaceCreated { space: 2 };
        let records = [space(), vec![created, flush], freed()].concat();
        let (status, text) = replay(&log(&asids, &records), &["--no-seed"]);
        assert_eq!(status, i32::from(!covered), "{cpu:?} {scope:?}: {text}");
        assert_eq!(text.contains("free-before-flush"), !covered, "{text}");
    }
}

#[test]
fn an_invalidation_that_broadcasts_reaches_other_cpus() {
    for (cpu, status) in [(None, 0), (Some(0), 1), (Some(1), 1)] {
        let mut records = space();
        let unmap = records.pop();
        records.push(Record::RootLoaded { cpu: 1, root: 0x1000, space: 1, flushes: false });
        records.push(Record::Access { cpu: 1, va: 0x123, kind: AccessKind::Read, user: true });
        records.extend(unmap);
        records.push(invalidate(cpu, Scope::All));
        records.extend([Record::TableFreed { phys: 0x4000, size: 0 }, Record::Leave { cpu: 1 }]);
        records.extend(freed().into_iter().skip(1));
        let (found, text) = replay(&log(&machine(), &records), &["--no-seed"]);
        assert_eq!(found, status, "{cpu:?}: {text}");
    }
}

/// Each CPU that is asked would take a look at all others.
#[test]
fn an_invalidation_that_broadcasts_is_cheap_with_many_cpus() {
    let flush = invalidate(None, Scope::All);
    let records = [space(), vec![flush; 1000], freed()].concat();
    let (status, text) = replay(&log(&Header { cpus: u16::MAX, ..machine() }, &records), &[]);
    assert!(status == 0 && text.contains("invalidations: 1000"), "{text}");
}

/// A page in a space of three levels of AArch64, with the root loaded by `cpus` CPUs.
fn aarch64_page(cpus: u16) -> Vec<Record<'static>> {
    let table =
        |phys, level| Record::TableAllocated { phys, size: 0, level: Some(level), content: Content::Zero };
    let store = |phys, value| Record::Store { phys, value, bytes: 8 };
    let mut records = vec![
        table(0x2000, 2),
        table(0x3000, 1),
        table(0x4000, 0),
        store(0x4000, 0x9000 | 0x443),
        store(0x3000, 0x4003),
        store(0x2000, 0x3003),
    ];
    let loaded = |cpu| Record::RootLoaded { cpu, root: 0x2000, space: 1, flushes: false };
    records.extend((0..cpus).map(loaded));
    records
}

/// A store that takes an entry away.
fn cleared(phys: u64) -> Record<'static> {
    Record::Store { phys, value: 0, bytes: 8 }
}

#[test]
fn a_last_level_invalidation_spares_tables_as_hardware_does() {
    let header = Header { va_bits: 39, ..Header::new(Architecture::Aarch64K4, 1) };
    for (leaf_only, status) in [(false, 0), (true, 1)] {
        let records = [
            Record::Access { cpu: 0, va: 0x10, kind: AccessKind::Read, user: true },
            cleared(0x3000),
            Record::Invalidate {
                cpu: None,
                scope: Scope::Page { space: 1, va: 0 },
                leaf_only,
                level: None,
                exception_level: None,
            },
            Record::TableFreed { phys: 0x4000, size: 0 },
            Record::Leave { cpu: 0 },
            Record::TableFreed { phys: 0x3000, size: 0 },
            Record::TableFreed { phys: 0x2000, size: 0 },
        ];
        let records = [aarch64_page(1), records.to_vec()].concat();
        let (found, text) = replay(&log(&header, &records), &["--no-seed"]);
        assert_eq!(found, status, "{text}");
    }
}

/// A page is unmapped, and its frame given back after a `TLBI` for the exception level of its
/// tables or, by mistake, for another.
#[test]
fn an_invalidation_of_another_exception_level_drops_nothing() {
    let levels = [ExceptionLevel::El1, ExceptionLevel::El2, ExceptionLevel::El3];
    for (n, &exception_level) in levels.iter().enumerate() {
        let header = Header { va_bits: 39, exception_level, ..Header::new(Architecture::Aarch64K4, 2) };
        let run = |named, seed: u64| {
            let records = [
                Record::Access { cpu: 1, va: 0x10, kind: AccessKind::Read, user: false },
                cleared(0x4000),
                Record::Invalidate {
                    cpu: None,
                    scope: Scope::Page { space: 1, va: 0 },
                    leaf_only: false,
                    level: None,
                    exception_level: named,
                },
                Record::DataFreed { phys: 0x9000, size: 4096 },
            ];
            let log = log(&header, &[aarch64_page(2), records.to_vec(), freed_of_el()].concat());
            let (status, text) = replay(&log, &["--seed", &seed.to_string()]);
            assert_eq!(text.contains("data-freed-before-flush"), status == 1, "{text}");
            status
        };
        for seed in 1..=20 {
            assert_eq!(run(Some(levels[(n + 1) % 3]), seed), 1, "{exception_level:?} seed {seed}");
        }
        for seed in 1..=200 {
            let named = [Some(exception_level), None][seed as usize % 2];
            assert_eq!(run(named, seed), 0, "{exception_level:?} seed {seed}");
        }
    }
}

/// Frees the tables of a space of three levels, which two CPUs have loaded.
fn freed_of_el() -> Vec<Record<'static>> {
    let flush = invalidate(None, Scope::All);
    let free = |phys| Record::TableFreed { phys, size: 0 };
    let leave = |cpu| Record::Leave { cpu };
    vec![leave(0), leave(1), flush, free(0x4000), free(0x3000), free(0x2000)]
}

#[test]
fn with_asids_a_root_load_flushes_only_if_recorded() {
    let asids = Header { asids: true, ..machine() };
    for (flushes, status) in [(true, 0), (false, 1)] {
        let again = Record::RootLoaded { cpu: 0, root: 0x1000, space: 1, flushes };
        let records = [space(), vec![again], freed()].concat();
        let (found, text) = replay(&log(&asids, &records), &["--no-seed"]);
        assert_eq!(found, status, "{text}");
        assert_eq!(
            replay(&log(&machine(), &records), &["--no-seed"]).0,
            0,
            "without ASIDs every load flushes"
        );
    }
}

#[test]
fn a_lazy_cpu_keeps_translations_and_a_dead_space_goes() {
    let lazy = [space(), vec![Record::Lazy { cpu: 0 }], freed()].concat();
    let (status, text) = replay(&log(&machine(), &lazy), &["--no-seed"]);
    assert!(status == 1 && text.contains("CPU 0 is lazy"), "{text}");
    let resumed = [space(), vec![Record::Lazy { cpu: 0 }, Record::Resume { cpu: 0 }], freed()].concat();
    let (status, text) = replay(&log(&machine(), &resumed), &["--no-seed"]);
    assert!(status == 1 && text.contains("CPU 0 is active"), "{text}");

    // The number stands for another root, with entries that the CPU has kept of the first.
    let asids = Header { asids: true, ..machine() };
    let other = [
        Record::TableAllocated { phys: 0x5000, size: 0, level: Some(3), content: Content::Zero },
        Record::RootLoaded { cpu: 0, root: 0x5000, space: 1, flushes: false },
        Record::Access { cpu: 0, va: 0x123, kind: AccessKind::Read, user: true },
    ];
    let used = [space(), vec![Record::Leave { cpu: 0 }], other.to_vec()].concat();
    let (_, text) = replay(&log(&asids, &used), &["--no-seed"]);
    let number = "the number of an address space stands for another root";
    assert!(text.contains(number), "{text}");
    let gone = vec![Record::Leave { cpu: 0 }, Record::SpaceDestroyed { space: 1 }];
    let (_, text) = replay(&log(&asids, &[space(), gone, other.to_vec()].concat()), &["--no-seed"]);
    assert!(!text.contains(number) && !text.contains("the log is wrong"), "{text}");
    assert!(!text.contains("stale-use") && !text.contains("flush-missing"), "{text}");
}

#[test]
fn while_an_operation_is_under_way_old_translations_may_be_used() {
    let access = Record::Access { cpu: 0, va: 0x123, kind: AccessKind::Read, user: true };
    let flush = invalidate(Some(0), Scope::Space(1));
    let begin = Record::OperationBegins { id: 5 };
    let end = Record::OperationEnds { id: 5 };
    let mut records = space();
    let unmap = records.pop().into_iter();
    let records: Vec<_> = records.into_iter().chain([begin]).chain(unmap).collect();
    for (rest, kind) in [
        (vec![access, flush, end], None),
        (vec![access, end, flush], Some("stale-use")),
        // The debt was reported when the operation ended; its use is the same mistake.
        (vec![end, access, flush], Some("flush-missing")),
    ] {
        let (_, text) = replay(&log(&machine(), &[records.clone(), rest, freed()].concat()), &["--no-seed"]);
        for possible in ["stale-use", "flush-missing"] {
            assert_eq!(text.contains(possible), kind == Some(possible), "{text}");
        }
    }
}

#[test]
fn a_use_of_an_old_translation_is_found() {
    let records = [
        space(),
        vec![
            Record::OperationBegins { id: 5 },
            Record::Access { cpu: 0, va: 0x456, kind: AccessKind::Write, user: true },
            Record::OperationEnds { id: 5 },
        ],
    ]
    .concat();
    let (status, text) = replay(&log(&machine(), &records), &["--no-seed"]);
    assert!(status == 1 && text.contains("stale-use") && text.contains("address 0x456"), "{text}");
    assert!(text.contains("4  leak"), "{text}");
}

/// Maps the page at 0 to its frame at 0x9000, then replays `records` about it.
fn with_data(header: &Header, records: &[Record<'_>]) -> (i32, String) {
    let free = |phys| Record::TableFreed { phys, size: 0 };
    let end = [Record::Leave { cpu: 0 }, free(0x4000), free(0x3000), free(0x2000), free(0x1000)];
    let begin = &space()[..10];
    replay(&log(header, &[begin, records, &end].concat()), &["--no-seed"])
}

#[test]
fn data_frames_are_checked_at_free_reuse_and_as_tables() {
    let store = |value| Record::Store { phys: 0x4000, value, bytes: 8 };
    let flush = invalidate(Some(0), Scope::Page { space: 1, va: 0 });
    let freed = Record::DataFreed { phys: 0x9000, size: 4096 };
    let reused = Record::DataReused { phys: 0x9000, size: 4096 };
    let other = Record::DataFreed { phys: 0xa000, size: 4096 };
    let table = Record::TableAllocated { phys: 0x9000, size: 0, level: None, content: Content::Zero };
    let gone = Record::TableFreed { phys: 0x9000, size: 0 };
    let cases: [(&[Record<'_>], &str); 9] = [
        (&[store(0), flush, freed, reused], ""),
        (&[store(0), other, flush, freed], ""),
        (&[store(0), flush, table, gone], ""),
        (&[freed, store(0), flush], "data-freed-before-flush: a data frame was given away while an entry"),
        (&[store(0), freed, flush], "data-freed-before-flush: a CPU may still translate"),
        (&[flush, store(0), freed], "data-freed-before-flush: a CPU may still translate"),
        (&[store(0), reused, flush], "data-reused-before-flush: a CPU may still translate"),
        (&[store(0), table, gone, flush], "data-reused-before-flush: a data frame was made a table"),
        (&[store(0xa007), Record::FlushesDone, flush], "flush-missing: a page was mapped to another"),
    ];
    for (records, finding) in cases {
        let (status, text) = with_data(&machine(), records);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(status, i32::from(!finding.is_empty()), "{records:?}: {text}");
        assert!(flat.contains(finding) && !text.contains("the log is wrong"), "{records:?}: {text}");
    }
    // A debt at the end is found there, if the log says that it is complete.
    let (status, text) = replay(&log(&machine(), &[&space()[..10], &[store(0)]].concat()), &["--no-seed"]);
    assert!(status == 1 && text.contains("flush-missing") && text.contains("at record 12,"), "{text}");
}

#[test]
fn a_space_built_before_its_root_is_loaded_needs_no_levels() {
    let table = |phys| Record::TableAllocated { phys, size: 0, level: None, content: Content::Unknown };
    let tables = [0x1000, 0x2000, 0x3000, 0x4000].map(table);
    let freed = Record::DataFreed { phys: 0x9000, size: 4096 };
    let clear = Record::Store { phys: 0x4000, value: 0, bytes: 8 };
    let flush = invalidate(Some(0), Scope::Page { space: 1, va: 0 });
    let end = [0x4000, 0x3000, 0x2000, 0x1000].map(|phys| Record::TableFreed { phys, size: 0 });
    let end = [&[Record::Leave { cpu: 0 }], &end[..]].concat();
    for seed in 1..=20 {
        let run = |middle: &[Record<'_>]| {
            let log = log(&machine(), &[&tables, &space()[4..9], middle, &end].concat());
            replay(&log, &["--seed", &seed.to_string()])
        };
        let (status, text) = run(&[clear, freed, flush]);
        assert!(status == 1 && text.contains("data-freed-before-flush"), "seed {seed}: {text}");
        let (status, text) = run(&[clear, flush, freed]);
        assert_eq!(status, 0, "seed {seed}: {text}");
    }
}

#[test]
fn a_page_that_is_told_as_mapped_is_walked_for() {
    let memory = |phys, value: &'static [u8]| Record::Memory { phys, bytes: value };
    let table = |phys, level| Record::TableAllocated {
        phys,
        size: 0,
        level: Some(level),
        content: Content::Unchecked,
    };
    for mapped in [false, true] {
        // No store is told, only the content of memory.
        let mut records = vec![
            memory(0x1000, &[7, 0x20]),
            memory(0x2000, &[7, 0x30]),
            memory(0x3000, &[7, 0x40]),
            memory(0x4000, &[7, 0x90]),
            table(0x1000, 3),
            table(0x2000, 2),
            table(0x3000, 1),
            table(0x4000, 0),
            Record::RootLoaded { cpu: 0, root: 0x1000, space: 1, flushes: false },
        ];
        records.extend(mapped.then_some(Record::DataMapped { space: 1, va: 0x123 }));
        records.extend([memory(0x4000, &[0, 0]), Record::DataFreed { phys: 0x9000, size: 4096 }]);
        let text = replay(&log(&machine(), &records), &["--no-seed"]).1;
        assert_eq!(text.contains("data-freed-before-flush"), mapped, "{text}");
    }
}

#[test]
fn with_barriers_a_flush_counts_between_two_of_them() {
    let header = Header { va_bits: 39, barriers: true, ..Header::new(Architecture::Aarch64K4, 2) };
    let table =
        |phys, level| Record::TableAllocated { phys, size: 0, level: Some(level), content: Content::Zero };
    let store = |phys, value| Record::Store { phys, value, bytes: 8 };
    let barrier = |kind| Record::Barrier { cpu: 0, kind };
    let records = [
        table(0x2000, 2),
        table(0x3000, 1),
        table(0x4000, 0),
        store(0x4000, 0x9000 | 0x443),
        store(0x3000, 0x4003),
        store(0x2000, 0x3003),
        Record::RootLoaded { cpu: 0, root: 0x2000, space: 1, flushes: false },
        barrier(BarrierKind::Instruction),
        Record::Access { cpu: 0, va: 0x10, kind: AccessKind::Read, user: true },
        store(0x4000, 0),
        barrier(BarrierKind::Data),
        Record::Invalidate {
            cpu: None,
            scope: Scope::Page { space: 1, va: 0 },
            leaf_only: true,
            level: None,
            exception_level: None,
        },
        barrier(BarrierKind::Data),
        Record::FlushesDone,
    ];
    for left_out in [None, Some(7), Some(10), Some(12)] {
        let kept = records.iter().enumerate().filter(|(n, _)| Some(*n) != left_out);
        let records: Vec<_> = kept.map(|(_, record)| *record).collect();
        let (_, text) = replay(&log(&header, &records), &["--no-seed"]);
        assert_eq!(text.contains("flush-missing"), left_out.is_some(), "{left_out:?}: {text}");
        assert!(text.starts_with("AArch64 4K stage 1, 2 CPUs, barriers;"), "{text}");
        let quiet = Header { barriers: false, ..header };
        let (_, text) = replay(&log(&quiet, &records), &["--no-seed"]);
        assert!(!text.contains("flush-missing"), "{text}");
    }
}

#[test]
fn a_plain_store_over_another_cpus_writable_entry_loses_a_bit() {
    let header = Header { accessed_dirty: true, ..machine() };
    let (phys, value, bytes) = (0x4000, 0x9025, 8);
    let store = Record::Store { phys, value, bytes };
    let exchange = Record::Exchange { phys, value, bytes };
    let writable = Record::Store { phys, value: 0x9027, bytes };
    let flush = invalidate(Some(0), Scope::Page { space: 1, va: 0 });
    // CPU 0 has the root loaded.
    for (cpu, record, lost) in [(1, store, true), (1, exchange, false), (0, store, false)] {
        let records = [writable, Record::Running { cpu }, record, flush];
        let (status, text) = with_data(&header, &records);
        assert_eq!((status, text.contains("bit-lost")), (i32::from(lost), lost), "{text}");
        assert_eq!(with_data(&machine(), &records).0, 0, "nobody relies on the bits");
    }
}

#[test]
fn old_content_of_a_table_is_found_when_it_is_linked() {
    let records = [
        Record::TableAllocated { phys: 0x1000, size: 0, level: Some(3), content: Content::Zero },
        Record::Memory { phys: 0x2008, bytes: &[7, 0x90, 0, 0, 0, 0, 0, 0] },
        Record::TableAllocated { phys: 0x2000, size: 0, level: Some(2), content: Content::Unknown },
        Record::Store { phys: 0x1000, value: 0x2007, bytes: 8 },
    ];
    let (status, text) = replay(&log(&machine(), &records), &[]);
    assert!(status == 1 && text.contains("linked-before-cleared"), "{text}");
    let mut cleared = records.to_vec();
    cleared.insert(3, Record::Fill { phys: 0x2000, bytes: 4096, value: 0 });
    let (_, text) = replay(&log(&machine(), &cleared), &[]);
    assert!(!text.contains("linked-before-cleared"), "{text}");
}

#[test]
fn a_log_that_lies_is_wrong_and_the_kernel_is_not_blamed() {
    let table = |size, level| Record::TableAllocated { phys: 0x7000, size, level, content: Content::Zero };
    let flush = |scope| invalidate(Some(0), scope);
    let other = Record::Access { cpu: 1, va: 0, kind: AccessKind::Read, user: true };
    let lies: Vec<(Record<'_>, &str, &str)> = vec![
        (
            Record::TableFreed { phys: 0x8000, size: 0 },
            "no table was ever announced at 0x8000",
            "table-allocated",
        ),
        (Record::TableFreed { phys: 0x1000, size: 3 }, "a table of 0x3 bytes", "usual size"),
        (table(0, Some(4)), "level 4, and the format has levels 0 to 3", "count levels"),
        (table(1 << 40, None), "a table of 0x10000000000 bytes", "usual size"),
        (
            Record::RootLoaded { cpu: 2, root: 0x1000, space: 1, flushes: false },
            "CPU 2",
            "number CPUs from 0",
        ),
        (
            Record::RootLoaded { cpu: 1, root: 0x1018, space: 1, flushes: false },
            "root at 0x1018",
            "physical address",
        ),
        (Record::Lazy { cpu: 1 }, "CPU 1 has no root loaded", "root-loaded"),
        (Record::Resume { cpu: 9 }, "CPU 9", "number CPUs from 0"),
        (Record::Leave { cpu: 9 }, "CPU 9", "number CPUs from 0"),
        (other, "CPU 1 has no root loaded", "root-loaded"),
        (
            flush(Scope::Range { space: 1, start: 9, end: 3, stride: 1 }),
            "from 0x9 to 0x3",
            "the first address",
        ),
        (flush(Scope::EverySpace { start: 0, end: 3, stride: 0 }), "by 0x0", "the first address"),
        (Record::SpaceDestroyed { space: 77 }, "space 0x4d", "space-created"),
        (Record::SpaceDestroyed { space: 1 }, "CPU 0 has space 0x1 loaded", "leave"),
        (Record::DataFreed { phys: 0x9000, size: 0 }, "0x0 bytes of data at 0x9000", "bytes of the frame"),
        (Record::DataReused { phys: !0, size: 2 }, "0x2 bytes of data", "bytes of the frame"),
        (Record::DataFreed { phys: 1 << 56, size: 1 }, "0x1 bytes of data", "bytes of the frame"),
        (Record::DataMapped { space: 77, va: 0 }, "space 0x4d", "space-created"),
        (Record::Barrier { cpu: 2, kind: BarrierKind::Data }, "CPU 2", "number CPUs from 0"),
        (Record::Running { cpu: 9 }, "CPU 9", "number CPUs from 0"),
        (Record::Stage1Flushed { cpu: 9 }, "CPU 9", "number CPUs from 0"),
        (Record::OperationEnds { id: 3 }, "operation 3 is not under way", "operation-begins"),
    ];
    let honest = with_flush();
    for (lie, what, instead) in lies {
        let mut records = honest.clone();
        records.insert(10, lie);
        let (status, text) = replay(&log(&machine(), &records), &["--no-seed"]);
        assert_eq!(status, 2, "{lie:?}: {text}");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(&format!("record 11, {}:", lie.name())), "{text}");
        assert!(flat.contains(what) && flat.contains("instead:") && flat.contains(instead), "{text}");
        assert!(flat.contains("no findings"), "{text}");
    }
    // An error of the code stays a finding.
    let mut twice = honest;
    twice.push(Record::TableFreed { phys: 0x1000, size: 0 });
    let (status, text) = replay(&log(&machine(), &twice), &["--no-seed"]);
    assert!(status == 1 && text.contains("double-free") && !text.contains("the log is wrong"), "{text}");
}

#[test]
fn a_log_that_is_cut_or_damaged_is_replayed_as_far_as_it_goes() {
    let whole = without_flush();
    let cut = &whole[..whole.len() - 3];
    let (status, text) = replay(cut, &["--no-seed"]);
    assert!(
        status == 1 && text.contains("the log ends in the middle") && text.contains("free-before-flush"),
        "{text}"
    );
    let clean = log(&machine(), &with_flush());
    let (status, text) = replay(&clean[..clean.len() - 5], &[]);
    assert!(status == 2 && text.contains("without an end record") && text.contains("no findings"), "{text}");
    let mut flipped = clean.clone();
    flipped[100] ^= 4;
    let (status, text) = replay(&flipped, &[]);
    assert!(status == 2 && text.contains("were changed or lost") && text.contains("log: byte "), "{text}");
    for (bytes, what) in
        [(&b"hello, world and all"[..], "no log of ptsan"), (&clean[..20], "ends in the middle")]
    {
        let (status, text) = replay(bytes, &[]);
        assert!(
            status == 2 && text.contains(what) && text.starts_with("ptsan: standard input: byte 0"),
            "{text}"
        );
    }
}

#[test]
fn a_report_for_programs_says_the_same() {
    let (status, text) = replay(&without_flush(), &["--json", "--no-seed"]);
    let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let types: Vec<_> = lines.iter().filter_map(|line| line["type"].as_str()).collect();
    assert_eq!((status, types), (1, vec!["replay", "run", "finding"]));
    let [overview, run, finding] = &lines[..] else { panic!("{text}") };
    assert_eq!((&overview["records"], &overview["lies"]), (&17.into(), &0.into()));
    assert!(overview["damage"].is_null() && overview["seed"].is_null(), "{text}");
    assert_eq!((&run["total"], &run["causes"]), (&1.into(), &1.into()));
    assert_eq!((&finding["kind"], &finding["event"]), (&"free-before-flush".into(), &12.into()));
    assert_eq!((&finding["severity"], &finding["places"]), (&"memory-corruption".into(), &1.into()));
    assert_eq!(finding["found_in"][0]["function"], "0xffff80000010000b");
    assert_eq!(finding["first"][0]["frame"], "0x4000");
    assert_eq!(
        (&finding["history"][0]["event"], &finding["history"][0]["what"]),
        (&4.into(), &"allocated".into())
    );
    assert_eq!(finding["history"][0]["in"][0]["function"], "0xffff800000100003");
    assert_eq!(replay(&without_flush(), &["--format", "json", "--no-seed"]).1, text);
}

#[test]
fn findings_beyond_keep_are_counted() {
    let records: Vec<_> = (1..=20u64)
        .flat_map(|n| {
            let phys = n << 12;
            let table = Record::TableAllocated { phys, size: 0, level: None, content: Content::Zero };
            [table, table]
        })
        .collect();
    let (status, text) = replay(&log(&machine(), &records), &["--keep", "1"]);
    assert!(status == 1 && text.contains("40 findings"), "{text}");
    assert!(text.contains("39 more are counted above and not kept"), "{text}");
}

#[test]
fn memory_beyond_the_limit_ends_the_replay() {
    let records: Vec<_> = (0..600).map(|n| Record::Store { phys: n << 12, value: 1, bytes: 8 }).collect();
    let (status, text) = replay(&log(&machine(), &records), &["--memory", "1"]);
    assert!(status == 2 && text.contains("record 257: memory of more than 1 MiB"), "{text}");
    assert_eq!(replay(&log(&machine(), &records), &[]).0, 0);
}

/// A kernel flushes a number before it uses it.
#[test]
fn a_flush_of_a_space_that_nobody_announced_is_no_lie() {
    let flush = |scope| invalidate(Some(0), scope);
    let mut records = with_flush();
    records.splice(0..0, [flush(Scope::Space(77)), flush(Scope::Page { space: 77, va: 0 })]);
    let (status, text) = replay(&log(&machine(), &records), &["--no-seed"]);
    assert!(status == 0 && text.contains("no findings"), "{text}");
}

/// A hypervisor's tables: an invalidation by address spares translations of both stages.
#[test]
fn a_log_of_two_stages_needs_a_later_stage_1_flush() {
    let table = |level: u8| Record::TableAllocated {
        phys: 0x3000 - u64::from(level) * 0x1000,
        size: 0,
        level: Some(level),
        content: Content::Zero,
    };
    let store = |phys, value| Record::Store { phys, value, bytes: 8 };
    let page = |va| invalidate(None, Scope::Page { space: 1, va });
    let replayed = |two_stages, flushes: &[Record<'static>]| {
        let header =
            Header { va_bits: 39, start_level: 1, two_stages, ..Header::new(Architecture::Stage2K4, 1) };
        let begin = [
            table(2),
            table(1),
            table(0),
            store(0x3000, 0x9000 | 0x7ff),
            store(0x2000, 0x3000 | 3),
            store(0x1000, 0x2000 | 3),
            Record::RootLoaded { cpu: 0, root: 0x1000, space: 1, flushes: false },
            store(0x3000, 0),
        ];
        let free = |phys| Record::TableFreed { phys, size: 0 };
        let end = [Record::FlushesDone, Record::Leave { cpu: 0 }, free(0x1000), free(0x2000), free(0x3000)];
        let records = [&begin[..], flushes, &end].concat();
        replay(&log(&header, &records), &["--no-seed"])
    };
    let stage1 = Record::Stage1Flushed { cpu: 0 };
    let (status, text) = replayed(true, &[page(0)]);
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(status == 1 && text.contains("flush-missing") && flat.contains("call stage1_flushed"), "{text}");
    for (two_stages, flushes) in [(true, &[page(0), stage1][..]), (false, &[page(0)])] {
        let (status, text) = replayed(two_stages, flushes);
        assert!(status == 0 && text.contains("no findings"), "{text}");
    }
}

#[test]
fn a_dump_has_a_line_for_each_record() {
    let new = vec![
        Record::Mark { text: "\u{1b}[2J and a bell \u{7}" },
        Record::DataMapped { space: 1, va: 0x7000 },
        Record::DataFreed { phys: 0x9000, size: 4096 },
        Record::Exchange { phys: 0x4008, value: 0xb007, bytes: 4 },
        Record::Barrier { cpu: 1, kind: BarrierKind::Instruction },
        Record::Running { cpu: 1 },
        Record::Stage1Flushed { cpu: 1 },
        Record::FlushesDone,
    ];
    let records = [with_flush(), new].concat();
    let log = log(&machine(), &records);
    let output = ptsan(&["log", "dump", "-"], &log);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines[0], lines.len()), ("x86-64, 2 CPUs", records.len() + 2));
    assert_eq!(lines[9], "       9 root-loaded cpu 0 0x1000 space 0x1 pc 0xffff800000100008");
    assert!(lines.iter().all(|line| line.chars().count() <= 80 && !line.contains('\u{1b}')), "{text}");
    for (line, what) in lines[lines.len() - 8..].iter().zip([
        "data-mapped space 0x1 0x7000 pc",
        "data-freed 0x9000 0x1000 bytes pc",
        "exchange 0x4008 = 0xb007 (4) pc",
        "barrier cpu 1 instruction pc",
        "running cpu 1 pc",
        "stage1-flushed cpu 1 pc",
        "flushes-done pc",
        "end",
    ]) {
        assert!(line.get(9..).is_some_and(|line| line.starts_with(what)), "{what}: {line}");
    }
    let output = ptsan(&["log", "dump", "-", "--from", "2", "--count", "3"], &log);
    let part = String::from_utf8(output.stdout).unwrap();
    assert_eq!(part.lines().skip(1).collect::<Vec<_>>(), &lines[2..5]);
    let output = ptsan(&["log", "dump", "-"], &log[..log.len() - 2]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), lines.len() - 1);
}

#[test]
fn bad_usage_is_status_2() {
    for arguments in [
        &["replay"][..],
        &["replay", "-", "--seed", "x"],
        &["replay", "-", "--symbols", "/nonexistent"],
        &["replay", "/nonexistent/log"],
        &["log", "dump", "/"],
        &["replay", "-", "--json", "--format", "text"],
    ] {
        let output = ptsan(arguments, &[]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty());
    }
}

#[test]
fn a_harness_function_is_left_out_unless_it_is_alone() {
    let with = |pattern| replay(&without_flush(), &["--no-seed", "--harness", pattern]);
    // The only caller that a record has.
    let (status, text) = with("0xffff80000010000b");
    assert!(status == 1 && text.contains("found in\n    0xffff80000010000b\n"), "{text}");
}

/// A loop that frees pages too early is one finding, and another caller is another.
#[test]
fn findings_are_grouped_by_caller_with_their_places() {
    let page = |n: u64| Record::Store { phys: 0x4000 + n * 8, value: 0x10_0007 + (n << 12), bytes: 8 };
    let clear = |n: u64| Record::Store { phys: 0x4000 + n * 8, value: 0, bytes: 8 };
    let free = |n: u64| Record::DataFreed { phys: 0x10_0000 + (n << 12), size: 4096 };
    let mut bytes = Encoder::new(Written(Vec::new()), &machine()).unwrap();
    space()[..10].iter().for_each(|record| bytes.record(record).unwrap());
    (1..=300).for_each(|n| bytes.record(&page(n)).unwrap());
    for n in 1..=300 {
        bytes.record_at(0x1111, &clear(n)).unwrap();
        bytes.record_at(if n % 3 == 0 { 0x3333 } else { 0x2222 }, &free(n)).unwrap();
    }
    bytes.end(false).unwrap();
    let (status, text) = replay(&bytes.into_sink().0, &["--no-seed"]);
    assert_eq!(status, 1, "{text}");
    for part in [
        "ptsan: 300 findings",
        "200 table frames, 0x101000 to 0x22b000: 0x101000, 0x102000, 0x104000, 0x105000",
        "100 table frames, 0x103000 to 0x22c000: 0x103000, 0x106000, 0x109000, 0x10c000",
        "found in\n    0x2222\n",
        "found in\n    0x3333\n",
        "    record 311 in 0x1111\n",
        "summary: 300 memory-corruption, 2 causes",
    ] {
        let flat = text.replace("\n    0x", " 0x").replace("\n      0x", " 0x");
        assert!(text.contains(part) || flat.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}
