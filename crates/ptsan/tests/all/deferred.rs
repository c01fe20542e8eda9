//! Frees that are final at the next full flush.
use ptsan::{Access, Arch, Config, Content, Flush, Kind, Sanitizer};

const PAGE: u64 = 4096;
const ROOT: u64 = 0x1000;
/// The table of level 2 that is unlinked and freed.
const TABLE: u64 = 0x2000;

/// A tree of four tables from [`ROOT`] down to a page, loaded on two CPUs, whose stores are told.
struct Kernel {
    san: Sanitizer,
    ram: Vec<u8>,
}

impl Kernel {
    fn new() -> Self {
        let san = Sanitizer::new(Config { cpus: 2, ..Config::new(Arch::x86_64()) });
        let mut kernel = Self { san, ram: vec![0; 16 * 4096] };
        for level in 0..4 {
            let table = ROOT + (3 - u64::from(level)) * PAGE;
            kernel.san.table_allocated(&kernel.ram, table, PAGE, Some(level), Content::Zero);
            kernel.store(table, (table + PAGE) | 7);
        }
        for cpu in 0..2 {
            kernel.san.switch(&kernel.ram, cpu, ROOT, 1);
            assert!(kernel.san.translate(&kernel.ram, cpu, 0, Access::READ).is_ok());
        }
        kernel
    }

    fn store(&mut self, at: u64, value: u64) {
        self.ram[at as usize..][..8].copy_from_slice(&value.to_le_bytes());
        self.san.entry_written(&self.ram, at);
    }

    /// Unlinks all below the root and gives the three tables to the allocator.
    fn unmap(&mut self) {
        self.store(ROOT, 0);
        for table in [TABLE, TABLE + PAGE, TABLE + 2 * PAGE] {
            self.san.table_freed_at_flush(&self.ram, table, PAGE);
        }
        assert_eq!(self.san.total(), 0, "{}", self.san);
    }

    fn allocate(&mut self) {
        self.san.table_allocated(&self.ram, TABLE, PAGE, None, Content::Unchecked);
    }
}

#[test]
fn a_frame_taken_after_every_cpus_flush_is_no_finding() {
    for flush in [Flush::all(), Flush::space(1)] {
        let mut kernel = Kernel::new();
        kernel.unmap();
        assert_eq!(kernel.san.live_tables(), 4);
        kernel.san.flush_everywhere(&kernel.ram, flush);
        // The free is final: the frame may be data, and nobody needs to say so.
        assert_eq!(kernel.san.live_tables(), 1);
        kernel.san.table_freed(&kernel.ram, TABLE, PAGE);
        assert_eq!(kernel.san.count(Kind::DoubleFree), 1, "{}", kernel.san);
        kernel.allocate();
        assert_eq!(kernel.san.total(), 1, "{}", kernel.san);
    }
}

#[test]
fn a_frame_that_is_taken_before_the_flush_of_every_cpu_is_found() {
    for data in [false, true] {
        let mut kernel = Kernel::new();
        kernel.unmap();
        kernel.san.flush(&kernel.ram, 0, Flush::all()); // CPU 1 does not
        assert_eq!(kernel.san.total(), 0, "{}", kernel.san);
        if data {
            kernel.san.frame_reused(&kernel.ram, TABLE, PAGE);
        } else {
            kernel.allocate();
        }
        assert_eq!(kernel.san.count(Kind::FreeBeforeFlush), 1, "{}", kernel.san);
        assert_eq!(kernel.san.findings().len(), 1, "{}", kernel.san);
        assert_eq!(kernel.san.findings()[0].place.cpu, Some(1));
    }
}

#[test]
fn a_load_of_another_root_is_a_flush_without_numbers_of_spaces() {
    let mut kernel = Kernel::new();
    kernel.unmap();
    kernel.san.table_allocated(&kernel.ram, 0x8000, PAGE, Some(3), Content::Zero);
    for cpu in 0..2 {
        kernel.san.switch(&kernel.ram, cpu, 0x8000, 2);
    }
    kernel.allocate();
    assert_eq!(kernel.san.total(), 0, "{}", kernel.san);
}

#[test]
fn an_entry_that_points_at_a_taken_frame_is_found() {
    let mut kernel = Kernel::new();
    kernel.san.table_freed_at_flush(&kernel.ram, TABLE, PAGE);
    kernel.san.flush_everywhere(&kernel.ram, Flush::all());
    assert_eq!(kernel.san.total(), 0, "{}", kernel.san);
    kernel.allocate();
    assert_eq!(kernel.san.count(Kind::FreeWhileLinked), 1, "{}", kernel.san);
}

#[test]
fn a_second_free_before_the_flush_is_found_at_once() {
    let mut kernel = Kernel::new();
    kernel.unmap();
    kernel.san.table_freed_at_flush(&kernel.ram, TABLE, PAGE);
    assert_eq!(kernel.san.count(Kind::DoubleFree), 1);
    kernel.san.table_freed(&kernel.ram, TABLE, PAGE);
    assert_eq!(kernel.san.count(Kind::DoubleFree), 2);
    kernel.san.table_freed_at_flush(&kernel.ram, 0x9000, PAGE);
    kernel.san.table_freed_at_flush(&kernel.ram, TABLE, 2 * PAGE);
    assert_eq!(kernel.san.count(Kind::ForeignFree), 1, "{}", kernel.san);
}

#[test]
fn a_flush_that_never_comes_is_no_leak() {
    let mut kernel = Kernel::new();
    kernel.unmap();
    (0..2).for_each(|cpu| kernel.san.leave(cpu));
    kernel.san.table_freed(&kernel.ram, ROOT, PAGE);
    kernel.san.finish();
    assert_eq!(kernel.san.total(), 0, "{}", kernel.san);
}
