//! Every kind of finding fires on its bug and is silent on the same code done right.
mod common;

use common::{GLOBAL, LARGE, Machine, PAGE, PRESENT, RO, RW, ready};
use ptsan::{Access, Arch, Config, Content, Fault, Flush, Kind, Rule};

const VA: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;

fn x86() -> Arch {
    Arch::x86_64()
}

/// Space 1 on `cpus` CPUs, `VA` mapped to `DATA` and read by all of them.
fn mapped(cpus: usize) -> Machine {
    let mut m = ready(x86(), cpus);
    m.map(1, VA, DATA | RW);
    for cpu in 0..cpus {
        assert_eq!(m.read(cpu, VA), Some(DATA));
    }
    m
}

/// The physical address of the entry of `VA` at a level, and the table that holds it.
fn entry(m: &Machine, level: u8) -> (u64, u64) {
    let (_, table, at) = m.path(1, VA).into_iter().find(|p| p.0 == level).unwrap();
    (at, table)
}

#[test]
fn using_an_unmapped_page_before_its_flush_is_found() {
    for flush in [None, Some(Flush::page(1, VA)), Some(Flush::space(1)), Some(Flush::all())] {
        let mut m = mapped(1);
        let (at, _) = entry(&m, 0);
        m.put(at, 0);
        if let Some(flush) = flush {
            m.flush(0, flush);
            assert_eq!(m.access(0, VA, Access::READ), Err(Fault::NotPresent { level: 0 }));
            m.san.assert_clean();
        } else {
            assert_eq!(m.read(0, VA), Some(DATA), "hardware answers from the TLB");
            m.found_only(Kind::StaleUse);
            assert_eq!(m.san.findings()[0].rule, Rule::Unmapped);
        }
    }
}

#[test]
fn using_a_remapped_page_before_its_flush_is_found() {
    let mut m = mapped(2);
    let (at, _) = entry(&m, 0);
    m.put(at, (DATA + PAGE) | RW);
    m.flush(0, Flush::page(1, VA));
    assert_eq!(m.read(0, VA), Some(DATA + PAGE));
    m.san.assert_clean();
    assert_eq!(m.read(1, VA), Some(DATA), "CPU 1 missed the shootdown");
    m.found_only(Kind::StaleUse);
    assert_eq!((m.san.findings()[0].rule, m.san.findings()[0].place.cpu), (Rule::Remapped, Some(1)));
}

#[test]
fn only_an_access_that_memory_forbids_makes_a_removed_permission_a_finding() {
    let mut m = mapped(1);
    let (at, _) = entry(&m, 0);
    m.access(0, VA, Access::WRITE).unwrap();
    m.put(at, DATA | RO);
    m.access(0, VA, Access::READ).unwrap();
    m.san.assert_clean();
    m.access(0, VA, Access::WRITE).unwrap();
    m.found_only(Kind::StaleUse);
    assert_eq!(m.san.findings()[0].rule, Rule::PermissionRemoved);
}

#[test]
fn an_added_permission_needs_no_flush() {
    let mut m = ready(x86(), 1);
    m.map(1, VA, DATA | RO);
    m.read(0, VA).unwrap();
    assert_eq!(m.access(0, VA, Access::WRITE), Err(Fault::Permission));
    let (at, _) = entry(&m, 0);
    m.read(0, VA).unwrap();
    m.put(at, DATA | RW);
    m.access(0, VA, Access::WRITE).unwrap();
    assert!(m.san.stats().spurious_faults > 0);
    m.san.assert_clean();
}

#[test]
fn a_permission_removed_in_an_upper_table_counts_too() {
    let mut m = mapped(1);
    let (at, _) = entry(&m, 2);
    let old = m.get(at);
    m.put(at, old & !common::WRITE);
    m.access(0, VA, Access::WRITE).unwrap();
    m.found_only(Kind::StaleUse);
}

#[test]
fn a_walk_through_a_replaced_table_is_found_unless_flushed() {
    for flush in [false, true] {
        let mut m = mapped(1);
        let new = m.table(0);
        m.put(new + 8, (DATA + PAGE) | RW);
        let (at, _) = entry(&m, 1);
        m.put(at, new | RW);
        if flush {
            m.flush(0, Flush::page(1, VA));
        }
        // The neighbour is mapped by the new table only; the old one is still in the paging-structure cache. A fault
        // drops what it used, so this is legal either way ...
        assert_eq!(m.read(0, VA + PAGE), Some(DATA + PAGE));
        m.san.assert_clean();
        // ... but what the TLB holds of the old table is not.
        m.read(0, VA);
        assert_eq!(m.count(Kind::StaleUse), u64::from(!flush));
    }
}

#[test]
fn a_table_freed_before_the_flush_is_found() {
    for flush in [false, true] {
        let mut m = mapped(2);
        let (_, table) = entry(&m, 0);
        let (at, _) = entry(&m, 1);
        let (leaf, _) = entry(&m, 0);
        m.put(leaf, 0);
        m.put(at, 0);
        m.flush(0, Flush::page(1, VA));
        if flush {
            m.flush(1, Flush::page(1, VA));
        }
        m.give_back(0, table);
        if flush {
            m.san.assert_clean();
        } else {
            m.found_only(Kind::FreeBeforeFlush);
            let f = &m.san.findings()[0];
            assert_eq!(
                (f.rule, f.place.cpu, f.place.frame),
                (Rule::HeldInStructureCache, Some(1), Some(table))
            );
            assert!(f.to_string().contains("walked by CPU 1"), "{f}");
        }
    }
}

#[test]
fn any_page_flush_drops_paging_structures_on_x86_but_not_the_translations_of_other_pages() {
    let mut m = mapped(1);
    let (_, table) = entry(&m, 0);
    let (at, _) = entry(&m, 1);
    m.put(at, 0);
    m.flush(0, Flush::page(1, 0x7000_0000));
    m.give_back(0, table);
    m.found_only(Kind::FreeBeforeFlush);
    assert_eq!(m.san.findings()[0].rule, Rule::HeldInTlb);
}

#[test]
fn translations_that_another_table_still_gives_do_not_hold_the_old_table() {
    let mut m = mapped(1);
    let (_, old) = entry(&m, 0);
    let (at, _) = entry(&m, 1);
    let new = m.table(0);
    for offset in (0..PAGE).step_by(8) {
        let copied = m.get(old + offset);
        m.put(new + offset, copied);
        m.put(old + offset, 0);
    }
    m.put(at, new | RW);
    m.flush(0, Flush::page(1, 0x7000_0000));
    m.give_back(0, old);
    m.read(0, VA);
    m.san.assert_clean();
}

#[test]
fn a_lazy_cpu_that_is_not_flushed_is_found() {
    for flush in [false, true] {
        let mut m = mapped(2);
        m.san.lazy(1);
        if !flush {
            m.deaf = Some(1);
        }
        m.unmap(1, VA);
        if flush {
            m.san.resume(1);
            assert_eq!(m.read(1, VA), None);
            m.san.assert_clean();
        } else {
            m.found_only(Kind::FreeBeforeFlush);
            assert!(m.san.to_string().contains("CPU 1 is lazy"), "{}", m.san);
        }
    }
}

#[test]
fn a_speculative_walk_alone_makes_a_cpu_a_holder() {
    let mut m = ready(x86(), 2);
    m.map(1, VA, DATA | RW);
    m.probe(1, VA);
    m.deaf = Some(1);
    m.unmap(1, VA);
    m.found_only(Kind::FreeBeforeFlush);
}

#[test]
fn eager_walkers_find_the_shootdown_that_an_idle_cpu_missed() {
    for eager_walkers in [false, true] {
        let mut m = Machine::with(Config { cpus: 2, eager_walkers, ..Config::new(x86()) });
        m.space(1);
        m.switch(0, 1);
        m.switch(1, 1);
        m.san.lazy(1);
        m.map(1, VA, DATA | RW);
        m.read(0, VA);
        m.deaf = Some(1);
        m.unmap(1, VA);
        assert_eq!(m.count(Kind::FreeBeforeFlush) > 0, eager_walkers);
    }
}

#[test]
fn on_riscv_a_flush_by_address_does_not_let_go_of_tables() {
    let leaf = |phys: u64| phys >> 2 | 0b1_1111;
    let link = |phys: u64| phys >> 2 | 1;
    for (flush, found) in [(Flush::page(1, VA), 2), (Flush::space(1), 0)] {
        let mut m = ready(Arch::riscv_sv39(), 1);
        let (root, directory, table) = (m.root(1), m.table(1), m.table(0));
        m.put(root, link(directory));
        m.put(directory + 16, link(table));
        m.put(table, leaf(DATA));
        assert_eq!(m.read(0, VA), Some(DATA));
        m.put(table, 0);
        m.put(directory + 16, 0);
        m.put(root, 0);
        m.flush(0, flush);
        m.give_back(0, table);
        m.give_back(1, directory);
        assert_eq!(m.count(Kind::FreeBeforeFlush), found, "{}", m.san);
    }
}

#[test]
fn a_cpu_that_left_the_space_holds_nothing() {
    let mut m = mapped(2);
    m.deaf = Some(1);
    m.leave(1);
    m.unmap(1, VA);
    m.san.assert_clean();
}

#[test]
fn a_root_freed_while_loaded_is_found() {
    let mut m = Machine::new(x86(), 1);
    let root = m.space(1);
    m.switch(0, 1);
    m.give_back(3, root);
    m.found_only(Kind::FreeBeforeFlush);
    assert_eq!(m.san.findings()[0].rule, Rule::HeldAsRoot);

    let mut m = Machine::new(x86(), 1);
    let root = m.space(1);
    m.switch(0, 1);
    m.leave(0);
    m.give_back(3, root);
    m.san.assert_clean();
}

#[test]
fn handing_out_a_table_that_a_cpu_still_holds_is_its_own_finding() {
    for flush in [false, true] {
        let mut m = mapped(1);
        m.deaf = Some(0);
        m.unmap(1, VA);
        let early = m.count(Kind::FreeBeforeFlush);
        assert!(early > 0);
        if flush {
            m.flush(0, Flush::all());
        }
        m.table(0);
        assert_eq!(m.count(Kind::ReuseBeforeFlush), u64::from(!flush));
    }
}

#[test]
fn reuse_is_found_when_the_page_is_cut_into_tables_of_another_size() {
    let mut m = mapped(1);
    m.deaf = Some(0);
    let (_, table) = entry(&m, 0);
    m.unmap(1, VA);
    m.san.table_allocated(&m.ram, table + 2048, 2048, None, Content::Zero);
    assert_eq!(m.count(Kind::ReuseBeforeFlush), 1);
}

#[test]
fn freeing_a_table_that_is_still_linked_is_found() {
    for clear in [false, true] {
        let mut m = mapped(1);
        let (_, table) = entry(&m, 0);
        let (at, _) = entry(&m, 1);
        let (leaf, _) = entry(&m, 0);
        m.put(leaf, 0);
        if clear {
            m.put(at, 0);
        }
        m.flush(0, Flush::page(1, VA));
        m.give_back(0, table);
        if clear {
            m.san.assert_clean();
        } else {
            m.found_only(Kind::FreeWhileLinked);
            m.probe(0, VA);
            assert_eq!(m.count(Kind::UseAfterFree), 1, "and a walk then goes through it");
        }
    }
}

#[test]
fn a_tree_that_no_cpu_can_reach_may_be_freed_without_clearing_it() {
    let mut m = mapped(1);
    let path = m.path(1, VA);
    m.leave(0);
    for (level, table, _) in path {
        m.give_back(level, table);
    }
    m.san.assert_clean();
}

#[test]
fn a_frame_promised_as_zero_is_checked() {
    let mut m = Machine::new(x86(), 1);
    m.san.table_allocated(&m.ram, 0x9_0000, PAGE, None, Content::Zero);
    m.san.assert_clean();
    m.put(0x9_1ff8, 1);
    m.san.table_allocated(&m.ram, 0x9_1000, PAGE, None, Content::Zero);
    m.found_only(Kind::NotZero);
}

#[test]
fn a_table_that_was_never_announced_is_found() {
    let mut m = mapped(1);
    let (at, _) = entry(&m, 1);
    m.put(at + 8, 0x9_0000 | RW);
    m.probe(0, VA + 0x20_0000);
    m.found_only(Kind::UnknownTable);

    let mut m = mapped(1);
    m.san.table_allocated(&m.ram, 0x9_0000, PAGE, None, Content::Zero);
    m.put(at + 8, 0x9_0000 | RW);
    m.probe(0, VA + 0x20_0000);
    m.san.assert_clean();
}

#[test]
fn an_entry_that_points_outside_memory_is_found() {
    let mut m = mapped(1);
    let (at, _) = entry(&m, 1);
    m.put(at + 8, 0x7fff_f000 | RW);
    let fault = m.access(0, VA + 0x20_0000, Access::READ);
    assert_eq!(fault, Err(Fault::OutsideMemory { level: 0 }));
    m.found_only(Kind::OutsideMemory);
}

#[test]
fn reserved_bits_are_found() {
    let mut m = mapped(1);
    let (at, _) = entry(&m, 1);
    m.put(at + 8, 0x20_1000 | RW | LARGE | (1 << 13));
    let fault = m.access(0, VA + 0x20_0000, Access::READ);
    assert_eq!(fault, Err(Fault::Malformed { level: 1 }));
    m.found_only(Kind::MalformedEntry);
}

#[test]
fn a_table_that_points_at_itself_is_found_unless_that_is_the_design() {
    for recursive in [false, true] {
        let mut m = Machine::with(Config { recursive, ..Config::new(x86()) });
        let root = m.space(1);
        m.switch(0, 1);
        m.put(root + 511 * 8, root | PRESENT);
        m.probe(0, 0xffff_ffff_ffff_f000);
        if recursive {
            m.san.assert_clean();
        } else {
            m.found_only(Kind::WalkLoop);
        }
    }
}

#[test]
fn double_and_foreign_frees_and_leaks_are_found() {
    let mut m = mapped(1);
    m.destroy(1);
    m.san.finish();
    m.san.assert_clean();

    let mut m = Machine::new(x86(), 1);
    let table = m.table(0);
    m.give_back(0, table);
    m.give_back(0, table);
    m.found_only(Kind::DoubleFree);

    let mut m = Machine::new(x86(), 1);
    m.give_back(0, 0x5000);
    m.found_only(Kind::ForeignFree);
    let table = m.table(0);
    m.san.table_freed(&m.ram, table + 8, PAGE);
    m.san.table_freed(&m.ram, table, 2 * PAGE);
    assert_eq!(m.count(Kind::ForeignFree), 3);
    m.san.finish();
    assert_eq!(m.count(Kind::Leak), 0, "the wrong size was freed all the same");

    let mut m = Machine::new(x86(), 1);
    m.table(0);
    m.san.finish();
    m.found_only(Kind::Leak);
}

#[test]
fn a_frame_allocated_twice_is_found() {
    let mut m = Machine::new(x86(), 1);
    let table = m.table(0);
    m.san.table_allocated(&m.ram, table, PAGE, None, Content::Zero);
    m.found_only(Kind::DoubleAllocate);
    assert_eq!(m.san.live_tables(), 1);
    m.san.table_allocated(&m.ram, table - PAGE, 4 * PAGE, None, Content::Unchecked);
    assert_eq!(m.count(Kind::DoubleAllocate), 2, "an overlap counts");
}

#[test]
fn several_tables_may_share_one_allocation() {
    let mut m = Machine::new(x86(), 1);
    m.san.table_allocated(&m.ram, 0x8_0000, 4 * PAGE, None, Content::Zero);
    for (at, to) in [(0x8_0000, 0x8_1000), (0x8_1000, 0x8_2000), (0x8_2000, 0x8_3000), (0x8_3000, DATA)] {
        m.put(at, to | RW);
    }
    // All four tables belong to one announced block, which therefore has no level of its own.
    m.san.switch(&m.ram, 0, 0x8_0000, 1);
    assert_eq!(m.read(0, 0), Some(DATA));
    m.san.assert_clean();
    m.san.table_freed(&m.ram, 0x8_0000, 4 * PAGE);
    assert_eq!(m.count(Kind::FreeBeforeFlush), 1);
}

#[test]
fn wrong_arguments_are_findings_and_never_panics() {
    let mut m = ready(x86(), 1);
    let mut expected = 0;
    let mut misuse = |m: &Machine| {
        expected += 1;
        assert_eq!(m.count(Kind::Misuse), expected, "{}", m.san);
    };
    m.san.lazy(7);
    misuse(&m);
    assert_eq!(m.read(7, VA), None);
    misuse(&m);
    m.probe(7, VA);
    misuse(&m);
    m.san.switch(&m.ram, 7, 0, 1);
    misuse(&m);
    m.flush(7, Flush::all());
    misuse(&m);
    m.flush(0, Flush::space(99));
    misuse(&m);
    m.flush(0, Flush::range(1, 0x1000, 0, PAGE));
    misuse(&m);
    m.flush(0, Flush::range(1, 0, 0x1000, 0));
    misuse(&m);
    m.san.table_allocated(&m.ram, 0, 0, None, Content::Zero);
    misuse(&m);
    m.san.table_allocated(&m.ram, u64::MAX, 4096, None, Content::Zero);
    misuse(&m);
    m.san.table_allocated(&m.ram, 0, 4096, Some(9), Content::Zero);
    misuse(&m);
    m.san.table_linked(&m.ram, 0, u64::MAX, 0);
    misuse(&m);
    m.san.space_destroyed(1);
    misuse(&m);
    m.san.leave(0);
    m.san.resume(0);
    misuse(&m);
    assert_eq!(m.access(0, VA, Access::READ), Err(Fault::NoRoot));
    misuse(&m);
    m.san.switch(&m.ram, 0, 0x7fff_f000, 1);
    misuse(&m);
    m.san.switch(&m.ram, 0, u64::MAX, 1);
    misuse(&m);
    m.probe(0, VA);
    m.flush(0, Flush::range(1, 0, u64::MAX, 1));
    m.san.table_freed(&m.ram, u64::MAX, u64::MAX);
    m.san.table_freed(&m.ram, 0, 0);
    assert_eq!(m.access(0, 1 << 50, Access::READ), Err(Fault::NonCanonical));

    let mut none = Machine::new(Arch { levels: Vec::new(), ..x86() }, 1);
    none.san.switch(&none.ram, 0, 0, 1);
    none.san.table_allocated(&none.ram, 0x1000, 4096, None, Content::Unknown);
    none.san.table_linked(&none.ram, 0x1000, 1, 0x2000);
    none.san.table_freed(&none.ram, 0x1000, 4096);
    assert!(none.count(Kind::Misuse) >= 2);
}

#[test]
#[should_panic(expected = "stale-use")]
fn assert_clean_panics_with_the_report() {
    let mut m = mapped(1);
    let (at, _) = entry(&m, 0);
    m.put(at, 0);
    m.read(0, VA);
    m.san.assert_clean();
}

#[test]
fn findings_are_counted_exactly_and_kept_once() {
    let mut m = Machine::with(Config { keep: 2, ..Config::new(x86()) });
    m.space(1);
    m.switch(0, 1);
    for page in 0..4 {
        m.map(1, VA + page * PAGE, (DATA + page * PAGE) | RW);
        m.read(0, VA + page * PAGE);
    }
    for page in 0..4 {
        let at = m.path(1, VA + page * PAGE).last().unwrap().2;
        m.put(at, 0);
    }
    for _ in 0..5 {
        for page in 0..4 {
            m.read(0, VA + page * PAGE);
        }
    }
    assert_eq!(m.count(Kind::StaleUse), 20);
    assert_eq!(m.san.findings().iter().map(|f| f.count).collect::<Vec<_>>(), [5, 5]);
    assert!(m.san.to_string().contains("10 more are counted above"), "{}", m.san);
}

#[test]
fn global_translations_survive_a_reload_and_go_by_address_or_with_everything() {
    for (flush, stale) in [
        (Flush::space(1), true),
        (Flush::page(1, VA), false),
        (Flush::all(), false),
        (Flush::range(1, VA, VA + PAGE, PAGE), false),
    ] {
        let mut m = ready(x86(), 1);
        m.map(1, VA, DATA | RW | GLOBAL);
        assert!(m.access(0, VA, Access::READ).unwrap().global);
        let at = m.path(1, VA).last().unwrap().2;
        m.put(at, 0);
        m.flush(0, flush);
        m.switch(0, 1);
        assert_eq!(m.read(0, VA).is_some(), stale, "{flush}");
        assert_eq!(m.count(Kind::StaleUse), u64::from(stale));
    }
}

#[test]
fn a_large_page_goes_with_a_flush_of_any_address_in_it() {
    let mut m = ready(x86(), 1);
    m.map_at(1, 1, VA, 0x60_0000 | RW | LARGE);
    assert_eq!(m.read(0, VA + 0x12_3456), Some(0x72_3456));
    let at = m.path(1, VA).last().unwrap().2;
    m.put(at, 0);
    m.flush(0, Flush::page(1, VA + 0x1f_f000));
    assert_eq!(m.read(0, VA), None);
    m.san.assert_clean();
}

#[test]
fn a_stride_wider_than_the_pages_misses_some() {
    for (stride, stale) in [(PAGE, 0), (0x20_0000, 3)] {
        let mut m = ready(x86(), 1);
        for page in 0..4 {
            m.map(1, VA + page * PAGE, (DATA + page * PAGE) | RW);
            m.read(0, VA + page * PAGE);
        }
        for page in 0..4 {
            let at = m.path(1, VA + page * PAGE).last().unwrap().2;
            m.put(at, 0);
        }
        m.flush(0, Flush::range(1, VA, VA + 0x20_0000, stride));
        for page in 0..4 {
            m.read(0, VA + page * PAGE);
        }
        assert_eq!(m.count(Kind::StaleUse), stale);
    }
}

#[test]
fn a_long_range_flush_lets_go_of_tables_as_a_page_flush_does() {
    use ptsan::StructureScope::{AnyInvalidation, Tagged, WholeSpace};
    // The range is far longer than what is cached, and in the second case elsewhere.
    for (structures, start, found) in [
        (AnyInvalidation, 0, 0),
        (AnyInvalidation, 1 << 32, 1),
        (Tagged, 0, 0),
        (Tagged, 1 << 32, 1),
        (WholeSpace, 0, 1),
    ] {
        let mut m = ready(Arch { structures, ..x86() }, 1);
        m.map(1, VA, DATA | RW);
        m.read(0, VA);
        let (_, table) = entry(&m, 0);
        let (at, _) = entry(&m, 1);
        m.put(table, 0);
        m.put(at, 0);
        m.flush(0, Flush::range(1, start, start + (1 << 30), PAGE));
        m.give_back(0, table);
        assert_eq!(m.count(Kind::FreeBeforeFlush), found, "{structures:?} {start:#x}");
        if found == 1 {
            let held_in_tlb = structures == AnyInvalidation;
            assert_eq!(m.san.findings()[0].rule == Rule::HeldInTlb, held_in_tlb, "{}", m.san);
        }
    }
}

#[test]
fn a_global_translation_that_outlived_a_reload_still_holds_its_table() {
    for (flush, found) in [(Flush::space(1), 1), (Flush::page(1, VA), 0), (Flush::all(), 0)] {
        let mut m = ready(x86(), 1);
        m.map(1, VA, DATA | RW | GLOBAL);
        m.read(0, VA);
        let (_, table) = entry(&m, 0);
        let (at, _) = entry(&m, 1);
        m.put(table, 0);
        m.put(at, 0);
        m.flush(0, flush);
        m.give_back(0, table);
        assert_eq!(m.count(Kind::FreeBeforeFlush), found, "{flush}");
    }
}

#[test]
fn an_added_permission_on_a_global_page_needs_no_flush() {
    let mut m = ready(x86(), 1);
    m.map(1, VA, DATA | RO | GLOBAL);
    m.read(0, VA).unwrap();
    let (at, _) = entry(&m, 0);
    m.put(at, DATA | RW | GLOBAL);
    m.access(0, VA, Access::WRITE).unwrap();
    assert!(m.access(0, VA, Access::WRITE).unwrap().perms.contains(ptsan::Perms::WRITE));
    assert_eq!(m.san.stats().spurious_faults, 1, "the old translation is gone");
    m.san.assert_clean();
}

#[test]
fn no_cpu_of_many_is_forgotten() {
    let cpus = 100;
    for deaf in [0, 17, 99] {
        let mut m = mapped(cpus);
        // Holders that no longer count make room for those that do.
        for cpu in 0..cpus {
            m.switch(cpu, 1);
            m.read(cpu, VA);
        }
        m.deaf = Some(deaf);
        m.unmap(1, VA);
        m.found_only(Kind::FreeBeforeFlush);
        assert!(m.san.findings().iter().all(|f| f.place.cpu == Some(deaf)), "{}", m.san);
    }
}

#[test]
fn without_asids_a_switch_drops_everything_and_with_them_it_keeps_it() {
    for asids in [false, true] {
        let mut m = Machine::with(Config { asids, ..Config::new(x86()) });
        m.space(1);
        m.space(2);
        m.switch(0, 1);
        m.map(1, VA, DATA | RW);
        m.read(0, VA);
        m.switch(0, 2);
        assert_eq!(m.read(0, VA), None);
        let at = m.path(1, VA).last().unwrap().2;
        m.put(at, 0);
        m.switch(0, 1);
        assert_eq!(m.read(0, VA).is_some(), asids);
        assert_eq!(m.count(Kind::StaleUse), u64::from(asids));
    }
}

#[test]
fn an_asid_given_to_another_root_without_a_flush_is_found() {
    for flush in [false, true] {
        let mut m = Machine::with(Config { asids: true, ..Config::new(x86()) });
        m.space(1);
        m.switch(0, 1);
        m.map(1, VA, DATA | RW);
        m.read(0, VA);
        let other = m.table(3);
        m.san.switch(&m.ram, 0, other, 1);
        if flush {
            m.flush(0, Flush::space(1));
        }
        assert_eq!(m.read(0, VA).is_some(), !flush);
        assert_eq!(m.count(Kind::StaleUse), u64::from(!flush));
    }
}

#[test]
fn leaf_only_flushes_spare_paging_structures_where_the_hardware_can() {
    use ptsan::StructureScope::{AnyInvalidation, None, Tagged, WholeSpace};
    for (structures, found) in [(AnyInvalidation, 0), (Tagged, 1), (WholeSpace, 1), (None, 0)] {
        let mut m = ready(Arch { structures, ..x86() }, 1);
        m.map(1, VA, DATA | RW);
        m.read(0, VA);
        let (_, table) = entry(&m, 0);
        let (at, _) = entry(&m, 1);
        m.put(table, 0);
        m.put(at, 0);
        m.flush(0, Flush::page(1, VA).leaf_only());
        m.give_back(0, table);
        assert_eq!(m.count(Kind::FreeBeforeFlush), found, "{structures:?}");
    }
}
