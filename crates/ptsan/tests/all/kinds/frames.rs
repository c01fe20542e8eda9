//! Frames that are no tables, or are announced, linked or freed wrongly.
use crate::common::{LARGE, Machine, PAGE, PRESENT, RW};
use crate::kinds::{DATA, VA, entry, mapped, x86};
use ptsan::{Access, Config, Content, Fault, Kind};

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
fn a_table_that_points_at_itself_is_found_unless_intended() {
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
