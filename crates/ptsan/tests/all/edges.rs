//! Devices, guests, readers and locks beside other rules: what is right is silent, and what is
//! wrong is found.
use ptsan::{
    Access, Arch, Barrier, Config, Content, DeviceEntry, Errata, Flush, Granule, Guard, GuestPage, Hold,
    Kind, Rule, Sanitizer,
};

const PAGE: u64 = 4096;

struct Run {
    ram: Vec<u8>,
    /// Bytes of an entry.
    bytes: usize,
    san: Sanitizer,
}

impl Run {
    /// Tables at 0x1000, 0x2000 and so on, each linked by the first entry of the one before, and a
    /// page at 0x9000.
    fn new(config: Config, link: fn(u64) -> u64, page: u64) -> Self {
        let levels = config.arch.levels.len() as u64;
        let bytes = usize::from(config.arch.levels[0].entry_bytes);
        let san = Sanitizer::new(Config { backtraces: false, ..config });
        let mut run = Self { ram: vec![0; 1 << 20], bytes, san };
        for n in 1..=levels {
            run.table(n * PAGE, (levels - n) as u8);
        }
        run.put(levels * PAGE, page);
        for n in (1..levels).rev() {
            run.put(n * PAGE, link((n + 1) * PAGE));
        }
        run
    }

    fn x86(config: impl Fn(Config) -> Config) -> Self {
        Self::new(config(Config::new(Arch::x86_2level())), |table| table | 0x67, 0x9067)
    }

    fn arm(config: impl Fn(Config) -> Config) -> Self {
        Self::new(config(Config::new(Arch::aarch64_4k(39))), |table| table | 3, 0x9c43)
    }

    fn stage2(config: impl Fn(Config) -> Config) -> Self {
        let arch = Arch::aarch64_stage2(Granule::K4, 39, 1);
        let stages = Config { asids: true, two_stages: true, ..Config::new(arch) };
        Self::new(config(stages), |table| table | 3, 0x94c3)
    }

    fn table(&mut self, at: u64, level: u8) {
        self.san.table_allocated(&self.ram, at, PAGE, Some(level), Content::Zero);
    }

    fn put(&mut self, at: u64, raw: u64) {
        let bytes = self.bytes;
        self.ram[at as usize..][..bytes].copy_from_slice(&raw.to_le_bytes()[..bytes]);
        self.san.entry_written(&self.ram, at);
    }

    fn switch(&mut self, reader: usize, root: u64, space: u64) {
        self.san.switch(&self.ram, reader, root, space);
    }

    fn flush(&mut self, reader: usize, flush: Flush) {
        self.san.flush(&self.ram, reader, flush);
    }

    fn wait(&mut self, device: usize) {
        self.san.queue_completed(&self.ram, device);
    }

    fn free_page(&mut self) {
        self.san.frame_freed(&self.ram, 0x9000, PAGE);
    }

    fn free(&mut self, table: u64) {
        self.san.table_freed(&self.ram, table, PAGE);
    }

    fn rules(&self) -> Vec<Rule> {
        self.san.findings().iter().map(|f| f.rule).collect()
    }
}

#[test]
fn numbers_of_devices_are_not_those_of_cpus() {
    let mut run = Run::x86(|c| Config { asids: true, common_numbers: true, devices: 1, ..c });
    run.table(0x3000, 1);
    run.switch(0, 0x1000, 7);
    run.switch(1, 0x3000, 7);
    assert_eq!(run.rules(), [], "domain 7 beside ASID 7");
    let mut run = Run::x86(|c| Config { asids: true, devices: 1, ..c });
    run.san.number_given(0x1000, 7);
    run.switch(0, 0x1000, 7);
    run.switch(1, 0x1000, 3);
    assert_eq!(run.rules(), [], "PASID 3 of a root with ASID 7");
}

#[test]
fn a_flush_queued_before_a_detach_does_not_count_later() {
    let mut run = Run::x86(|c| Config { devices: 1, ..c });
    run.switch(1, 0x1000, 3);
    run.san.flush_queued(1, Flush::space(3));
    run.san.leave(1);
    run.wait(1);
    run.put(0x2000, 0);
    run.switch(1, 0x1000, 3);
    run.free_page();
    run.san.flushes_done(&run.ram);
    let _ = run.san.translate(&run.ram, 1, 0, Access::READ);
    assert_eq!(run.san.total(), 1, "{}", run.san);
}

#[test]
fn a_flush_that_is_refused_pays_no_debt() {
    for queued in [false, true] {
        let mut run = Run::x86(|c| Config { devices: 1, ..c });
        let reader = usize::from(queued);
        run.switch(reader, 0x1000, 3);
        run.put(0x2000, 0);
        let bad = Flush::range(3, 0, PAGE, 0);
        match queued {
            true => run.san.flush_queued(reader, bad),
            false => run.flush(reader, bad),
        }
        assert_eq!(run.rules(), [Rule::BadArgument]);
        if queued {
            run.wait(reader);
        }
        run.free_page();
        assert_eq!(run.rules(), [Rule::BadArgument, Rule::DataNotFlushed]);
    }
}

#[test]
fn an_iommu_invalidates_addresses_of_tables_shared_with_ept() {
    let ept = Config { asids: true, devices: 1, two_stages: true, ..Config::new(Arch::ept()) };
    let mut run = Run::new(ept, |table| table | 7, 0x9037);
    run.switch(0, 0x1000, 0x1000);
    run.switch(1, 0x1000, 5);
    run.put(0x4000, 0);
    run.flush(0, Flush::space(0x1000));
    run.san.flush_queued(1, Flush::page(5, 0));
    run.wait(1);
    run.free_page();
    assert_eq!(run.rules(), []);
}

#[test]
fn a_stage_1_flush_is_the_running_guests_with_its_barrier() {
    let mut run = Run::stage2(|c| c);
    run.table(0x5000, 2);
    run.switch(0, 0x1000, 7);
    run.put(0x3000, 0);
    run.flush(0, Flush::page(7, 0));
    run.switch(0, 0x5000, 8);
    run.san.stage1_flushed(0);
    run.switch(0, 0x1000, 7);
    let _ = run.san.translate(&run.ram, 0, 0x4000, Access::READ);
    run.free_page();
    assert_eq!(run.san.total(), 1, "of another guest: {}", run.san);
    for (last, silent) in [(false, false), (true, true)] {
        let mut run = Run::stage2(|c| Config { barriers: true, ..c });
        run.switch(0, 0x1000, 7);
        run.san.barrier(0, Barrier::Instruction);
        run.put(0x3000, 0);
        run.san.barrier(0, Barrier::Data);
        run.flush(0, Flush::page(7, 0));
        run.san.barrier(0, Barrier::Data);
        run.san.stage1_flushed(0);
        if last {
            run.san.barrier(0, Barrier::Data);
        }
        run.free_page();
        assert_eq!(run.san.total() == 0, silent, "{}", run.san);
    }
}

#[test]
fn a_part_of_stage_1_without_limits_is_all_of_it() {
    let mut run = Run::stage2(|c| c);
    run.switch(0, 0x1000, 7);
    let page = GuestPage { number: 1, va: 0x40_0000 };
    run.san.translate_combined(&run.ram, 0, page, 0, Access::READ).unwrap();
    run.put(0x3000, 0);
    run.flush(0, Flush::page(7, 0));
    run.san.stage1_part_flushed(0, None, None);
    run.free_page();
    assert_eq!(run.rules(), []);
}

#[test]
fn a_table_that_is_linked_still_is_reached_by_readers() {
    let mut run = Run::x86(|c| c);
    let reader = run.san.reader_begins(&run.ram, 0x1000);
    run.free(0x2000);
    run.san.reader_ends(reader);
    assert_eq!(run.san.count(Kind::FreeUnderReader), 1, "{}", run.san);
}

#[test]
fn a_table_replaced_without_a_break_is_left_to_readers() {
    let mut run = Run::arm(|c| c);
    run.switch(0, 0x1000, 7);
    let reader = run.san.reader_begins(&run.ram, 0x1000);
    run.put(0x2000, 0x20_0c41);
    run.flush(0, Flush::all());
    run.free(0x3000);
    run.san.reader_ends(reader);
    let kinds: Vec<_> = run.san.findings().iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [Kind::BreakBeforeMake, Kind::FreeUnderReader]);
}

#[test]
fn a_grace_period_is_over_when_the_readers_of_before_have_ended() {
    let mut run = Run::arm(|c| c);
    let before = run.san.reader_begins(&run.ram, 0x1000);
    run.put(0x2000, 0);
    let after = run.san.reader_begins(&run.ram, 0x1000);
    run.san.reader_ends(before);
    run.free(0x3000);
    run.san.reader_ends(after);
    assert_eq!(run.rules(), []);
}

#[test]
fn thousands_of_readers_locks_and_queued_flushes_are_right() {
    let mut run = Run::x86(|c| Config { devices: 1, locks: true, ..c });
    let readers: Vec<_> = (0..5_000).map(|_| run.san.reader_begins(&run.ram, 0x1000)).collect();
    run.san.reader_reads(&run.ram, readers[4_999], 0x2000);
    readers.into_iter().for_each(|reader| run.san.reader_ends(reader));
    (0..70_000).for_each(|lock| run.san.lock_taken(0, lock, Hold::Exclusive));
    (0..70_000).for_each(|lock| run.san.lock_released(&run.ram, 0, lock));
    run.switch(1, 0x1000, 3);
    run.put(0x2000, 0);
    (0..70_000).for_each(|_| run.san.flush_queued(1, Flush::page(3, 0)));
    run.wait(1);
    run.free_page();
    let rules = run.rules();
    assert!(rules.iter().all(|rule| *rule == Rule::NoLock), "the store alone: {rules:?}");
}

#[test]
fn a_table_below_one_that_is_not_linked_is_its_makers() {
    let mut run = Run::new(Config { locks: true, ..Config::new(Arch::x86_64()) }, |table| table | 7, 0x9007);
    run.switch(0, 0x1000, 1);
    for (table, level) in [(0x5000, 2), (0x6000, 1), (0x7000, 0)] {
        run.table(table, level);
        run.san.lock_guards(table, Guard { lock: table, flush_first: false });
    }
    run.san.lock_guards(0x1000, Guard { lock: 1, flush_first: false });
    run.put(0x6000, 0x7007);
    run.put(0x7000, 0xa007);
    run.put(0x5000, 0x6007);
    assert_eq!(run.rules(), []);
}

#[test]
fn of_a_table_that_two_trees_share_either_lock_will_do() {
    for lock in [1, 3] {
        let mut run = Run::x86(|c| Config { locks: true, cpus: 2, ..c });
        run.table(0x3000, 1);
        run.put(0x3000, 0x2067);
        run.san.lock_guards(0x1000, Guard { lock: 1, flush_first: false });
        run.san.lock_guards(0x3000, Guard { lock: 3, flush_first: false });
        run.switch(0, 0x1000, 1);
        run.switch(1, 0x3000, 2);
        run.san.lock_taken(0, lock, Hold::Exclusive);
        run.put(0x2004, 0xa067);
        assert_eq!(run.rules(), [], "{lock}");
        run.san.lock_released(&run.ram, 0, lock);
        run.put(0x2008, 0xb067);
        assert_eq!(run.rules(), [Rule::NotLocked]);
    }
}

#[test]
fn two_updates_of_an_entry_stay_two_beside_a_store_to_another() {
    let mut run = Run::x86(|c| Config { devices: 1, ..c });
    let store = |run: &mut Run, at: u64, word: u64| {
        run.ram[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
        run.san.device_entry_written(&run.ram, at);
    };
    for at in [0x8000, 0x8010, 0x8020] {
        run.san.device_entry(&run.ram, 1, at, DeviceEntry::new(16));
    }
    store(&mut run, 0x8008, 2);
    store(&mut run, 0x8000, 0x5001);
    run.san.device_entries_flushed(1, None);
    store(&mut run, 0x8000, 0x6001);
    run.san.device_entries_flushed(1, None);
    store(&mut run, 0x8018, 2);
    store(&mut run, 0x8008, 3);
    assert_eq!(run.rules(), []);
    // Announced once more, the device still holds the old one.
    store(&mut run, 0x8020, 0x5001);
    store(&mut run, 0x8020, 0);
    run.san.device_entry(&run.ram, 1, 0x8020, DeviceEntry::new(16));
    store(&mut run, 0x8020, 0x6001);
    assert_eq!(run.rules(), [Rule::EntryNotFlushed]);
}

#[test]
fn a_device_needs_no_cpu_barrier_and_keeps_global_pages() {
    let mut run = Run::arm(|c| Config { asids: true, barriers: true, devices: 1, ..c });
    run.switch(1, 0x1000, 5);
    run.san.translate(&run.ram, 1, 0, Access::READ).unwrap();
    run.put(0x3000, 0);
    run.san.barrier(0, Barrier::Data);
    run.flush(1, Flush::page(5, 0));
    run.free_page();
    assert_eq!(run.rules(), []);
    let mut run = Run::x86(|c| Config { asids: true, devices: 1, ..c });
    run.put(0x2004, 0xa163);
    run.switch(0, 0x1000, 7);
    run.switch(1, 0x1000, 9);
    run.put(0x2004, 0xa063);
    run.flush(0, Flush::all());
    run.san.flushes_done(&run.ram);
    assert_eq!(run.rules(), []);
}

#[test]
fn errata_are_of_cpus_and_named_for_flushes_by_address() {
    let errata = Errata { sfence_drops_only_all: true, ..Errata::default() };
    let riscv = Config { asids: true, devices: 1, errata, ..Config::new(Arch::riscv_sv39()) };
    let mut run = Run::new(riscv, |table| table >> 2 | 1, 0x9000 >> 2 | 0xdf);
    run.switch(1, 0x1000, 5);
    run.put(0x3000, 0);
    run.flush(1, Flush::page(5, 0));
    run.free_page();
    assert_eq!(run.rules(), []);
    let errata = Errata { invlpg_spares_globals: true, ..Errata::default() };
    for flush in [Flush::page(1, 0), Flush::range(1, 0, PAGE, PAGE), Flush::page_in_every_space(0)] {
        let mut run = Run::x86(|c| Config { asids: true, errata, ..c });
        run.put(0x2000, 0x9163);
        run.switch(0, 0x1000, 1);
        run.san.translate(&run.ram, 0, 0, Access { user: false, ..Access::READ }).unwrap();
        run.put(0x2000, 0);
        run.flush(0, flush);
        run.free_page();
        let report = run.san.to_string().replace("\n    ", " ");
        assert!(report.contains("see Errata::invlpg_spares_globals"), "{flush}: {report}");
    }
}
