//! Stage 2 under stage 1: a hypervisor's tables under a guest's.
use ptsan::{
    Access, Arch, Config, Content, Flush, Granule, GuestMemory, Kind, Rule, Sanitizer, Severity, Shared,
};

const PAGE: u64 = 4096;
/// The guest's table, in its own addresses.
const TABLE: u64 = PAGE;
const CPUS: usize = 2;

struct Host {
    ram: Vec<u8>,
    stage2: Shared,
}

impl Host {
    /// A guest whose first 16 pages lie at 1 MiB, on two CPUs.
    fn new() -> Self {
        let arch = Arch::aarch64_stage2(Granule::K4, 39, 1);
        let stage2 = Shared::new(Config { cpus: CPUS, two_stages: true, ..Config::new(arch) });
        let mut host = Self { ram: vec![0; 2 << 20], stage2 };
        for (level, table) in [(2u8, 0x1000u64), (1, 0x2000), (0, 0x3000)] {
            host.stage2.table_allocated(&host.ram, table, PAGE, Some(level), Content::Zero);
        }
        host.put(0x1000, 0x2000 | 3);
        host.put(0x2000, 0x3000 | 3);
        for cpu in 0..CPUS {
            host.stage2.switch(&host.ram, cpu, 0x1000, 7);
        }
        for page in 0..16 {
            host.put(0x3000 + 8 * page, (0x10_0000 + page * PAGE) | 0x4c3);
        }
        host
    }

    fn put(&mut self, at: u64, raw: u64) {
        self.ram[at as usize..][..8].copy_from_slice(&raw.to_le_bytes());
        self.stage2.entry_written(&self.ram, at);
    }

    fn guest(&self, cpu: usize) -> GuestMemory<'_, Vec<u8>> {
        GuestMemory::new(&self.stage2, cpu, &self.ram)
    }

    /// A guest with a table of one level, which maps page 5 to page 8.
    fn boot(&mut self) -> Sanitizer {
        let mut stage1 = Sanitizer::new(Config { cpus: CPUS, ..Config::new(Arch::aarch64_4k(21)) });
        stage1.table_allocated(&self.guest(0), TABLE, PAGE, Some(0), Content::Zero);
        let at = 0x10_0000 + TABLE as usize + 5 * 8;
        self.ram[at..][..8].copy_from_slice(&((8 * PAGE) | 0xc43).to_le_bytes());
        stage1.entry_written(&self.guest(0), TABLE + 5 * 8);
        for cpu in 0..CPUS {
            stage1.switch(&self.guest(cpu), cpu, TABLE, 1);
        }
        stage1
    }

    fn read(&self, stage1: &mut Sanitizer, cpu: usize, va: u64) -> Option<u64> {
        let ipa = stage1.translate(&self.guest(cpu), cpu, va, Access::READ).ok()?.phys;
        self.stage2.translate(&self.ram, cpu, ipa, Access::READ).ok().map(|t| t.phys)
    }

    /// The hypervisor takes a page of the guest away.
    fn take(&mut self, page: u64, by_address: bool, stage1: bool) {
        self.put(0x3000 + 8 * page, 0);
        for cpu in 0..CPUS {
            let flush = if by_address { Flush::page(7, page * PAGE) } else { Flush::space(7) };
            self.stage2.flush(&self.ram, cpu, flush);
            if stage1 {
                self.stage2.lock().stage1_flushed(cpu);
            }
        }
        self.stage2.lock().flushes_done(&self.ram);
    }
}

#[test]
fn an_address_goes_through_both_stages() {
    let mut host = Host::new();
    let mut stage1 = host.boot();
    for cpu in 0..CPUS {
        assert_eq!(host.read(&mut stage1, cpu, 0x5123), Some(0x10_8123));
        assert_eq!(host.read(&mut stage1, cpu, 0x6123), None, "not mapped by the guest");
    }
    stage1.assert_clean();
    host.stage2.lock().assert_clean();
}

#[test]
fn a_guests_table_in_lost_memory_is_found_at_the_walk() {
    let mut host = Host::new();
    let mut stage1 = host.boot();
    assert!(host.read(&mut stage1, 1, 0x5000).is_some());
    // Not told, so that only the walk can find it; and without a flush.
    host.ram[0x3000 + 8..][..8].fill(0);
    stage1.flush(&host.guest(1), 1, Flush::all());
    assert!(host.read(&mut stage1, 1, 0x5000).is_some());
    let stage2 = host.stage2.lock();
    let found = &stage2.findings()[0];
    assert_eq!((found.kind, found.rule), (Kind::StaleUse, Rule::Unmapped), "{stage2}");
    assert_eq!((found.place.va, found.severity()), (Some(TABLE + 5 * 8), Severity::MemoryCorruption));
}

#[test]
fn a_flush_by_intermediate_address_needs_a_later_stage_1_flush() {
    for (by_address, stage1, silent) in
        [(true, true, true), (false, false, true), (false, true, true), (true, false, false)]
    {
        let mut host = Host::new();
        let mut guest = host.boot();
        assert!(host.read(&mut guest, 0, 0x5000).is_some());
        host.take(8, by_address, stage1);
        let stage2 = host.stage2.lock();
        let found: Vec<_> = stage2.findings().iter().map(|f| (f.kind, f.rule)).collect();
        let expected = [(Kind::FlushMissing, Rule::UnmapNotFlushed)];
        assert_eq!(found, expected[usize::from(silent)..], "{by_address} {stage1}: {stage2}");
        assert_eq!(stage2.to_string().contains("call stage1_flushed"), !silent, "{stage2}");
    }
}

#[test]
fn a_flush_of_stage_1_that_comes_first_is_of_no_use() {
    let mut host = Host::new();
    let mut guest = host.boot();
    assert!(host.read(&mut guest, 0, 0x5000).is_some());
    host.put(0x3000 + 8 * 8, 0);
    for cpu in 0..CPUS {
        host.stage2.lock().stage1_flushed(cpu);
        host.stage2.flush(&host.ram, cpu, Flush::page(7, 8 * PAGE));
    }
    host.stage2.lock().flushes_done(&host.ram);
    assert_eq!(host.stage2.count(Kind::FlushMissing), 1);
}

#[test]
fn an_empty_table_of_the_guest_is_compared_where_its_pages_lie() {
    let mut host = Host::new();
    // Two pages that are neighbours for the guest alone.
    host.put(0x3000 + 8 * 3, 0x18_0000 | 0x4c3);
    host.ram[0x18_0ff8] = 1;
    let mut stage1 = Sanitizer::new(Config::new(Arch::aarch64_4k(21)));
    stage1.table_allocated(&host.guest(0), 2 * PAGE, PAGE, Some(0), Content::Zero);
    assert_eq!(stage1.total(), 0, "{stage1}");
    stage1.table_allocated(&host.guest(0), 3 * PAGE, PAGE, Some(0), Content::Zero);
    assert_eq!(stage1.count(Kind::NotZero), 1, "{stage1}");
}
