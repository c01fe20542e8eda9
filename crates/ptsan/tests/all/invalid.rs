//! Entries that CPUs and devices keep although they were not valid, and flushes that name a level.
use ptsan::{Access, Arch, Config, Fault, Flush, Kind, Rule, Session, Target};

type Machine = Session<Vec<u8>>;

const SPACE: u64 = 0x1000;
const VA: u64 = 0x5000;
/// The entry of `VA` and, below, that of the directory above it.
const ENTRY: u64 = 0x3000 + 5 * 8;
const DIRECTORY: u64 = 0x2000;
const KERNEL: Access = Access::READ.kernel();

const fn link(phys: u64) -> u64 {
    phys >> 2 | 1
}

/// A page that user mode may read and write.
const fn page(phys: u64) -> u64 {
    phys >> 2 | 0xd7
}

/// Two harts and a device with a space loaded, with all tables for `VA` linked, or without the last
/// one.
fn machine(config: Config, linked: bool) -> Machine {
    let mut s = Session::with(Config { cpus: 2, devices: 1, ..config }, vec![0; 1 << 16]);
    (1..=3).for_each(|n| s.alloc(n << 12));
    s.put(SPACE, link(0x2000));
    if linked {
        s.put(DIRECTORY, link(0x3000));
    }
    s.each_cpu(|s| s.load(SPACE));
    let device = s.sanitizer.device(0);
    s.sanitizer.switch(&s.memory, device, SPACE, SPACE);
    s
}

fn sv39() -> Config {
    Config { asids: true, ..Config::new(Arch::riscv_sv39()) }
}

fn found(s: &Machine) -> Vec<(Kind, Rule)> {
    s.sanitizer.findings().iter().map(|f| (f.kind, f.rule)).collect()
}

const KEPT: (Kind, Rule) = (Kind::StaleUse, Rule::InvalidKept);

/// Has hart 1 fault before the page is mapped, and returns the answers of three accesses after it,
/// with a flush after the first.
fn mapped(s: &mut Machine, linked: bool, flush: Option<Flush>) -> [bool; 3] {
    assert_eq!(
        s.on(1).translate(VA, KERNEL).map(|_| ()),
        Err(Fault::NotPresent { level: u8::from(!linked) })
    );
    s.on(0).put(ENTRY, page(0x9000));
    if !linked {
        s.put(DIRECTORY, link(0x3000));
    }
    let first = s.on(1).translate(VA, KERNEL).is_ok();
    if let Some(flush) = flush {
        s.sanitizer.flush(&s.memory, 1, flush);
    }
    [first, s.on(1).translate(VA, KERNEL).is_ok(), s.translate(VA, KERNEL).is_ok()]
}

#[test]
fn a_hart_keeps_an_empty_entry_until_it_is_flushed() {
    let every = Flush::page_in_every_space(VA);
    for flush in [Flush::page(SPACE, VA), every, Flush::space(SPACE), Flush::all()] {
        let mut s = machine(sv39(), true);
        assert_eq!((mapped(&mut s, true, Some(flush)), found(&s)), ([false, true, true], vec![]), "{flush}");
    }
    for flush in [None, Some(Flush::page(SPACE, VA + 0x1000)), Some(Flush::page(9, VA))] {
        let mut s = machine(sv39(), true);
        // It goes on as if it had been flushed.
        assert_eq!((mapped(&mut s, true, flush), found(&s)), ([false, true, true], vec![KEPT]), "{flush:?}");
    }
}

#[test]
fn a_link_needs_a_flush_without_an_address() {
    for (flush, silent) in [
        (Flush::page(SPACE, VA), false),
        (Flush::page_in_every_space(VA), false),
        (Flush::range(SPACE, 0, 1 << 21, 4096), false),
        (Flush::space(SPACE), true),
        (Flush::all(), true),
    ] {
        let mut s = machine(sv39(), false);
        let answers = mapped(&mut s, false, Some(flush));
        let want = if silent { vec![] } else { vec![KEPT] };
        assert_eq!((answers, found(&s)), ([false, true, true], want), "{flush}");
    }
}

#[test]
fn a_large_page_is_flushed_by_an_address() {
    let mut s = machine(sv39(), false);
    assert!(s.on(1).translate(VA, KERNEL).is_err());
    s.put(DIRECTORY, page(0x20_0000));
    assert!(s.translate(VA, KERNEL).is_err());
    s.flush(0x1f_f000);
    assert_eq!(s.translate(VA, KERNEL).map(|t| t.phys), Ok(0x20_5000));
    assert_eq!(found(&s), []);
}

#[test]
fn other_formats_and_harts_with_svvptc_keep_none() {
    let mut s = machine(Config { keeps_invalid: false, ..sv39() }, true);
    assert_eq!((mapped(&mut s, true, None), found(&s)), ([true; 3], vec![]));
    assert!(!Config::new(Arch::x86_64()).keeps_invalid && !Config::new(Arch::aarch64_4k(48)).keeps_invalid);
}

#[test]
fn a_fault_that_nobody_served_is_due_once_all_is_flushed() {
    for (who, served) in (0..3).flat_map(|who| [(who, false), (who, true)]) {
        let mut s = machine(sv39(), true);
        let access = if who == 0 { Access::READ } else { KERNEL };
        let reader = if who == 2 { s.sanitizer.device(0) } else { 0 };
        let kept = |s: &Machine| found(s).iter().filter(|found| **found == KEPT).count();
        assert!(s.sanitizer.translate(&s.memory, reader, VA, access).is_err());
        s.put(ENTRY, page(0x9000));
        assert!(s.sanitizer.translate(&s.memory, reader, VA, access).is_err());
        if served {
            s.sanitizer.flush(&s.memory, reader, Flush::page(SPACE, VA));
        }
        // The handler of another CPU ends an operation meanwhile.
        let operation = s.sanitizer.operation_begins();
        s.sanitizer.operation_ends(&s.memory, operation);
        assert_eq!(kept(&s), 0, "{who}: {}", s.sanitizer);
        s.flushes_done();
        assert_eq!(kept(&s), usize::from(!served), "{who}: {}", s.sanitizer);
        // It goes on as if it had been flushed.
        assert!(s.sanitizer.translate(&s.memory, reader, VA, access).is_ok());
        s.sanitizer.finish_with(&s.memory);
        assert_eq!(kept(&s), usize::from(!served), "{who}: {}", s.sanitizer);
    }
}

#[test]
fn a_program_s_fault_on_what_its_cpu_walked_ahead_is_not_due() {
    for (access, due) in [(Access::READ, false), (KERNEL, true)] {
        let mut s = machine(sv39(), true);
        s.sanitizer.probe_walk(&s.memory, 1, VA);
        s.put(ENTRY, page(0x9000));
        assert!(s.on(1).translate(VA, access).is_err());
        s.flushes_done();
        assert_eq!(found(&s).contains(&KEPT), due, "{}", s.sanitizer);
    }
}

#[test]
fn a_fault_in_the_middle_of_an_operation_does_not_count() {
    let mut s = machine(sv39(), true);
    assert!(s.on(1).translate(VA, KERNEL).is_err());
    let operation = s.sanitizer.operation_begins();
    s.put(ENTRY, page(0x9000));
    (0..3).for_each(|_| assert!(s.on(1).translate(VA, KERNEL).is_err()));
    s.flush(VA);
    s.sanitizer.operation_ends(&s.memory, operation);
    assert!(s.translate(VA, KERNEL).is_ok());
    assert_eq!(found(&s), []);
}

#[test]
fn speculation_keeps_empty_entries_too() {
    let mut s = machine(sv39(), true);
    s.sanitizer.probe_walk(&s.memory, 1, VA);
    s.put(ENTRY, page(0x9000));
    let answers = [0; 2].map(|_| s.on(1).translate(VA, Access::READ).is_ok());
    assert_eq!((answers, found(&s)), ([false, true], vec![KEPT]));
    // Hart 0 has not walked.
    assert!(s.on(0).translate(VA, Access::READ).is_ok());
}

/// AArch64: a block of 2 MiB at 0, a page at 2 MiB, and a run of pages.
fn arm() -> Machine {
    let config = Config { cpus: 2, asids: true, ..Config::new(Arch::aarch64_4k(39)) };
    let mut s = Session::with(config, vec![0; 1 << 16]);
    (1..=3).for_each(|n| s.alloc(n << 12));
    s.put(SPACE, 0x2003);
    s.put(0x2000, 0x4000_0c41);
    s.put(0x2008, 0x3003);
    s.put(0x3000, 0x9c43);
    s.each_cpu(|s| s.load(SPACE));
    s.each_cpu(|s| [0, 1 << 21].into_iter().for_each(|va| _ = s.translate(va, Access::READ).unwrap()));
    s
}

/// Returns whether the flush pays for a page that was unmapped: told, and used by a CPU afterwards.
fn pays(entry: u64, va: u64, flush: Flush) -> bool {
    let run = |end: fn(&mut Machine, u64)| {
        let mut s = arm();
        s.put(entry, 0);
        s.sanitizer.flush_everywhere(&s.memory, flush);
        end(&mut s, va);
        s.sanitizer.total() == 0
    };
    let told = run(|s, _| s.flushes_done());
    let used = run(|s, va| _ = s.on(1).translate(va, Access::READ));
    assert_eq!(told, used, "{flush}");
    told
}

#[test]
fn a_flush_drops_pages_of_the_level_that_it_names_alone() {
    for (entry, va, level) in [(0x2000, 0, 1), (0x3000, 1 << 21, 0)] {
        let every = Target::EverySpace { start: va, end: va + 1, stride: 4096 };
        let flushes = [
            Flush::page(SPACE, va),
            Flush::page(SPACE, va).leaf_only(),
            Flush::range(SPACE, va, va + (2 << 20), 4096),
            Flush::range(SPACE, 0, 1 << 30, 4096).leaf_only(),
            Flush { target: every, ..Flush::all() },
        ];
        for flush in flushes {
            assert!(pays(entry, va, flush), "{flush}");
            for named in 0..3 {
                assert_eq!(pays(entry, va, flush.level(named)), named == level, "{}", flush.level(named));
            }
        }
        // A flush of everything names none.
        assert!(pays(entry, va, Flush::space(SPACE).level(2)) && pays(entry, va, Flush::all().level(2)));
    }
}

#[test]
fn a_flush_that_names_a_level_drops_no_tables() {
    for (flush, silent) in [
        (Flush::range(SPACE, 1 << 21, 2 << 21, 4096), true),
        (Flush::range(SPACE, 1 << 21, 2 << 21, 4096).level(0), false),
    ] {
        let mut s = arm();
        s.put(0x2008, 0);
        s.sanitizer.flush_everywhere(&s.memory, flush);
        s.flushes_done();
        assert_eq!(s.sanitizer.total(), 0, "the page is flushed: {}", s.sanitizer);
        s.free(0x3000);
        assert_eq!(s.sanitizer.count(Kind::FreeBeforeFlush) == 0, silent, "{flush}: {}", s.sanitizer);
        if !silent {
            assert!(s.sanitizer.to_string().contains("named a level"), "{}", s.sanitizer);
        }
    }
}

#[test]
fn a_level_that_the_format_has_not_is_misuse() {
    let mut s = arm();
    s.sanitizer.flush(&s.memory, 0, Flush::page(SPACE, 0).level(3));
    assert_eq!(found(&s), [(Kind::Misuse, Rule::BadArgument)]);
    assert!(s.sanitizer.to_string().contains("below 3"), "{}", s.sanitizer);
}

#[test]
fn the_queue_of_a_device_keeps_the_level() {
    for named in 0..2 {
        let mut s = machine(sv39(), true);
        let device = s.sanitizer.device(0);
        s.put(ENTRY, page(0x9000));
        assert!(s.sanitizer.translate(&s.memory, device, VA, Access::READ).is_ok());
        s.put(ENTRY, 0);
        s.sanitizer.flush_everywhere(&s.memory, Flush::page(SPACE, VA));
        s.sanitizer.flush_queued(device, Flush::page(SPACE, VA).level(named));
        s.sanitizer.queue_completed(&s.memory, device);
        s.flushes_done();
        assert_eq!(s.sanitizer.count(Kind::FlushMissing), u64::from(named), "{}", s.sanitizer);
    }
}
