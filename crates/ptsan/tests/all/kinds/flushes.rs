//! Each kind of flush drops the entries that it covers, and spares others.
use crate::common::{GLOBAL, LARGE, PAGE, RW, ready};
use crate::kinds::{DATA, VA, entry, mapped, x86};
use ptsan::{Access, Arch, Flush, Kind, Rule};

#[test]
fn a_page_flush_on_x86_drops_paging_structures_and_spares_pages() {
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
fn global_translations_survive_reloads_and_go_by_address() {
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
    // The range is far longer than the cached part, and in the second case elsewhere.
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
fn a_global_translation_after_a_reload_holds_its_table() {
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
fn leaf_only_flushes_spare_paging_structures_where_possible() {
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
