//! The text of reports, and the findings that they leave out because they are allowed.
use crate::common;

use common::{Machine, PAGE, RW, ready};
use ptsan::{Allow, Arch, Config, Flush, Kind, Rule, Suppressions};

const VA: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;

/// The guilty function: frees a table before it flushes.
#[inline(never)]
fn unmap_carelessly(m: &mut Machine) {
    m.deaf = Some(0);
    m.unmap(1, VA);
    m.deaf = None;
    m.flush(0, Flush::all());
}

fn careless(config: Config) -> Machine {
    let mut m = Machine::with(config);
    m.space(1);
    m.switch(0, 1);
    m.map(1, VA, DATA | RW);
    m.read(0, VA);
    unmap_carelessly(&mut m);
    m
}

fn config() -> Config {
    Config::new(Arch::x86_64())
}

fn suppressed(text: &str) -> Config {
    Config { suppressions: Suppressions::parse(text).unwrap(), ..config() }
}

#[test]
fn a_finding_names_the_callers_from_the_hook_up_to_the_test() {
    let m = careless(config());
    let frames = m.san.findings()[0].trace.as_ref().unwrap().frames();
    let symbols: Vec<_> = frames.iter().map(|f| f.symbol.as_str()).collect();
    assert!(symbols[0].contains("Machine") && symbols[0].contains("give_back"), "{symbols:?}");
    assert!(symbols.iter().any(|s| s.contains("unmap_carelessly")), "{symbols:?}");
    for foreign in ["ptsan::", "std::", "__rust", "test::run_test"] {
        assert!(!symbols.iter().any(|s| s.starts_with(foreign)), "{symbols:?}");
    }
    assert!(m.san.to_string().contains("unmap_carelessly"), "{}", m.san);
    let without = careless(Config { backtraces: false, ..config() });
    assert!(!without.san.to_string().contains("unmap_carelessly"));
    assert!(without.san.findings()[0].trace.is_none());
}

#[test]
fn a_table_remembers_who_allocated_and_who_freed_it_if_asked() {
    for track_origins in [false, true] {
        let mut m = careless(Config { track_origins, ..config() });
        let table = m.table(0);
        m.give_back(0, table);
        m.give_back(0, table);
        let double = m.san.findings().iter().find(|f| f.kind == Kind::DoubleFree).unwrap();
        assert_eq!(double.origins.allocated.is_some(), track_origins);
        assert_eq!(double.origins.freed.is_some(), track_origins);
        assert_eq!(double.to_string().contains("the table was freed in"), track_origins, "{double}");
    }
}

#[test]
fn a_report_names_the_unhooking_caller_and_the_last_flush() {
    let mut m = ready(Arch::x86_64(), 1);
    m.tells = true;
    m.map(1, VA, DATA | RW);
    m.read(0, VA);
    m.flush(0, Flush::page(1, 0));
    m.read(0, VA);
    m.deaf = Some(0);
    m.unmap(1, VA);
    let text = m.san.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("unhooked by a store to the entry at"), "{text}");
    assert!(text.contains("its last flush (flush of 0x0 in space 0x1, event"), "{text}");
    assert!(text.contains("was for other addresses"), "{text}");
}

#[test]
fn a_report_says_why_the_last_flush_was_of_no_use() {
    let cases = [
        (Arch::aarch64_4k(48).structures, Flush::page(1, VA).leaf_only(), "was for the last level only"),
        (Arch::aarch64_4k(48).structures, Flush::page(1, VA + (1 << 40)), "was for other addresses"),
        (Arch::riscv_sv39().structures, Flush::page(1, VA), "drops no tables here"),
        (Arch::x86_64().structures, Flush::space(2), "was for another space"),
        (Arch::x86_64().structures, Flush::page(1, VA + PAGE), "was for other addresses"),
    ];
    for (structures, flush, why) in cases {
        let mut m = ready(Arch { structures, ..Arch::x86_64() }, 1);
        m.san.space_created(2);
        m.map(1, VA, DATA | RW);
        m.read(0, VA);
        let path = m.path(1, VA);
        m.put(path[3].2, 0);
        m.put(path[2].2, 0);
        m.flush(0, flush);
        m.give_back(0, path[3].1);
        let text = m.san.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(why), "{why}: {text}");
    }
}

#[test]
fn reports_fit_in_80_columns_but_for_names_and_paths() {
    let m = careless(Config { track_origins: true, ..config() });
    for line in m.san.to_string().lines() {
        let unbreakable = !line.trim().contains(' ') || line.trim().starts_with("at ");
        assert!(line.chars().count() <= 80 || unbreakable, "{line}");
    }
}

#[test]
fn a_finding_is_allowed_by_kind_rule_and_caller() {
    let found = careless(config()).san.total();
    assert!(found > 0);
    for (text, allowed) in [
        ("free-before-flush", true),
        ("free-before-flush/HeldInStructureCache", true),
        ("free-before-flush:unmap_carelessly", true),
        ("*:reports::unmap*careless  # known", true),
        ("free-before-flush/HeldInTlb", false),
        ("stale-use", false),
        ("free-before-flush:unmap_carefully", false),
    ] {
        let mut m = careless(suppressed(text));
        let (counted, left_out) = if allowed { (0, found) } else { (found, 0) };
        assert_eq!((m.san.total(), m.san.allowed()), (counted, left_out), "{text}");
        assert_eq!(m.san.unused_suppressions().count(), usize::from(!allowed));
        m.destroy(1);
        m.san.finish();
        assert_eq!(m.san.to_string().contains("allowed and not seen"), !allowed, "{}", m.san);
        assert_eq!(m.san.to_string().contains("allowed, not counted above"), allowed);
    }
}

#[test]
fn an_allowance_is_of_one_caller_even_at_the_same_place() {
    let mut m = careless(suppressed("free-before-flush:unmap_carelessly"));
    m.san.assert_clean();
    m.map(1, VA, DATA | RW);
    m.read(0, VA);
    m.deaf = Some(0);
    m.unmap(1, VA);
    assert!(m.count(Kind::FreeBeforeFlush) > 0, "{}", m.san);
}

#[test]
fn an_allowance_can_be_written_in_code() {
    let allow = Allow { rule: Some(Rule::HeldInStructureCache), ..Allow::default() };
    careless(config().allow(allow)).san.assert_clean();
}

#[test]
fn every_rule_has_a_name_of_its_own_and_a_sentence() {
    let mut names: Vec<_> = Rule::ALL.iter().map(|r| r.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Rule::ALL.len());
    assert!(Rule::ALL.iter().all(|r| r.text().len() > 15));
    let mut kinds: Vec<_> = Kind::ALL.iter().map(|k| k.name()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), Kind::ALL.len());
}
