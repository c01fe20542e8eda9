//! The answers of the code under test are compared with the tables.
use crate::common;

use common::{LARGE, Machine, PAGE, RW, ready};
use ptsan::{Arch, Expected, Fault, Kind, Perms, Rule, Session, Tree};

const VA: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;

fn mapped() -> Machine {
    let mut m = ready(Arch::x86_64(), 1);
    m.map(1, VA, DATA | RW);
    m
}

fn says(m: &mut Machine, va: u64, says: Option<Expected>) -> Option<Rule> {
    let found = m.san.total();
    let root = m.root(1);
    let _ = m.san.expect(&m.ram, Tree::Root(root), va, says);
    let _ = m.san.expect(&m.ram, Tree::Cpu(0), va, says);
    let new = m.san.total() - found;
    assert!(new == 0 || new == 2, "both trees are the same");
    (new > 0).then(|| m.san.findings().last().unwrap().rule)
}

#[test]
fn an_answer_that_the_tables_give_too_is_no_finding() {
    let mut m = mapped();
    let right = Expected::at(DATA + 5).in_page_of(PAGE).allowing(Perms::ALL);
    assert_eq!(says(&mut m, VA + 5, Some(right)), None);
    assert_eq!(says(&mut m, VA + PAGE, None), None);
    assert_eq!(says(&mut m, 1 << 50, None), None, "not canonical is not mapped");
    m.san.assert_clean();
}

#[test]
fn every_kind_of_wrong_answer_has_its_rule() {
    let mut m = mapped();
    assert_eq!(says(&mut m, VA, None), Some(Rule::OnlyTablesMapIt));
    assert_eq!(says(&mut m, VA, Some(Expected::at(DATA + PAGE))), Some(Rule::MappedElsewhere));
    assert_eq!(says(&mut m, VA, Some(Expected::at(DATA).in_page_of(2 << 20))), Some(Rule::OtherSize));
    let read = Expected::at(DATA).allowing(Perms::READ);
    assert_eq!(says(&mut m, VA, Some(read)), Some(Rule::OtherPermissions));
    assert_eq!(m.san.total(), m.count(Kind::Disagreement));
    m.found_only(Kind::Disagreement);
}

#[test]
fn a_query_that_ignores_the_present_bit_is_found() {
    let mut m = mapped();
    let at = m.path(1, VA).last().unwrap().2;
    m.put(at, DATA | RW & !1);
    assert_eq!(says(&mut m, VA, Some(Expected::at(DATA))), Some(Rule::OnlyCodeMapsIt));
}

#[test]
fn an_unmap_of_one_page_that_drops_a_large_page_is_found() {
    let mut m = ready(Arch::x86_64(), 1);
    m.map_at(1, 1, VA, 0x60_0000 | RW | LARGE);
    let neighbour = Expected::at(0x60_1000);
    assert_eq!(says(&mut m, VA + PAGE, Some(neighbour)), None);
    let at = m.path(1, VA).last().unwrap().2;
    m.put(at, 0);
    assert_eq!(says(&mut m, VA, None), None);
    assert_eq!(says(&mut m, VA + PAGE, Some(neighbour)), Some(Rule::OnlyCodeMapsIt));
}

#[test]
fn asking_a_cpu_without_a_root_is_misuse() {
    let mut m = Machine::new(Arch::x86_64(), 1);
    assert_eq!(m.san.expect(&m.ram, Tree::Cpu(0), VA, None), Err(Fault::NoRoot));
    assert_eq!(m.san.expect(&m.ram, Tree::Cpu(9), VA, None), Err(Fault::NoRoot));
    assert_eq!(m.count(Kind::Misuse), 2);
    let outside = m.san.expect(&m.ram, Tree::Root(1 << 40), VA, None);
    assert!(matches!(outside, Err(Fault::OutsideMemory { .. })), "a root that is nowhere maps nothing");
}

#[test]
fn code_silent_about_user_fetches_is_not_contradicted() {
    let mut s = Session::new(Arch::aarch64_4k(48), vec![0; 1 << 16]);
    // AP[1] and UXN are clear: EL0 fetches from the page, and does not load or store.
    let entries = [(0x1000, 0x2003), (0x2000, 0x3003), (0x3000, 0x4003), (0x4000, 0x5000 | 1 << 10 | 3)];
    entries.iter().for_each(|(table, _)| s.alloc(*table));
    entries.iter().for_each(|(entry, raw)| s.put(*entry, *raw));
    s.load(0x1000);
    let kernels = Perms::READ | Perms::WRITE | Perms::EXEC;
    for right in [kernels, kernels | Perms::USER_FETCH] {
        assert!(s.expect(0, Some(Expected::at(0x5000).allowing(right))).is_ok());
        s.sanitizer.assert_clean();
    }
    assert!(s.expect(0, Some(Expected::at(0x5000).allowing(kernels | Perms::USER))).is_ok());
    assert_eq!(s.sanitizer.findings()[0].rule, Rule::OtherPermissions);
}
