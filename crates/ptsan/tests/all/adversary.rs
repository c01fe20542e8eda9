//! The adversary finds defects that no access shows, prints its seed, and repeats its choices with
//! it.
use crate::common;

use common::{Machine, PAGE, RW};
use ptsan::{Access, Adversary, Arch, Config, Flush, Kind, Rule, StructureScope, Test};

const VA: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;

fn machine(seed: u64, rate: u16, cpus: usize) -> Machine {
    let adversary = Some(Adversary { seed, rate });
    Machine::with(Config { cpus, adversary, ..Config::new(Arch::x86_64()) })
}

/// Maps and unmaps pages on CPU 0. `deaf` CPUs receive no flush.
fn churn(m: &mut Machine, deaf: Option<usize>) {
    m.space(1);
    m.switch(0, 1);
    m.switch(1, 1);
    m.san.lazy(1);
    m.deaf = deaf;
    for round in 0..50 {
        let va = VA + round % 3 * (PAGE << 9);
        m.map(1, va, DATA | RW);
        m.san.adversary_step(&m.ram);
        let _ = m.access(0, va, Access::WRITE);
        m.unmap(1, va);
    }
}

#[test]
fn a_lazy_cpu_that_never_walked_by_itself_is_made_to() {
    let mut right = machine(1, 2000, 2);
    churn(&mut right, None);
    right.san.assert_clean();
    assert!(right.san.stats().adversary_steps > 100);

    let mut wrong = machine(1, 2000, 2);
    churn(&mut wrong, Some(1));
    assert!(wrong.count(Kind::FreeBeforeFlush) > 0, "CPU 1 was never flushed: {}", wrong.san);
    assert!(wrong.san.findings().iter().all(|f| f.place.cpu == Some(1)));

    let mut quiet = machine(1, 0, 2);
    churn(&mut quiet, Some(1));
    quiet.san.assert_clean();
    assert_eq!(quiet.san.stats().adversary_steps, 0);
}

#[test]
fn a_seed_repeats_its_findings_and_the_report_names_it() {
    let run = |seed| {
        let mut m = machine(seed, 300, 2);
        churn(&mut m, Some(1));
        (m.san.findings().to_vec(), m.san.stats(), m.san.to_string())
    };
    let (first, second) = (run(0xabc), run(0xabc));
    assert_eq!(first.0, second.0);
    assert_eq!(first.1, second.1);
    assert!(first.2.contains("PTSAN_SEED=0xabc"), "{}", first.2);
    assert!((0..20).any(|seed| run(seed).0 != first.0), "another seed goes another way");
}

/// Makes a walk that paused with the entry for a table in hand, on hardware without
/// paging-structure caches.
#[test]
fn a_walk_in_flight_holds_a_table_until_a_flush() {
    let mut in_flight = 0;
    for seed in 0..100 {
        for flush in [false, true] {
            let adversary = Some(Adversary { seed, rate: 0 });
            let arch = Arch { structures: StructureScope::None, ..Arch::x86_64() };
            let mut m = Machine::with(Config { adversary, ..Config::new(arch.clone()) });
            m.space(1);
            m.switch(0, 1);
            m.map(1, VA, DATA | RW);
            let path = m.path(1, VA);
            // The same machine from here on has an adversary.
            let mut acting = Machine::with(Config {
                adversary: Some(Adversary { seed, rate: 3000 }),
                ..Config::new(arch)
            });
            acting.ram = m.ram.clone();
            for &(level, table, _) in &path {
                acting.san.table_allocated(&acting.ram, table, PAGE, Some(level), ptsan::Content::Unchecked);
            }
            acting.san.switch(&acting.ram, 0, path[0].1, 1);
            for _ in 0..5 {
                acting.san.adversary_step(&acting.ram);
            }
            // The directory and everything below it is freed.
            acting.put(path[1].2, 0);
            acting.put(path[0].2, 0);
            if flush {
                acting.flush(0, Flush::page(1, VA));
            }
            acting.san.table_freed(&acting.ram, path[2].1, PAGE);
            if flush {
                acting.san.assert_clean();
            }
            let held = acting.san.findings().iter().any(|f| f.rule == Rule::HeldByWalker);
            in_flight += u32::from(held);
        }
    }
    assert!(in_flight > 0, "no walk of a hundred paused between the root and the directory");
}

#[test]
fn walks_keep_away_from_what_was_never_announced() {
    let mut m = machine(5, 4000, 1);
    let root = m.space(1);
    m.switch(0, 1);
    m.map(1, VA, DATA | RW);
    // A kernel's half that was never announced: tables elsewhere in memory and outside it, and
    // garbage.
    for (index, entry) in [(256, 0x9_0000 | RW), (300, 0x7fff_f000 | RW), (511, u64::MAX)] {
        m.put(root + index * 8, entry);
    }
    for _ in 0..500 {
        m.san.adversary_step(&m.ram);
    }
    m.san.assert_clean();
    assert!(m.san.stats().walks > 20);
}

#[test]
fn a_flush_that_belongs_to_a_switch_comes_before_the_adversary() {
    // With ASIDs, tables are freed while a CPU that holds them runs elsewhere; it flushes when it
    // returns.
    let adversary = Some(Adversary { seed: 0, rate: 4000 });
    let config = Config { asids: true, adversary, cpus: 2, ..Config::new(Arch::x86_64()) };
    Test::with(config).seeds(0..50).each(|_, config| {
        let mut m = Machine::with(config);
        m.space(1);
        m.space(2);
        for _ in 0..4 {
            m.switch(0, 1);
            m.switch(1, 1);
            m.map(1, VA, DATA | RW);
            let _ = (m.read(0, VA), m.read(1, VA));
            m.switch(1, 2);
            m.unmap(1, VA);
            m.switch(1, 1);
        }
        m.san.assert_clean();
    });
}
