//! Runs of entries that hardware may cache as one translation: the Contiguous bit, and Svnapot.
use ptsan::{Access, Arch, Config, Content, Flush, Kind, Rule, Sanitizer};

const PAGE: u64 = 4096;
const RUN: u64 = 16;
const CONTIGUOUS: u64 = 1 << 52;
const DATA: u64 = 0x10_0000;

struct Machine {
    ram: Vec<u8>,
    san: Sanitizer,
    /// The last table, and the entry for a page of the run without the hint.
    last: u64,
    page: fn(u64) -> u64,
}

/// One path of tables, and a CPU.
fn machine(arch: Arch, table: fn(u64) -> u64, page: fn(u64) -> u64) -> Machine {
    let top = arch.top() as u64;
    let mut m = Machine {
        ram: vec![0; 1 << 16],
        san: Sanitizer::new(Config { asids: true, ..Config::new(arch) }),
        last: PAGE * (1 + top),
        page,
    };
    for level in (0..=top).rev() {
        let phys = PAGE * (1 + top - level);
        m.san.table_allocated(&m.ram, phys, PAGE, Some(level as u8), Content::Zero);
        if level < top {
            m.put(phys - PAGE, table(phys));
        }
    }
    m.san.switch(&m.ram, 0, PAGE, 1);
    m
}

fn arm() -> Machine {
    machine(Arch::aarch64_4k(48), |p| p | 3, |i| (DATA + i * PAGE) | 0xc43)
}

fn napot() -> Machine {
    // All entries hold the same frame number, whose low bits say the size.
    machine(Arch::riscv_sv39(), |p| p >> 2 | 1, |_| 1 << 63 | (DATA >> 12 | 8) << 10 | 0b1101_0111)
}

impl Machine {
    fn put(&mut self, at: u64, raw: u64) {
        self.ram[at as usize..][..8].copy_from_slice(&raw.to_le_bytes());
        self.san.entry_written(&self.ram, at);
    }

    fn set(&mut self, index: u64, raw: u64) {
        self.put(self.last + index * 8, raw);
    }

    fn fill(&mut self, hint: u64) {
        (0..RUN).for_each(|i| self.set(i, (self.page)(i) | hint));
    }

    fn clear(&mut self) {
        (0..RUN).for_each(|i| self.set(i, 0));
    }

    fn read(&mut self, index: u64) -> Option<u64> {
        self.san.translate(&self.ram, 0, index * PAGE, Access::READ).ok().map(|t| t.phys)
    }

    fn flush(&mut self, pages: u64) {
        self.san.flush(&self.ram, 0, Flush::range(1, 0, pages * PAGE, PAGE));
    }

    fn done(&mut self) -> Vec<(Kind, Rule)> {
        self.san.flushes_done(&self.ram);
        self.san.findings().iter().map(|f| (f.kind, f.rule)).collect()
    }
}

#[test]
fn a_run_that_is_made_used_and_cleared_as_a_whole_is_silent() {
    for (mut m, hint) in [(arm(), CONTIGUOUS), (napot(), 0)] {
        for _ in 0..3 {
            m.fill(hint);
            for i in 0..RUN {
                assert_eq!(m.read(i), Some(DATA + i * PAGE));
            }
            m.clear();
            m.flush(RUN);
            assert_eq!(m.read(3), None);
            assert_eq!(m.done(), []);
        }
    }
}

#[test]
fn a_cpu_that_read_one_page_of_a_run_holds_all() {
    for (mut m, hint, runs) in [(arm(), CONTIGUOUS, true), (napot(), 0, true), (arm(), 0, false)] {
        m.fill(hint);
        assert!(m.read(2).is_some());
        // Without hooks of stores, so that no flush is owed.
        m.ram[m.last as usize..][..RUN as usize * 8].fill(0);
        assert_eq!(m.read(9).is_some(), runs, "it never walked for page 9");
        assert_eq!(m.san.count(Kind::StaleUse), u64::from(runs));
    }
}

#[test]
fn one_page_taken_out_of_a_run_is_found_although_it_was_flushed() {
    for (mut m, hint) in [(arm(), CONTIGUOUS), (napot(), 0)] {
        m.fill(hint);
        assert_eq!(m.done(), []);
        m.set(5, 0);
        m.flush(RUN);
        assert_eq!(m.done(), [(Kind::ContiguousRange, Rule::RunDisagrees)]);
        let text = m.san.to_string();
        assert!(text.contains("entry 5 (0x0)") && text.contains("belongs to no such run"), "{text}");
    }
}

#[test]
fn a_contiguous_run_with_a_deviating_entry_is_found() {
    for (raw, what) in [
        ((DATA + 99 * PAGE) | 0xc43, "maps memory that is not next to it"),
        ((DATA + 7 * PAGE) | 0xc43 | 1 << 7, "has other attributes"),
    ] {
        let mut m = arm();
        for i in 0..RUN {
            m.set(i, if i == 7 { raw | CONTIGUOUS } else { (m.page)(i) | CONTIGUOUS });
        }
        assert_eq!(m.done(), [(Kind::ContiguousRange, Rule::RunDisagrees)]);
        let text = m.san.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(what), "{text}");
    }
}

#[test]
fn a_run_of_which_hardware_has_made_one_page_dirty_is_silent() {
    // Writable when it is written (DBM), and read-only so far.
    let clean = 1 << 51 | 1 << 7;
    let mut m = arm();
    for i in 0..RUN {
        let raw = (m.page)(i) | CONTIGUOUS | clean;
        m.set(i, if i == 3 { raw & !(1 << 7) } else { raw });
    }
    assert_eq!(m.done(), []);
}

#[test]
fn the_hint_changes_only_in_invalid_entries() {
    let mut m = arm();
    m.fill(0);
    m.read(0);
    m.fill(CONTIGUOUS);
    m.flush(RUN);
    assert_eq!(m.done(), [(Kind::BreakBeforeMake, Rule::ChangedRun)]);
    let mut m = arm();
    m.fill(0);
    m.read(0);
    m.clear();
    m.flush(RUN);
    m.fill(CONTIGUOUS);
    assert_eq!(m.done(), []);
}

#[test]
fn a_run_changed_by_one_operation_is_not_checked_by_another() {
    let mut m = arm();
    let (one, other) = (m.san.operation_begins(), m.san.operation_begins());
    m.set(0, (m.page)(0) | CONTIGUOUS);
    m.san.operation_ends(&m.ram, other);
    assert_eq!(m.san.total(), 0, "{}", m.san);
    m.san.operation_ends(&m.ram, one);
    assert_eq!(m.san.count(Kind::ContiguousRange), 1, "{}", m.san);
}
