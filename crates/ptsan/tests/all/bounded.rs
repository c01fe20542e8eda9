//! Caches of a bounded size.
use crate::common;

use common::{Machine, PAGE, RW};
use ptsan::{Access, Adversary, Arch, Config, Kind};

const VA: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;
const PAGES: u64 = 300;

fn machine(tlb: usize) -> Machine {
    let mut m = Machine::with(Config { tlb, ..Config::new(Arch::x86_64()) });
    m.space(1);
    m.switch(0, 1);
    for page in 0..PAGES {
        m.map(1, VA + page * PAGE, (DATA + page * PAGE) | RW);
        assert!(m.read(0, VA + page * PAGE).is_some());
    }
    m
}

fn held(m: &mut Machine) -> u64 {
    let mut from_tlb = |page| m.access(0, VA + page * PAGE, Access::READ).is_ok_and(|t| t.from_tlb);
    // Each that is not held evicts one that is, so that the walk goes backwards.
    (0..PAGES).rev().filter(|&page| from_tlb(page)).count() as u64
}

#[test]
fn a_tlb_holds_as_many_translations_as_it_is_given() {
    assert_eq!(held(&mut machine(usize::MAX)), PAGES, "all, if nothing bounds it");
    for tlb in [0, 1, 16, 100] {
        let held = held(&mut machine(tlb));
        assert!(held <= tlb.max(1) as u64 + PAGES / 4 && (tlb < 16 || held > 0), "{held} of {tlb}");
    }
}

#[test]
fn what_was_evicted_is_not_stale_and_the_rest_is() {
    let stale = |tlb| {
        let mut m = machine(tlb);
        for page in 0..PAGES {
            let at = m.path(1, VA + page * PAGE).last().unwrap().2;
            m.put(at, 0);
        }
        (0..PAGES).for_each(|page| _ = m.read(0, VA + page * PAGE));
        m.count(Kind::StaleUse)
    };
    assert_eq!(stale(usize::MAX), PAGES);
    assert_eq!(stale(64), 64, "reads of what is not mapped evict nothing");
    assert_eq!(stale(64), 64, "and again");
}

#[test]
fn a_flush_that_is_owed_is_found_whatever_was_evicted() {
    let mut m = Machine::with(Config { tlb: 1, ..Config::new(Arch::x86_64()) });
    m.tells = true;
    m.space(1);
    m.switch(0, 1);
    for page in 0..PAGES {
        m.map(1, VA + page * PAGE, (DATA + page * PAGE) | RW);
    }
    let at = m.path(1, VA).last().unwrap().2;
    m.put(at, 0);
    m.san.flushes_done(&m.ram);
    assert_eq!(m.count(Kind::FlushMissing), 1);
}

#[test]
fn correct_code_is_silent_with_small_caches() {
    for tlb in 1..20 {
        let adversary = Some(Adversary::new(tlb as u64));
        let mut m = Machine::with(Config { cpus: 3, tlb, adversary, ..Config::new(Arch::x86_64()) });
        m.tells = tlb % 2 == 0;
        m.space(1);
        (0..3).for_each(|cpu| m.switch(cpu, 1));
        for step in 0..400u64 {
            let va = VA + step * 7 % 40 * PAGE;
            if step % 3 == 2 {
                m.unmap(1, va)
            } else {
                m.map(1, va, (DATA + step * PAGE) | RW)
            }
            (0..3).for_each(|cpu| _ = m.read(cpu, va));
        }
        assert_eq!(m.san.total(), 0, "{tlb}: {}", m.san);
    }
}
