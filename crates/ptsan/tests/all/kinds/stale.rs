//! Answers that memory no longer gives, and answers that are legal.
use crate::common::{GLOBAL, Machine, PAGE, RO, RW, ready};
use crate::kinds::{DATA, VA, entry, mapped, x86};
use ptsan::{Access, Config, Fault, Flush, Kind, Rule};

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
fn a_removed_permission_is_found_only_at_a_forbidden_access() {
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
    m.put(at, old & !crate::common::WRITE);
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
        // The neighbour is mapped by the new table only; the old one is still in the
        // paging-structure cache. A fault drops the entries that it used, so this is legal either
        // way ...
        assert_eq!(m.read(0, VA + PAGE), Some(DATA + PAGE));
        m.san.assert_clean();
        // ... but a translation that the TLB holds of the old table is not.
        m.read(0, VA);
        assert_eq!(m.count(Kind::StaleUse), u64::from(!flush));
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
fn a_switch_drops_everything_without_asids_alone() {
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
