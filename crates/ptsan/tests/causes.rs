//! Lines of the code under test, stores that made a debt, and findings of one cause.
mod common;

use common::{Machine, PAGE, RO, RW};
use ptsan::{Arch, Config, Finding, Flush, Format, Kind, Rule};
use serde_json::Value;

const VA: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;

/// The code under test. Its hooks are those of [`Machine`], in another file. No call is the last of
/// its function: the compiler would jump, and the function would have no frame.
mod kernel {
    use super::*;

    #[inline(never)]
    pub fn protect(m: &mut Machine, va: u64) {
        let entry = m.path(1, va)[3].2;
        m.put(entry, DATA | RO); // protect stores here
        std::hint::black_box(m);
    }

    #[inline(never)]
    pub fn protect_too(m: &mut Machine, va: u64) {
        let entry = m.path(1, va)[3].2;
        m.put(entry, DATA | RO); // protect_too stores here
        std::hint::black_box((m, 2));
    }

    #[inline(never)]
    pub fn protect_all(m: &mut Machine, pages: u64) {
        for page in 0..pages {
            let entry = m.path(1, VA + page * PAGE)[3].2;
            m.put(entry, (DATA + page * PAGE) | RO);
        }
    }

    /// Clears and frees the tables and pages below a table, without a flush.
    #[inline(never)]
    pub fn free_below(m: &mut Machine, level: u8, table: u64) {
        for entry in (table..table + PAGE).step_by(8) {
            let raw = m.get(entry);
            if raw == 0 {
                continue;
            }
            let below = raw & !0xfff;
            m.put(entry, 0); // free_below stores here
            match level {
                0 => m.san.frame_freed(&m.ram, below, PAGE),
                _ => {
                    free_below(m, level - 1, below);
                    m.give_back(level - 1, below); // free_below frees here
                }
            }
        }
    }

    /// Frees a table that an entry still points at, without a flush.
    #[inline(never)]
    pub fn free_linked(m: &mut Machine, table: u64) {
        m.give_back(0, table);
        std::hint::black_box(m);
    }
}

fn config() -> Config {
    Config::new(Arch::x86_64()).harness("tests/common/mod.rs")
}

fn ready(config: Config) -> Machine {
    let mut m = Machine::with(config);
    m.tells = true;
    m.space(1);
    m.switch(0, 1);
    for page in 0..4 {
        m.map(1, VA + page * PAGE, (DATA + page * PAGE) | RW);
    }
    m
}

/// Returns the line of this file that a caller is at.
fn line_of(at: &str) -> &'static str {
    let mut parts = at.rsplit(':');
    let number = parts.by_ref().nth(1).and_then(|line| line.parse::<usize>().ok());
    let lines = include_str!("causes.rs").lines();
    assert!(parts.next().is_some_and(|file| file.ends_with("tests/causes.rs")), "{at}");
    lines.skip(number.expect("a line") - 1).map(str::trim).next().expect("a line of this file")
}

fn json(m: &Machine) -> Vec<Value> {
    let report = m.san.report_as(Format::Json).to_string();
    report.lines().skip(1).map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// Returns the line that a finding is about, as every format has it.
#[track_caller]
fn line_in_all_formats(m: &Machine, finding: usize) -> &'static str {
    let object = &json(m)[finding]["at"];
    let (file, line, column) = (&object["file"], &object["line"], &object["column"]);
    let at = format!("{}:{line}:{column}", file.as_str().expect("a file"));
    let short = m.san.report_as(Format::Short).to_string();
    let short = short.lines().nth(finding + 1).expect("a line");
    assert!(short.contains(&format!(" causes.rs:{line} ")), "{at}: {short}");
    let github = m.san.report_as(Format::GitHub).to_string();
    let command = github.lines().nth(finding).expect("a command");
    assert!(command.contains(&format!("causes.rs,line={line},col={column},")), "{at}: {command}");
    line_of(&at)
}

fn one(m: &Machine) -> &Finding {
    let [finding] = m.san.findings() else { panic!("not one finding: {}", m.san) };
    finding
}

#[test]
fn every_format_names_the_first_line_outside_the_harness() {
    for marked in [true, false] {
        let mut m = ready(if marked { config() } else { Config::new(Arch::x86_64()) });
        m.read(0, VA);
        let table = m.path(1, VA)[3].1;
        kernel::free_linked(&mut m, table);
        let finding = m.san.findings().iter().find(|f| f.kind == Kind::FreeWhileLinked).expect("a finding");
        let frames = finding.trace.as_ref().expect("a trace").frames();
        assert_eq!(frames[0].symbol.contains("free_linked"), marked, "{frames:?}");
        assert_eq!(frames.iter().any(|f| f.symbol.contains("give_back")), !marked, "{frames:?}");
        let text = finding.to_string();
        let first = text.split("found in\n").nth(1).and_then(|rest| rest.lines().next()).expect("a caller");
        assert_eq!(first.contains("free_linked"), marked, "{text}");
        if marked {
            assert_eq!(line_in_all_formats(&m, 0), "m.give_back(0, table);");
        }
    }
}

#[test]
fn later_marks_count_later_and_suppressions_see_all_callers() {
    let mut m = ready(Config::new(Arch::x86_64()));
    m.san.mark_harness("Machine");
    m.give_back(0, 0xe000);
    let symbols = |m: &Machine| {
        let frames = one(m).trace.as_ref().expect("a trace").frames();
        frames.into_iter().map(|frame| frame.symbol).collect::<Vec<_>>()
    };
    assert!(symbols(&m).iter().all(|symbol| !symbol.contains("Machine")), "{:?}", symbols(&m));
    let list = ptsan::Suppressions::parse("foreign-free:give_back").expect("a list");
    let mut m = ready(Config { suppressions: list, ..config() });
    m.give_back(0, 0xe000);
    assert_eq!((m.san.total(), m.san.allowed()), (0, 1), "{}", m.san);
}

#[test]
fn a_missing_flush_names_the_store_and_the_operations_end() {
    let mut m = ready(config());
    kernel::protect(&mut m, VA);
    m.san.flushes_done(&m.ram);
    let finding = one(&m);
    assert_eq!((finding.kind, finding.rule), (Kind::FlushMissing, Rule::RestrictNotFlushed));
    assert!(line_in_all_formats(&m, 0).ends_with("// protect stores here"));
    let text = finding.to_string();
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(at("the store was made in\n") < at("found in\n"), "{text}");
    assert!(at("kernel::protect") < at("found in\n"), "{text}");
    let second = json(&m)[0]["found_in"][0].clone();
    assert!(second["function"].as_str().is_some_and(|f| f.contains("a_missing_flush_names")), "{second}");
}

#[test]
fn callers_of_stores_need_backtraces_and_room() {
    for config in [Config { stores: 0, ..config() }, Config { backtraces: false, ..config() }] {
        let backtraces = config.backtraces;
        let mut m = ready(config);
        kernel::protect(&mut m, VA);
        m.san.flushes_done(&m.ram);
        let finding = one(&m);
        assert!(finding.store.is_none() && !finding.to_string().contains("the store was made"), "{finding}");
        assert_eq!(finding.trace.is_some(), backtraces);
    }
    // One store may be remembered, and is told from one that nobody remembers.
    let mut m = ready(Config { stores: 1, ..config() });
    kernel::protect(&mut m, VA);
    m.flush(0, Flush::all());
    kernel::protect_too(&mut m, VA + PAGE);
    m.san.flushes_done(&m.ram);
    assert!(one(&m).store.is_none(), "{}", m.san);
}

#[test]
fn pages_of_one_loop_are_one_finding_and_two_functions_two() {
    let mut m = ready(config());
    kernel::protect_all(&mut m, 4);
    m.san.flushes_done(&m.ram);
    assert!(one(&m).note.contains("4 pages"), "{}", m.san);

    let mut m = ready(config());
    kernel::protect(&mut m, VA);
    kernel::protect_too(&mut m, VA + PAGE);
    m.san.flushes_done(&m.ram);
    assert_eq!((m.san.findings().len(), m.san.total()), (2, 2), "{}", m.san);
    assert!(line_in_all_formats(&m, 0).ends_with("// protect stores here"));
    assert!(line_in_all_formats(&m, 1).ends_with("// protect_too stores here"));
}

#[test]
fn two_functions_that_err_at_the_same_page_are_two_causes() {
    let mut m = ready(config());
    for round in 0..3 {
        let protect = if round == 1 { kernel::protect_too } else { kernel::protect };
        protect(&mut m, VA);
        m.san.flushes_done(&m.ram);
        m.map(1, VA, DATA | RW);
        m.flush(0, Flush::all());
    }
    let counts: Vec<_> = m.san.findings().iter().map(|f| (f.count, f.spread.places)).collect();
    assert_eq!((counts, m.san.total()), (vec![(2, 1), (1, 1)], 3), "{}", m.san);
}

#[test]
fn a_line_of_a_recursive_walk_is_one_finding() {
    let mut m = ready(config());
    m.map(1, VA + (1 << 30), (DATA + 8 * PAGE) | RW);
    for va in [VA, VA + (1 << 30)] {
        m.read(0, va);
    }
    let root = m.root(1);
    kernel::free_below(&mut m, 3, root);
    m.san.flushes_done(&m.ram);
    let finding = one(&m);
    let kinds: Vec<_> = finding.consequences.iter().map(|c| c.kind).chain([finding.kind]).collect();
    for kind in [Kind::DataFreedBeforeFlush, Kind::FreeBeforeFlush] {
        assert!(kinds.contains(&kind), "no {kind}: {finding}");
    }
    let levels = finding.consequences.iter().filter(|c| c.kind == Kind::FreeBeforeFlush);
    assert!(levels.filter_map(|c| c.place.level).max() > Some(0), "{finding}");
    // Both numbers: of the rule, and of all that follows.
    let sum = finding.count + finding.consequences.iter().map(|c| c.count).sum::<u64>();
    assert_eq!((finding.total(), m.san.total()), (sum, sum), "{finding}");
    assert_eq!(Kind::ALL.iter().map(|kind| m.san.count(*kind)).sum::<u64>(), sum);
    assert_eq!((m.san.summary().causes, m.san.summary().not_kept), (1, 0));
    let text = finding.to_string();
    assert!(text.contains("\n  from the same cause\n    free-before-flush/"), "{text}");
    let object = &json(&m)[0];
    assert_eq!(object["consequences"].as_array().map(Vec::len), Some(finding.consequences.len()));
    assert_eq!((object["count"].as_u64(), object["total"].as_u64()), (Some(finding.count), Some(sum)));
}

#[test]
fn two_rules_that_one_call_breaks_are_two_causes() {
    let mut m = ready(config());
    m.read(0, VA);
    let table = m.path(1, VA)[3].1;
    kernel::free_linked(&mut m, table);
    let kinds: Vec<_> = m.san.findings().iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [Kind::FreeWhileLinked, Kind::FreeBeforeFlush], "{}", m.san);
    assert!(m.san.findings().iter().all(|f| f.consequences.is_empty()), "{}", m.san);
}

#[test]
fn a_broken_run_names_the_last_store_to_it() {
    const CONTIGUOUS: u64 = 1 << 52;
    #[inline(never)]
    fn clear_one(m: &mut Machine, entry: u64) {
        m.put(entry, 0); // clears one entry of a run
        std::hint::black_box(m);
    }
    let mut m = Machine::with(Config::new(Arch::aarch64_4k(48)).harness("tests/common/mod.rs"));
    m.tells = true;
    let tables: Vec<u64> = (0..4).rev().map(|level| m.table(level)).collect();
    m.san.switch(&m.ram, 0, tables[0], 1);
    for (parent, child) in tables.iter().zip(&tables[1..]) {
        m.put(*parent, child | 3);
    }
    for index in 0..16 {
        m.put(tables[3] + index * 8, (DATA + index * PAGE) | 0xc43 | CONTIGUOUS);
    }
    m.san.flushes_done(&m.ram);
    m.san.assert_clean();
    clear_one(&mut m, tables[3] + 5 * 8);
    m.flush(0, Flush::all());
    m.san.flushes_done(&m.ram);
    let finding = one(&m);
    assert_eq!(finding.kind, Kind::ContiguousRange);
    assert!(line_in_all_formats(&m, 0).ends_with("// clears one entry of a run"));
}

#[test]
fn a_cleared_unflushed_entry_is_no_replaced_entry() {
    #[inline(never)]
    fn clear(m: &mut Machine, entry: u64) {
        m.put(entry, 0); // clears and does not flush
        std::hint::black_box(m);
    }
    let mut m = Machine::with(Config::new(Arch::aarch64_4k(48)).harness("tests/common/mod.rs"));
    m.tells = true;
    let tables: Vec<u64> = (0..4).rev().map(|level| m.table(level)).collect();
    m.san.switch(&m.ram, 0, tables[0], 1);
    for (parent, child) in tables.iter().zip(&tables[1..]) {
        m.put(*parent, child | 3);
    }
    m.put(tables[3], DATA | 0xc43);
    m.read(0, 0);
    clear(&mut m, tables[3]);
    m.put(tables[3], (DATA + PAGE) | 0xc43);
    let finding = one(&m);
    assert_eq!(finding.kind, Kind::BreakBeforeMake);
    assert!(finding.note.contains("the entry was cleared at event"), "{finding}");
    assert!(line_in_all_formats(&m, 0).ends_with("// clears and does not flush"));
}

#[test]
fn spaces_are_hexadecimal_and_equal_history_lines_print_once() {
    let mut m = ready(Config { cpus: 2, ..config() });
    m.switch(1, 1);
    for round in 0..3 {
        m.read(0, VA);
        m.read(1, VA);
        if round < 2 {
            m.flush(0, Flush::all());
            m.flush(1, Flush::all());
        }
    }
    let table = m.path(1, VA)[3].1;
    kernel::free_linked(&mut m, table);
    let finding = m.san.findings().iter().find(|f| f.kind == Kind::FreeBeforeFlush).expect("a finding");
    let text = finding.to_string();
    assert_eq!(finding.history.iter().filter(|h| h.to_string().contains("walked by CPU 0")).count(), 3);
    assert_eq!(text.matches("walked by CPU 0 at PT (level 0) for 0x400000").count(), 1, "{text}");
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("for 0x400000 (3 times, last at event"), "{text}");
    assert!(joined.contains(", space 0x1 CPU 0 is active"), "{text}");
}
