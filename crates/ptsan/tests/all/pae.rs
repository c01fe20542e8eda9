//! PAE: the four root entries live in registers, and only a load of the root refreshes them.
use crate::common;

use common::{Machine, PAGE, PRESENT, RW, ready};
use ptsan::{Access, Arch, Flush, Kind, Rule};

const VA: u64 = 0x4000_0000;
const DATA: u64 = 0x80_0000;

fn mapped() -> Machine {
    let mut m = ready(Arch::x86_pae(), 1);
    m.map(1, VA, DATA | RW);
    assert_eq!(m.read(0, VA), Some(DATA));
    m
}

/// Clears everything on the way to `VA` and returns the tables (level, address) below the root.
fn unhook(m: &mut Machine) -> Vec<(u8, u64)> {
    let path = m.path(1, VA);
    for &(_, _, at) in &path {
        m.put(at, 0);
    }
    path.iter().rev().filter(|p| p.0 < 2).map(|p| (p.0, p.1)).collect()
}

#[test]
fn freeing_a_directory_is_found_unless_after_a_reload() {
    for (flush, found) in [
        (Flush::page(1, VA), true),
        (Flush::range(1, VA, VA + PAGE, PAGE), true),
        (Flush::space(1), false),
        (Flush::all(), false),
    ] {
        let mut m = mapped();
        let tables = unhook(&mut m);
        m.flush(0, flush);
        for (level, table) in tables {
            m.give_back(level, table);
        }
        if found {
            m.found_only(Kind::FreeBeforeFlush);
            assert_eq!(m.san.findings()[0].rule, Rule::HeldInTopRegister);
            assert_eq!(m.san.findings()[0].place.level, Some(1));
        } else {
            m.san.assert_clean();
        }
    }
}

#[test]
fn freeing_only_the_page_table_needs_no_reload() {
    let mut m = mapped();
    m.map(1, VA + 0x20_0000, (DATA + PAGE) | RW);
    m.unmap(1, VA);
    assert_eq!(m.read(0, VA + 0x20_0000), Some(DATA + PAGE));
    m.san.assert_clean();
}

#[test]
fn a_new_top_entry_is_not_seen_before_the_root_is_loaded_again() {
    for reload in [false, true] {
        let mut m = ready(Arch::x86_pae(), 1);
        let (directory, table) = (m.table(1), m.table(0));
        let root = m.root(1);
        m.put(table, DATA | RW);
        m.put(directory, table | RW);
        m.put(root + 8, directory | PRESENT);
        if reload {
            m.flush(0, Flush::space(1));
            assert_eq!(m.read(0, VA), Some(DATA));
            m.san.assert_clean();
        } else {
            assert!(m.access(0, VA, Access::READ).is_err());
            m.found_only(Kind::StaleUse);
            assert_eq!(m.san.findings()[0].rule, Rule::NotReloaded);
        }
    }
}

#[test]
fn small_tops_share_a_page_and_are_told_apart() {
    let mut m = Machine::new(Arch::x86_pae(), 2);
    for top in [0x9_0000, 0x9_0020, 0x9_0fe0] {
        m.san.table_allocated(&m.ram, top, 32, Some(2), ptsan::Content::Zero);
    }
    m.san.switch(&m.ram, 0, 0x9_0020, 1);
    m.san.table_freed(&m.ram, 0x9_0000, 32);
    m.san.table_freed(&m.ram, 0x9_0fe0, 32);
    m.san.assert_clean();
    m.san.table_freed(&m.ram, 0x9_0020, 32);
    m.found_only(Kind::FreeBeforeFlush);
    m.san.table_allocated(&m.ram, 0x9_0000, 4096, None, ptsan::Content::Zero);
    assert_eq!(m.count(Kind::ReuseBeforeFlush), 1, "the page that held the tops is one table now");
}
