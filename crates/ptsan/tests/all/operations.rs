//! Operations that accesses on other CPUs interrupt.
use crate::common;
use common::{Machine, RW};
use ptsan::{Access, Arch, Config, Flush, Kind, Operation};

const SPACE: u64 = 1;
const VA: u64 = 0x40_0000;

/// Makes two CPUs in one space, both of which hold the page.
fn machine() -> Machine {
    let mut m = Machine::new(Arch::x86_64(), 2);
    m.space(SPACE);
    m.map(SPACE, VA, 0x9000 | RW);
    for cpu in 0..2 {
        m.switch(cpu, SPACE);
        m.san.translate(&m.ram, cpu, VA, Access::WRITE).unwrap();
    }
    m
}

/// Clears the entry of the page without telling.
fn clear(m: &mut Machine) {
    let (_, _, at) = *m.path(SPACE, VA).last().unwrap();
    m.put(at, 0);
}

/// An unmap that is under way: CPU 1 has used the page after its entry was cleared, both CPUs have
/// flushed it, and it has come back. CPU 1 holds the new translation.
fn page_came_back() -> (Machine, Operation) {
    let mut m = machine();
    let unmap = m.san.operation_begins();
    clear(&mut m);
    m.san.translate(&m.ram, 1, VA, Access::READ).unwrap();
    for cpu in 0..2 {
        m.san.flush(&m.ram, cpu, Flush::page(SPACE, VA));
    }
    m.map(SPACE, VA, 0x9000 | RW);
    m.san.probe_walk(&m.ram, 1, VA);
    (m, unmap)
}

#[test]
fn an_old_translation_may_be_used_until_the_operation_ends() {
    let mut m = machine();
    let unmap = m.san.operation_begins();
    clear(&mut m);
    for cpu in 0..2 {
        m.san.translate(&m.ram, cpu, VA, Access::READ).unwrap();
        m.san.flush(&m.ram, cpu, Flush::page(SPACE, VA));
    }
    m.san.operation_ends(&m.ram, unmap);
    assert_eq!(m.san.operations(), 0);
    m.san.assert_clean();
    assert!(m.san.translate(&m.ram, 1, VA, Access::READ).is_err());
    m.san.assert_clean();
}

#[test]
fn what_is_held_when_the_operation_ends_is_stale() {
    let mut m = machine();
    let unmap = m.san.operation_begins();
    clear(&mut m);
    m.san.translate(&m.ram, 1, VA, Access::READ).unwrap();
    m.san.flush(&m.ram, 0, Flush::page(SPACE, VA));
    assert_eq!(m.san.total(), 0, "the operation is still under way");
    m.san.operation_ends(&m.ram, unmap);
    assert_eq!(m.san.count(Kind::StaleUse), 1);
    let finding = &m.san.findings()[0];
    assert_eq!((finding.place.cpu, finding.place.va), (Some(1), Some(VA)));
    assert!(finding.note.contains("held still when the operation ended"), "{finding}");
}

#[test]
fn an_access_after_the_operation_is_no_longer_excused() {
    let mut m = machine();
    let unmap = m.san.operation_begins();
    clear(&mut m);
    m.san.operation_ends(&m.ram, unmap);
    assert_eq!(m.san.total(), 0, "no CPU has used it");
    m.san.translate(&m.ram, 1, VA, Access::READ).unwrap();
    assert_eq!(m.san.count(Kind::StaleUse), 1);
}

#[test]
fn every_operation_that_was_under_way_is_waited_for() {
    let mut m = machine();
    let one = m.san.operation_begins();
    let other = m.san.operation_begins();
    clear(&mut m);
    m.san.translate(&m.ram, 1, VA, Access::READ).unwrap();
    m.san.operation_ends(&m.ram, one);
    assert_eq!(m.san.total(), 0, "it may have been the other that cleared the entry");
    // An operation that began later does not excuse an earlier use.
    let later = m.san.operation_begins();
    m.san.operation_ends(&m.ram, other);
    assert_eq!(m.san.count(Kind::StaleUse), 1);
    m.san.operation_ends(&m.ram, later);
}

#[test]
fn translations_after_an_access_are_due_in_later_operations() {
    for flushed in [true, false] {
        // The page comes back and goes again before the first operation ends.
        let (mut m, unmap) = page_came_back();
        let again = m.san.operation_begins();
        clear(&mut m);
        m.san.operation_ends(&m.ram, unmap);
        m.san.assert_clean();
        if flushed {
            m.san.flush(&m.ram, 1, Flush::page(SPACE, VA));
        }
        m.san.operation_ends(&m.ram, again);
        assert_eq!(m.san.count(Kind::StaleUse), u64::from(!flushed), "{}", m.san);
    }
}

#[test]
fn a_cpu_that_has_left_the_space_holds_nothing_against_it() {
    let mut m = machine();
    let unmap = m.san.operation_begins();
    clear(&mut m);
    m.san.translate(&m.ram, 1, VA, Access::READ).unwrap();
    m.san.leave(1);
    m.san.flush(&m.ram, 0, Flush::page(SPACE, VA));
    m.san.operation_ends(&m.ram, unmap);
    m.san.assert_clean();
}

#[test]
fn what_memory_gives_again_is_suspected_no_longer() {
    for flushed in [true, false] {
        let (mut m, unmap) = page_came_back();
        let elsewhere = m.san.operation_begins();
        m.san.operation_ends(&m.ram, unmap);
        // The new translation is right up to here: what ends meanwhile owes no flush of it.
        let again = m.san.operation_begins();
        clear(&mut m);
        m.san.operation_ends(&m.ram, elsewhere);
        m.san.assert_clean();
        if flushed {
            m.san.flush(&m.ram, 1, Flush::page(SPACE, VA));
        }
        m.san.operation_ends(&m.ram, again);
        let used = m.san.translate(&m.ram, 1, VA, Access::READ).is_ok();
        assert_eq!((used, m.san.count(Kind::StaleUse)), (!flushed, u64::from(!flushed)), "{}", m.san);
    }
}

#[test]
fn a_lazy_cpu_is_flushed_when_it_runs_in_the_space_again() {
    for flushed in [true, false] {
        let mut m = machine();
        let unmap = m.san.operation_begins();
        clear(&mut m);
        m.san.translate(&m.ram, 1, VA, Access::READ).unwrap();
        m.san.lazy(1);
        m.san.flush(&m.ram, 0, Flush::page(SPACE, VA));
        m.san.operation_ends(&m.ram, unmap);
        m.san.assert_clean();
        m.san.resume(1);
        if flushed {
            m.san.flush(&m.ram, 1, Flush::page(SPACE, VA));
        }
        let used = m.san.translate(&m.ram, 1, VA, Access::READ).is_ok();
        assert_eq!((used, m.san.count(Kind::StaleUse)), (!flushed, u64::from(!flushed)), "{}", m.san);
    }
}

#[test]
fn an_operation_ends_once() {
    let mut m = machine();
    let operation = m.san.operation_begins();
    m.san.operation_ends(&m.ram, operation);
    m.san.operation_ends(&m.ram, operation);
    assert_eq!(m.san.count(Kind::Misuse), 1);
}

/// A CPU that comes back to a space must have flushed pages that were unmapped meanwhile. A flush
/// for a page unmapped after it came back, or by an operation under way, is due when the operation
/// ends.
#[test]
fn a_returned_cpu_may_use_pages_that_are_being_unmapped() {
    for (unmapped_before, flushes) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut m = Machine::with(Config { cpus: 2, asids: true, ..Config::new(Arch::x86_64()) });
        for space in [SPACE, 2] {
            m.space(space);
        }
        m.map(SPACE, VA, 0x9000 | RW);
        let entry = m.path(SPACE, VA).last().unwrap().2;
        for cpu in 0..2 {
            m.switch(cpu, SPACE);
            m.san.entry_written(&m.ram, entry);
            m.san.translate(&m.ram, cpu, VA, Access::WRITE).unwrap();
        }
        m.switch(1, 2);
        let unmap = |m: &mut Machine| {
            let operation = m.san.operation_begins();
            m.put(entry, 0);
            m.san.entry_written(&m.ram, entry);
            operation
        };
        let early = unmapped_before.then(|| unmap(&mut m));
        m.switch(1, SPACE);
        let operation = early.unwrap_or_else(|| unmap(&mut m));
        m.san.translate(&m.ram, 1, VA, Access::READ).expect("the CPU holds it still");
        m.san.assert_clean();
        for cpu in 0..=usize::from(flushes) {
            m.san.flush(&m.ram, cpu, Flush::page(SPACE, VA));
        }
        m.san.operation_ends(&m.ram, operation);
        assert_eq!(m.san.total() > 0, !flushes, "{unmapped_before}: {}", m.san);
    }
}
