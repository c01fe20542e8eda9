//! Break-before-make on AArch64: found at the store or at a walk, and silent where the architecture
//! allows the change.
use crate::common;

use common::{Machine, PAGE};
use ptsan::{Access, Arch, Config, Flush, Kind, Rule};

const VA: u64 = 0x40_0000;
const DATA: u64 = 0x8_0000;
const OTHER: u64 = 0x8_1000;

const TABLE: u64 = 3;
/// A page that user mode reads and writes, not global, accessed.
const RW: u64 = 3 | 1 << 6 | 1 << 10 | 1 << 11;
const RO: u64 = RW | 1 << 7;
const BLOCK: u64 = RW & !2;
const ACCESSED: u64 = 1 << 10;

struct Arm {
    m: Machine,
    /// Tables from the top down.
    tables: [u64; 4],
    told: bool,
}

impl Arm {
    /// Builds four levels and one leaf table, without a mapping of `VA`. CPU 0 has the root loaded.
    fn new(told: bool) -> Self {
        Self::with(told, Config::new(Arch::aarch64_4k(48)))
    }

    fn with(told: bool, config: Config) -> Self {
        let mut m = Machine::with(config);
        let root = m.space(1);
        let tables = [root, m.table(2), m.table(1), m.table(0)];
        m.switch(0, 1);
        let mut new = Self { m, tables, told };
        for level in [3, 2, 1] {
            let below = new.tables[4 - level];
            new.put(new.entry(level as u8), below | TABLE);
        }
        new
    }

    /// Returns where the entry for `VA` stands at a level.
    fn entry(&self, level: u8) -> u64 {
        let table = self.tables[3 - level as usize];
        table + self.m.arch.levels[level as usize].index(VA) * 8
    }

    fn put(&mut self, at: u64, raw: u64) {
        self.m.put(at, raw);
        if self.told {
            self.m.san.entry_written(&self.m.ram, at);
        }
    }

    fn flush(&mut self, flush: Flush) {
        self.m.flush(0, flush);
    }

    fn access(&mut self) {
        let _ = self.m.access(0, VA, Access::READ);
    }
}

fn rules(arm: &Arm) -> Vec<Rule> {
    let only = arm.m.san.findings().iter().filter(|f| f.kind == Kind::BreakBeforeMake);
    only.map(|f| f.rule).collect()
}

/// Replaces one valid entry of the last level by another, with or without a break, and with or
/// without a flush.
fn replace(told: bool, old: u64, new: u64, clear: bool, flush: bool) -> Arm {
    let mut arm = Arm::new(told);
    let at = arm.entry(0);
    // The two frames differ.
    arm.m.put(DATA + 8, 1);
    arm.put(at, old);
    if !told {
        arm.access();
    }
    if clear {
        arm.put(at, 0);
    }
    if flush {
        arm.flush(Flush::page(1, VA));
    }
    arm.put(at, new);
    if !told {
        arm.m.probe(0, VA);
    }
    arm.flush(Flush::page(1, VA));
    arm
}

#[test]
fn a_changed_output_type_or_reach_needs_a_break_and_a_flush() {
    let cases = [
        (DATA | RW, OTHER | RW, Rule::ChangedOutput),
        (DATA | RO, OTHER | RW, Rule::ChangedOutput),
        (DATA | RO, OTHER | RO, Rule::ChangedOutput),
        (DATA | RW, DATA | RW | 1 << 2, Rule::ChangedType),
        (DATA | RW, DATA | RW & !(1 << 11), Rule::ChangedReach),
    ];
    for told in [true, false] {
        for (old, new, rule) in cases {
            assert_eq!(rules(&replace(told, old, new, false, false)), [rule], "{told} {old:#x}");
            assert_eq!(
                rules(&replace(told, old, new, true, false)),
                [rule],
                "cleared, not flushed: {old:#x}"
            );
            let right = replace(told, old, new, true, true);
            right.m.san.assert_clean();
        }
    }
}

#[test]
fn with_stores_told_a_flush_without_a_break_is_not_enough() {
    // The CPU may read the old entry again after the flush.
    assert_eq!(rules(&replace(true, DATA | RW, OTHER | RW, false, true)), [Rule::ChangedOutput]);
}

#[test]
fn permissions_flags_and_equal_copies_change_without_a_break() {
    for told in [true, false] {
        for (old, new) in [
            (DATA | RW, DATA | RO),
            (DATA | RO, DATA | RW),
            (DATA | RW, DATA | RW | 1 << 55 | 1 << 58),
            (DATA | RW, DATA | RW & !ACCESSED),
            (DATA | RW & !ACCESSED, OTHER | RW),
            (DATA | RW, OTHER | RW & !ACCESSED),
            // Read-only copies with equal content, and frames that cannot be read.
            (0x8_2000 | RO, OTHER | RO),
            (0x9000_0000 | RO, OTHER | RO),
        ] {
            let arm = replace(told, old, new, false, false);
            arm.m.san.assert_clean();
        }
    }
}

#[test]
fn a_block_split_without_a_break_is_found() {
    for told in [true, false] {
        for right in [true, false] {
            let mut arm = Arm::new(told);
            let at = arm.entry(1);
            arm.put(at, 0);
            arm.flush(Flush::page(1, VA));
            arm.put(at, 0x40_0000 | BLOCK);
            // The same output, page by page.
            for i in 0..512 {
                arm.m.put(arm.tables[3] + i * 8, (0x40_0000 + i * PAGE) | RW);
            }
            if !told {
                arm.access();
            }
            if right {
                arm.put(at, 0);
                arm.flush(Flush::page(1, VA + 5 * PAGE));
            }
            arm.put(at, arm.tables[3] | TABLE);
            arm.m.probe(0, VA);
            assert_eq!(rules(&arm).first(), (!right).then_some(&Rule::ChangedSize), "{}", arm.m.san);
            if right {
                arm.m.san.assert_clean();
            }
        }
    }
}

#[test]
fn a_block_made_writable_before_its_flush_keeps_its_size() {
    let mut arm = Arm::new(true);
    let at = arm.entry(1);
    arm.put(at, 0);
    arm.flush(Flush::page(1, VA));
    for raw in [0x40_0000 | BLOCK, 0x40_0000 | BLOCK | 1 << 7, 0x40_0000 | BLOCK] {
        arm.put(at, raw);
        arm.access();
    }
    arm.flush(Flush::page(1, VA));
    arm.m.san.assert_clean();
}

#[test]
fn pages_collapsed_into_a_block_need_every_page_flushed() {
    for told in [true, false] {
        // All pages, the one that was used, another one, the last level of all pages.
        for (flush, right) in [
            (Flush::range(1, VA, VA + (512 << 12), PAGE), true),
            (Flush::page(1, VA), true),
            (Flush::page(1, VA + PAGE), false),
            (Flush::range(1, VA, VA + (512 << 12), PAGE).leaf_only(), false),
        ] {
            let mut arm = Arm::new(told);
            let (at, leaf) = (arm.entry(1), arm.entry(0));
            arm.put(at, arm.tables[3] | TABLE);
            arm.put(leaf, 0x40_0000 | RW);
            arm.access();
            arm.put(at, 0);
            arm.flush(flush);
            arm.put(at, 0x40_0000 | BLOCK);
            if told {
                assert_eq!(rules(&arm).is_empty(), right, "at the store: {flush}: {}", arm.m.san);
            }
            arm.m.probe(0, VA + 7 * PAGE);
            arm.m.probe(0, VA);
            assert_eq!(rules(&arm).is_empty(), right, "{told} {flush}: {}", arm.m.san);
        }
    }
}

#[test]
fn a_table_replaced_by_a_copy_of_itself_is_no_contradiction() {
    for same in [true, false] {
        let mut arm = Arm::new(true);
        let (at, leaf) = (arm.entry(1), arm.entry(0));
        arm.put(leaf, DATA | RW);
        arm.access();
        let copy = arm.m.table(0);
        arm.m.put(copy + (leaf - arm.tables[3]), if same { DATA | RW } else { OTHER | RW });
        arm.put(at, copy | TABLE);
        assert_eq!(rules(&arm).is_empty(), same, "{}", arm.m.san);
    }
}

#[test]
fn an_entry_that_no_cpu_can_reach_may_change() {
    for loaded in [true, false] {
        let mut arm = Arm::new(true);
        let at = arm.entry(0);
        arm.put(at, DATA | RW);
        if !loaded {
            arm.m.leave(0);
        }
        arm.put(at, OTHER | RW);
        assert_eq!(rules(&arm).is_empty(), !loaded);
    }
}

#[test]
fn a_lazy_cpu_counts_and_one_that_flushed_does_not() {
    for deaf in [None, Some(1)] {
        let mut arm = Arm::with(true, Config { cpus: 2, ..Config::new(Arch::aarch64_4k(48)) });
        arm.m.switch(1, 1);
        arm.m.san.lazy(1);
        let at = arm.entry(0);
        arm.put(at, DATA | RW);
        arm.put(at, 0);
        arm.m.deaf = deaf;
        arm.m.shootdown(1, Flush::page(1, VA).leaf_only());
        arm.put(at, OTHER | RW);
        assert_eq!(rules(&arm).len(), deaf.iter().len(), "{}", arm.m.san);
    }
}

#[test]
fn a_read_before_the_only_told_store_is_found() {
    let mut arm = Arm::new(false);
    let at = arm.entry(0);
    arm.put(at, DATA | RW);
    arm.access();
    arm.told = true;
    arm.put(at, OTHER | RW);
    assert_eq!(rules(&arm), [Rule::ChangedOutput]);
}

#[test]
fn other_architectures_replace_valid_entries_at_will() {
    let mut m = common::ready(Arch::x86_64(), 1);
    m.map(1, VA, DATA | common::RW);
    m.read(0, VA);
    let at = m.path(1, VA).last().unwrap().2;
    m.san.entry_written(&m.ram, at);
    m.put(at, OTHER | common::RW);
    m.san.entry_written(&m.ram, at);
    m.flush(0, Flush::page(1, VA));
    m.san.assert_clean();
}
