//! Flushes that CPUs owe: the flushes that pay them, the moment at which they are due, and data
//! frames.
use crate::common;

use common::{Machine, PAGE, RO, RW};
use ptsan::{Access, Arch, Barrier, Config, Content, Flush, Kind, Rule, Sanitizer};

const VA: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;
const NX: u64 = 1 << 63;

/// Space 1 on every CPU, with one page, and stores that are told.
fn machine(config: Config) -> Machine {
    let cpus = config.cpus;
    let mut m = Machine::with(config);
    m.tells = true;
    m.space(1);
    (0..cpus).for_each(|cpu| m.switch(cpu, 1));
    m.map(1, VA, DATA | RW);
    m
}

fn x86(cpus: usize) -> Machine {
    machine(Config { cpus, ..Config::new(Arch::x86_64()) })
}

fn store(m: &mut Machine, va: u64, entry: u64) {
    let at = m.path(1, va).last().unwrap().2;
    m.put(at, entry);
}

fn done(m: &mut Machine) -> Vec<(Kind, Rule)> {
    m.san.flushes_done(&m.ram);
    found(&m.san)
}

fn found(san: &Sanitizer) -> Vec<(Kind, Rule)> {
    san.findings().iter().map(|f| (f.kind, f.rule)).collect()
}

#[test]
fn a_flush_is_owed_by_each_cpu_that_could_have_walked() {
    let mut m = x86(3);
    store(&mut m, VA, 0);
    m.flush(1, Flush::page(1, VA));
    assert_eq!(done(&mut m), [(Kind::FlushMissing, Rule::UnmapNotFlushed)]);
    let text = m.san.to_string();
    assert!(text.contains("CPUs 0, 2 may still translate"), "{text}");
    // A reported debt is not reported again.
    let _ = m.read(0, VA);
    assert_eq!(done(&mut m).len(), 1, "{}", m.san);
}

#[test]
fn what_the_store_gave_back_in_time_is_not_owed() {
    let mut m = x86(2);
    store(&mut m, VA, 0);
    store(&mut m, VA, DATA | RW);
    assert_eq!(done(&mut m), []);
    store(&mut m, VA, DATA | RO);
    assert_eq!(done(&mut m), [(Kind::FlushMissing, Rule::RestrictNotFlushed)]);
    let mut m = x86(2);
    store(&mut m, VA, (DATA + PAGE) | RW);
    assert_eq!(done(&mut m), [(Kind::FlushMissing, Rule::RemapNotFlushed)]);
}

#[test]
fn a_root_load_settles_debts_without_numbers_alone() {
    for asids in [false, true] {
        let mut m = machine(Config { asids, ..Config::new(Arch::x86_64()) });
        m.space(2);
        store(&mut m, VA, 0);
        m.switch(0, 2);
        assert_eq!(done(&mut m), [], "another space runs");
        let root = m.root(1);
        m.san.switch(&m.ram, 0, root, 1);
        let _ = m.read(0, VA + PAGE);
        assert_eq!(done(&mut m).len(), usize::from(asids), "{}", m.san);
    }
}

#[test]
fn an_operation_under_way_owes_nothing_yet() {
    let mut m = x86(2);
    let (one, other) = (m.san.operation_begins(), m.san.operation_begins());
    store(&mut m, VA, 0);
    m.san.operation_ends(&m.ram, other);
    assert_eq!(done(&mut m), []);
    m.san.operation_ends(&m.ram, one);
    assert_eq!(found(&m.san), [(Kind::FlushMissing, Rule::UnmapNotFlushed)]);
}

#[test]
fn the_end_of_a_run_is_the_last_moment() {
    let mut m = x86(1);
    store(&mut m, VA, 0);
    m.san.finish_with(&m.ram);
    assert!(found(&m.san).contains(&(Kind::FlushMissing, Rule::UnmapNotFlushed)));
}

#[test]
fn data_is_given_away_when_no_cpu_can_translate_to_it() {
    for (flush, reused) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut m = x86(2);
        store(&mut m, VA, 0);
        if flush {
            (0..2).for_each(|cpu| m.flush(cpu, Flush::page(1, VA)));
        }
        let kind = if reused {
            m.san.frame_reused(&m.ram, DATA, PAGE);
            Kind::DataReusedBeforeFlush
        } else {
            m.san.frame_freed(&m.ram, DATA, PAGE);
            Kind::DataFreedBeforeFlush
        };
        let expected = [(kind, Rule::DataNotFlushed)];
        assert_eq!(found(&m.san), expected[usize::from(flush)..], "{}", m.san);
    }
    let mut m = x86(1);
    m.san.frame_freed(&m.ram, DATA + 8, 8);
    assert_eq!(found(&m.san), [(Kind::DataFreedBeforeFlush, Rule::DataStillMapped)]);
    let mut m = x86(1);
    m.san.frame_freed(&m.ram, DATA + PAGE, PAGE);
    m.san.lazy(0);
    m.san.frame_freed(&m.ram, DATA, PAGE);
    assert_eq!(found(&m.san), [], "another frame, and a CPU that uses no address of the space");
}

#[test]
fn without_told_stores_data_is_looked_for_in_what_cpus_hold() {
    for mapped in [false, true] {
        let mut m = common::ready(Arch::x86_64(), 2);
        m.map(1, VA, DATA | RW);
        if mapped {
            m.san.frame_mapped(&m.ram, 1, VA);
        }
        store(&mut m, VA, 0);
        m.san.frame_freed(&m.ram, DATA, PAGE);
        assert_eq!(m.count(Kind::DataFreedBeforeFlush), u64::from(mapped), "{}", m.san);
    }
}

#[test]
fn a_data_frame_becomes_a_table_once_no_cpu_translates_to_it() {
    let mut m = x86(1);
    let frame = 0x8_0000;
    m.map(1, VA + PAGE, frame | RO);
    store(&mut m, VA + PAGE, 0);
    m.san.table_allocated(&m.ram, frame, PAGE, Some(0), Content::Unchecked);
    assert_eq!(found(&m.san), [(Kind::DataReusedBeforeFlush, Rule::DataMadeTable)]);
}

#[test]
fn user_mode_writes_no_table_whichever_came_first() {
    for table_first in [true, false] {
        let mut m = x86(1);
        let table = if table_first { m.table(0) } else { 0x8_0000 };
        m.map(1, VA + PAGE, table | RW);
        if !table_first {
            m.san.table_allocated(&m.ram, table, PAGE, Some(0), Content::Unchecked);
        }
        assert!(m.count(Kind::TableMapped) == 1, "{table_first}: {}", m.san);
        let mut m = x86(1);
        let table = m.table(0);
        m.map(1, VA + PAGE, table | RO);
        assert_eq!(m.count(Kind::TableMapped), 0, "it may read one");
    }
}

#[test]
fn a_frame_both_writable_and_executable_is_found_on_request() {
    for (write_xor_execute, entries, expected) in [
        (false, [RW | NX, RO], 0),
        (true, [RW | NX, RO], 1),
        (true, [RW | NX, RO | NX], 0),
        (true, [RO, RO], 0),
    ] {
        let mut m = Machine::with(Config { write_xor_execute, ..Config::new(Arch::x86_64()) });
        m.tells = true;
        for (space, entry) in [1, 2].into_iter().zip(entries) {
            m.space(space);
            m.map(space, VA, DATA | entry);
        }
        assert_eq!(m.count(Kind::WriteExecute), expected, "{entries:x?}: {}", m.san);
    }
    let mut m = Machine::with(Config { write_xor_execute: true, ..Config::new(Arch::x86_64()) });
    m.tells = true;
    m.space(1);
    m.map(1, VA, DATA | RW | NX);
    m.unmap(1, VA);
    m.map(1, VA, DATA | RO);
    assert_eq!(m.count(Kind::WriteExecute), 0, "one after the other");
}

/// One level of Sv39 or AArch64 is enough for barriers: a root whose entries are large pages.
fn large(arch: Arch, leaf: fn(u64) -> u64) -> (Vec<u8>, Sanitizer, fn(u64) -> u64) {
    let mut ram = vec![0u8; 1 << 14];
    let config = Config { cpus: 2, barriers: true, asids: true, ..Config::new(arch) };
    let mut san = Sanitizer::new(config);
    san.table_allocated(&ram, 0x1000, PAGE, Some(2), Content::Zero);
    for cpu in 0..2 {
        san.switch(&ram, cpu, 0x1000, 1);
        san.barrier(cpu, Barrier::Instruction);
    }
    ram[0x1000..0x1008].copy_from_slice(&leaf(1 << 30).to_le_bytes());
    san.entry_written(&ram, 0x1000);
    (ram, san, leaf)
}

fn clear(ram: &mut [u8], san: &mut Sanitizer) {
    ram[0x1000..0x1008].fill(0);
    san.entry_written(ram, 0x1000);
}

fn riscv(phys: u64) -> u64 {
    phys >> 2 | 0xd7
}

fn arm(phys: u64) -> u64 {
    phys | 0xc41
}

#[test]
fn on_riscv_a_fence_comes_before_the_flush_of_another_cpu() {
    for (by, fence, expected) in [(0, true, 0), (0, false, 1), (1, false, 1)] {
        let (mut ram, mut san, _) = large(Arch::riscv_sv39(), riscv);
        san.running_on(by);
        clear(&mut ram, &mut san);
        if fence {
            san.barrier(by, Barrier::Fence);
        }
        (0..2).for_each(|cpu| san.flush(&ram, cpu, Flush::page(1, 0)));
        san.flushes_done(&ram);
        assert_eq!(san.count(Kind::FlushMissing), expected, "{by} {fence}: {san}");
        if expected > 0 {
            let text = format!("CPU {} may still translate", 1 - by);
            let report = san.to_string();
            assert!(report.contains(&text) && report.contains("before a barrier"), "{report}");
        }
    }
}

#[test]
fn on_aarch64_a_flush_counts_between_two_barriers() {
    for (before, after) in [(true, true), (true, false), (false, true), (false, false)] {
        let (mut ram, mut san, _) = large(Arch::aarch64_4k(39), arm);
        clear(&mut ram, &mut san);
        if before {
            san.barrier(0, Barrier::Data);
        }
        (0..2).for_each(|cpu| san.flush(&ram, cpu, Flush::page(1, 0)));
        if after {
            san.barrier(0, Barrier::Data);
        }
        san.flushes_done(&ram);
        assert_eq!(san.total(), u64::from(!(before && after)), "{before} {after}: {san}");
    }
}

#[test]
fn a_barrier_of_stores_orders_them_and_completes_no_flush() {
    for (before, after, expected) in
        [(Barrier::Stores, Barrier::Data, 0), (Barrier::Data, Barrier::Stores, 1)]
    {
        let (mut ram, mut san, _) = large(Arch::aarch64_4k(39), arm);
        clear(&mut ram, &mut san);
        san.barrier(0, before);
        (0..2).for_each(|cpu| san.flush(&ram, cpu, Flush::page(1, 0)));
        san.barrier(0, after);
        san.flushes_done(&ram);
        assert_eq!(san.total(), expected, "{before:?} {after:?}: {san}");
    }
}

#[test]
fn on_aarch64_a_root_is_used_after_a_barrier() {
    for barrier in [true, false] {
        let (ram, mut san, _) = large(Arch::aarch64_4k(39), arm);
        san.switch(&ram, 0, 0x1000, 1);
        if barrier {
            san.barrier(0, Barrier::Instruction);
        }
        assert!(san.translate(&ram, 0, 5, Access::READ.kernel()).is_ok());
        let expected = [(Kind::FlushMissing, Rule::NotSynchronized)];
        assert_eq!(found(&san), expected[usize::from(barrier)..], "{san}");
    }
}

#[test]
fn a_plain_store_loses_a_dirty_bit_if_another_cpu_may_write() {
    // Accessed, and dirty or not.
    for (bits, exchanged, cpus, expected) in
        [(0x20, false, 2, 1), (0x60, false, 2, 0), (0x20, true, 2, 0), (0x20, false, 1, 0)]
    {
        let mut m = machine(Config { cpus, accessed_dirty: true, ..Config::new(Arch::x86_64()) });
        m.map(1, VA + PAGE, (DATA + PAGE) | RW | bits);
        m.san.running_on(0);
        let at = m.path(1, VA + PAGE).last().unwrap().2;
        if exchanged {
            m.tells = false;
            m.put(at, 0);
            m.san.entry_exchanged(&m.ram, at);
        } else {
            m.put(at, 0);
        }
        assert_eq!(m.count(Kind::BitLost), expected, "{bits:#x} {exchanged} {cpus}: {}", m.san);
    }
}

#[test]
fn debts_are_bounded_and_those_that_are_not_kept_are_counted() {
    let mut m = machine(Config { debts: 3, ..Config::new(Arch::x86_64()) });
    for page in 1..10 {
        m.map(1, VA + page * PAGE, (DATA + page * PAGE) | RW);
    }
    for page in 1..10 {
        store(&mut m, VA + page * PAGE, 0);
    }
    assert_eq!(m.san.stats().debts_dropped, 6);
    assert_eq!(done(&mut m), [(Kind::FlushMissing, Rule::UnmapNotFlushed)]);
    assert!(m.san.to_string().contains("3 pages in"), "{}", m.san);
}

#[test]
fn nonsense_is_a_misuse_that_says_what_to_call() {
    let mut m = x86(1);
    let before = m.san.total();
    m.san.frame_freed(&m.ram, DATA, 0);
    m.san.frame_reused(&m.ram, u64::MAX - 10, PAGE);
    m.san.running_on(7);
    m.san.barrier(7, Barrier::Data);
    m.san.stage1_flushed(7);
    m.san.entry_exchanged(&m.ram, u64::MAX);
    m.san.frame_mapped(&m.ram, 99, VA);
    assert_eq!(m.san.total() - before, m.count(Kind::Misuse), "{}", m.san);
    assert!(m.count(Kind::Misuse) >= 5, "{}", m.san);
}

/// The kernel's half: one table below two roots, and a CPU on each.
fn shared_half() -> (Machine, u64, u64) {
    let mut m = Machine::with(Config { cpus: 2, ..Config::new(Arch::x86_64()) });
    m.tells = true;
    let va = 0xffff_8000_0000_0000;
    for space in 1..=2 {
        m.space(space);
        m.switch(space as usize - 1, space);
    }
    m.map(1, va, DATA | RW);
    let (_, root, at) = m.path(1, va)[0];
    let (half, other) = (m.get(at), m.root(2));
    m.put(other + (at - root), half);
    let leaf = m.path(2, va).last().unwrap().2;
    (m, va, leaf)
}

#[test]
fn what_several_trees_share_is_owed_by_the_cpus_of_each() {
    for flushed in [vec![], vec![0], vec![1], vec![0, 1]] {
        for walked in [None, Some(0), Some(1)] {
            let (mut m, va, leaf) = shared_half();
            if let Some(cpu) = walked {
                // The table was reached through this root last.
                assert!(m.read(cpu, va).is_some());
            }
            m.put(leaf, 0);
            for &cpu in &flushed {
                m.flush(cpu, Flush::page(cpu as u64 + 1, va));
            }
            let found = done(&mut m);
            assert_eq!(found.is_empty(), flushed.len() == 2, "{flushed:?} {walked:?}: {}", m.san);
            let text = m.san.to_string();
            for cpu in (0..2).filter(|cpu| !flushed.contains(cpu)) {
                assert!(text.contains(&format!("CPU {cpu} ")) || text.contains("CPUs 0, 1"), "{text}");
            }
        }
    }
}

#[test]
fn a_shared_table_is_freed_when_no_tree_has_it() {
    for root in 1..=2 {
        let (mut m, va, _) = shared_half();
        let (_, table, at) = m.path(root, va)[0];
        let below = m.get(at) & 0x000f_ffff_ffff_f000;
        m.put(at, 0);
        m.flush(root as usize - 1, Flush::all());
        m.san.table_freed(&m.ram, below, PAGE);
        assert!(m.count(Kind::FreeWhileLinked) > 0, "{table:#x}: {}", m.san);
    }
}

#[test]
fn tables_in_every_cycle_are_checked_in_bounded_time() {
    let mut m = Machine::with(Config { recursive: true, ..Config::new(Arch::x86_64_la57()) });
    m.tells = true;
    let tables: Vec<u64> = (0..8).map(|_| m.table(1)).collect();
    for &table in &tables {
        for index in 0..256 {
            m.put(table + index * 8, tables[index as usize % 8] | RW);
        }
    }
    for &table in &tables {
        m.san.table_freed(&m.ram, table, PAGE);
    }
    assert!(m.san.stats().hooks > 2000);
}
