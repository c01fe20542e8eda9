//! Floods: one cause is one finding, however many places it has, and another cause is another.
use crate::common;

use common::{Machine, PAGE, RW};
use ptsan::{Access, Arch, Config, Finding, Kind, Suppressions};

const VA: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;

fn config() -> Config {
    Config::new(Arch::x86_64())
}

fn va(page: u64) -> u64 {
    VA + page * PAGE
}

/// Maps pages, lets the CPUs read them, and takes them out of the tables without a flush.
fn unmapped_without_a_flush(config: Config, pages: u64) -> Machine {
    let cpus = config.cpus;
    let mut m = Machine::with(config);
    m.space(1);
    for cpu in 0..cpus {
        m.switch(cpu, 1);
    }
    for page in 0..pages {
        m.map(1, va(page), (DATA + page * PAGE) | RW);
        (0..cpus).for_each(|cpu| assert!(m.read(cpu, va(page)).is_some()));
    }
    for page in 0..pages {
        let entry = m.path(1, va(page)).last().unwrap().2;
        m.put(entry, 0);
    }
    m
}

/// Two callers with frames of one size: the depth of the stack does not tell them apart. Their
/// bodies differ, so that the compiler does not merge them.
#[inline(never)]
fn one_reader(m: &mut Machine, cpu: usize, pages: std::ops::Range<u64>) {
    for page in pages {
        let _ = m.san.translate(&m.ram, cpu, va(page), Access::READ);
    }
}

#[inline(never)]
fn other_reader(m: &mut Machine, cpu: usize, pages: std::ops::Range<u64>) {
    for page in pages {
        let _ = m.san.translate(&m.ram, cpu, va(page), Access::READ.kernel());
    }
}

fn one_line(finding: &Finding) -> String {
    finding.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn caller(finding: &Finding) -> String {
    finding.trace.as_ref().unwrap().frames()[0].symbol.clone()
}

#[test]
fn ten_thousand_pages_of_one_loop_are_one_finding() {
    let mut m = unmapped_without_a_flush(config(), 10_000);
    one_reader(&mut m, 0, 0..10_000);
    assert_eq!(m.count(Kind::StaleUse), 10_000);
    let [finding] = m.san.findings() else { panic!("{}", m.san) };
    assert_eq!((finding.count, finding.spread.places), (10_000, 10_000));
    assert_eq!(finding.spread.addresses, Some((va(0), va(9_999))));
    let first: Vec<_> = finding.spread.first.iter().map(|place| place.va).collect();
    assert_eq!(first, [0, 1, 2, 3].map(|page| Some(va(page))));
    let text = one_line(finding);
    assert!(text.contains("10000 pages, 0x400000 to 0x2b0f000: 0x400000, 0x401000, 0x402000,"), "{text}");
    // As the README shows it, but for the callers and the last flush.
    let readme = include_str!("../../README.md");
    let shown = readme.split("```text\nstale-use: ").nth(1).and_then(|rest| rest.split("```").next());
    let shown = format!("stale-use: {}", shown.expect("the README shows it"));
    assert!(finding.to_string().starts_with(&shown), "the README shows another text:\n{shown}\n{finding}");
    one_reader(&mut m, 0, 0..10);
    let finding = &m.san.findings()[0];
    assert_eq!((finding.count, finding.spread.places), (10_010, 10_000), "places are counted once");
    assert!(one_line(finding).contains("found 10010 times"), "{finding}");
    assert!(m.san.to_string().contains("10010 memory-corruption, 1 cause"), "{}", m.san);
}

#[test]
fn two_callers_are_two_findings() {
    let mut m = unmapped_without_a_flush(config(), 200);
    one_reader(&mut m, 0, 0..100);
    other_reader(&mut m, 0, 100..200);
    let found: Vec<_> = m.san.findings().iter().map(|f| (caller(f), f.spread.places)).collect();
    assert_eq!(
        found,
        [("all::flood::one_reader".to_owned(), 100), ("all::flood::other_reader".to_owned(), 100)]
    );
}

#[test]
fn a_caller_after_a_flood_at_the_same_depth_is_sampled() {
    for keep in [1, 2] {
        let mut m = unmapped_without_a_flush(Config { keep, ..config() }, 2300);
        one_reader(&mut m, 0, 0..2000);
        one_reader(&mut m, 0, 2000..2300);
        assert_eq!(m.count(Kind::StaleUse), 2300, "the total is exact");
        let found: Vec<_> = m.san.findings().iter().map(|f| f.spread.places).collect();
        assert!((2000..2000 + 64).contains(&found[0]), "one place in 64 is looked at: {found:?}");
        assert_eq!(found.len(), keep);
        assert_eq!(found.iter().sum::<u64>() + m.san.summary().not_kept, 2300);
        let lines = m.san.findings().iter().map(|f| f.trace.as_ref().unwrap().frames()[1].at.clone());
        let lines: std::collections::BTreeSet<_> = lines.collect();
        assert_eq!(lines.len(), keep, "two lines of this test: {lines:?}");
    }
}

#[test]
fn a_flood_leaves_room_for_other_findings() {
    let mut m = unmapped_without_a_flush(Config { keep: 2, ..config() }, 1000);
    one_reader(&mut m, 0, 0..1000);
    let table = m.table(0);
    m.give_back(0, table);
    m.give_back(0, table);
    let kinds: Vec<_> = m.san.findings().iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [Kind::StaleUse, Kind::DoubleFree]);
    // A third cause is counted, and all but some of its places are not given to the first: those
    // before the sample by which it is known, if its stack is as deep.
    other_reader(&mut m, 0, 0..10);
    for page in 1000..1200 {
        m.map(1, va(page), DATA | RW);
        assert!(m.read(0, va(page)).is_some());
        let entry = m.path(1, va(page)).last().unwrap().2;
        m.put(entry, 0);
    }
    other_reader(&mut m, 0, 1000..1200);
    let (places, not_kept) = (m.san.findings()[0].spread.places, m.san.summary().not_kept);
    assert!((1000..1064).contains(&places) && places + not_kept == 1200, "{places} {not_kept}: {}", m.san);
}

#[test]
fn one_cause_on_several_cpus_names_them() {
    let mut m = unmapped_without_a_flush(Config { cpus: 6, ..config() }, 12);
    for page in 0..12 {
        one_reader(&mut m, page as usize / 2, page..page + 1);
    }
    let mut all = m.san.findings().iter().map(one_line);
    let text = all.next().unwrap();
    assert!(text.contains("CPUs 0, 1, 2, 3, …"), "{text}");
    assert_eq!(all.count(), 0, "one call in one loop");
}

#[test]
fn without_backtraces_the_cpu_and_the_note_tell_causes_apart() {
    let mut m = unmapped_without_a_flush(Config { cpus: 2, backtraces: false, ..config() }, 100);
    one_reader(&mut m, 0, 0..50);
    other_reader(&mut m, 0, 50..60);
    one_reader(&mut m, 1, 60..100);
    let found: Vec<_> = m.san.findings().iter().map(|f| (f.place.cpu, f.spread.places)).collect();
    assert_eq!(found, [(Some(0), 60), (Some(1), 40)]);
}

#[test]
fn a_caller_that_is_allowed_is_counted_apart_in_a_flood_too() {
    let suppressions = Suppressions::parse("stale-use:flood::one_reader").unwrap();
    let mut m = unmapped_without_a_flush(Config { suppressions, ..config() }, 1200);
    one_reader(&mut m, 0, 0..600);
    other_reader(&mut m, 0, 600..1200);
    assert_eq!((m.san.allowed(), m.count(Kind::StaleUse)), (600, 600));
    assert_eq!(m.san.findings().iter().map(|f| f.spread.places).collect::<Vec<_>>(), [600]);
}

#[inline(never)]
fn lose_tables(m: &mut Machine) {
    for _ in 0..20 {
        m.table(0);
    }
    // The last call is no tail call, which would leave no frame.
    std::hint::black_box(m);
}

#[inline(never)]
fn lose_more_tables(m: &mut Machine) {
    for _ in 0..5 {
        m.table(0);
    }
    // The last call is no tail call, which would leave no frame.
    std::hint::black_box(m);
}

#[test]
fn leaks_are_told_apart_by_known_allocators() {
    for (track_origins, expected) in [(false, vec![25]), (true, vec![20, 5])] {
        let mut m = Machine::with(Config { track_origins, ..config() });
        lose_tables(&mut m);
        lose_more_tables(&mut m);
        m.san.finish();
        let places: Vec<_> = m.san.findings().iter().map(|f| f.spread.places).collect();
        assert_eq!((m.count(Kind::Leak), places), (25, expected));
        let text = one_line(&m.san.findings()[0]);
        assert!(text.contains("table frames, 0x1000 to "), "{text}");
    }
}
