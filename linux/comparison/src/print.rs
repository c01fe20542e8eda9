//! Prints the results: tables, bars, remarks; rows as JSON.

use crate::cases::{BY, MeasuredProgram};
use crate::contender::Contender;
use crate::guest::BootResults;
use crate::rows::{Happened, PageCounts, Row, find};
use ptarmigan_term::Mean;

/// Returns the rows as JSON.
///
/// # Errors
///
/// A number that JSON does not have.
pub fn json(rows: &[Row]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&serde_json::json!({ "bench": "compare", "rows": rows }))
}

/// Rounds a number, halves away from zero, and writes it with separators.
pub fn grouped(value: f64) -> String {
    format!("{:.0}", Mean(value.round()))
}

/// Pages, with a letter for the instruction that wrote most of them.
fn pages(all: &[PageCounts]) -> String {
    let sum = all.iter().fold(0.0, |sum, one| sum + one.pages);
    if sum == 0.0 {
        return "0".into();
    }
    let most = all.iter().max_by(|a, b| a.pages.total_cmp(&b.pages));
    let letter = most.map_or("", |most| match BY.iter().position(|by| *by == most.by) {
        Some(0) => "s",
        Some(1) => "m",
        Some(3) => "z",
        _ => "w",
    });
    format!("{sum:.1}{letter}")
}

/// Prints a table for each case.
pub fn tables(program: &MeasuredProgram, rows: &[Row]) {
    println!("Instructions of one operation, medians.");
    for case in &program.cases {
        println!();
        println!(
            "{:28} {:>10} {:>10} {:>8} {:>7} {:>7} {:>5} {:>3}",
            case.name, "all", "pages=1", "program", "cleared", "copied", "inval", "cr3"
        );
        for row in rows.iter().filter(|row| row.case == case.name) {
            print!("{:28} {:>10}", row.contender, grouped(row.value));
            if let Some(happened) = &row.happened {
                print!(
                    " {:>10} {:>8} {:>7} {:>7} {:>5.1} {:>3.0}",
                    grouped(happened.pages_as_one),
                    grouped(happened.programs),
                    pages(&happened.cleared),
                    pages(&happened.copied),
                    happened.page_invalidations,
                    happened.root_loads
                );
            }
            println!();
        }
    }
    if rows.iter().any(|row| row.happened.is_some()) {
        println!();
        println!("pages=1: a page that is cleared or copied counts as one instruction.");
        println!("program: instructions of the program; all others are the kernel's.");
        println!("cleared, copied: pages, by rep stos (s), rep movs (m), single stores (w), dc zva (z).");
        println!("inval: invlpg, tlbi of pages and ranges; cr3: roots loaded (ttbr0).");
    }
}

/// Prints our kernel's messages about a boot.
pub fn notes(contender: &Contender, boots: &[BootResults]) {
    if contender.is_linux() {
        return;
    }
    let Some(boot) = boots.first() else { return };
    let wanted = ["windows opened", "page clears", "interrupts sent", "tables", "flushes"];
    let lines = boot.said.iter().filter(|line| wanted.iter().any(|part| line.starts_with(part)));
    println!();
    println!("{}, the whole boot:", contender.name);
    for line in lines {
        println!("  {line}");
    }
}

struct Goal {
    met: bool,
    text: String,
}

fn value(rows: &[Row], case: &str, contender: &str) -> Option<f64> {
    find(rows, case, contender).map(|row| row.value)
}

/// The cheaper of Linux's two rows.
fn linux(rows: &[Row], case: &str, name: &str, of: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
    let both = [name.to_owned(), format!("{name}-noinit")];
    both.iter().filter_map(|name| find(rows, case, name)).filter_map(of).min_by(f64::total_cmp)
}

fn as_one(row: &Row) -> Option<f64> {
    row.happened.as_ref().map(|happened| happened.pages_as_one)
}

fn ratio_bar(what: String, theirs: f64, ours: f64, least: f64) -> Goal {
    let ratio = theirs / ours;
    let text = format!("{what}: {} / {} = {ratio:.2}, bar {least}", grouped(theirs), grouped(ours));
    Goal { met: ratio >= least, text }
}

fn against_linux(rows: &[Row], arch: &str, bars: &mut Vec<Goal>) {
    let (theirs, ours) = (format!("linux-{arch}"), format!("ptarmigan-{arch}"));
    for case in ["fault-new-table", "fault-cycle", "fork-exit", "fork-exit-16m", "fork-exec"] {
        let linux = linux(rows, case, &theirs, |row| Some(row.value));
        if let (Some(linux), Some(here)) = (linux, value(rows, case, &ours)) {
            bars.push(ratio_bar(format!("{arch} {case}"), linux, here, 4.0));
        }
    }
    let kernel = |row: &Row| {
        let Happened { programs, .. } = row.happened.as_ref()?;
        Some(row.value - programs)
    };
    let exec = linux(rows, "fork-exec", &theirs, kernel);
    if let (Some(linux), Some(here)) = (exec, find(rows, "fork-exec", &ours).and_then(kernel)) {
        bars.push(ratio_bar(format!("{arch} fork-exec, kernel only"), linux, here, 4.0));
    }
    let table = |name: &str| {
        let part = |case| find(rows, case, name).and_then(as_one);
        Some(part("fault-new-table")? - part("fault-same-table")?)
    };
    let linux = [theirs.clone(), format!("{theirs}-noinit")];
    let linux = linux.iter().filter_map(|name| table(name)).min_by(f64::total_cmp);
    if let (Some(linux), Some(here)) = (linux, table(&ours)) {
        bars.push(ratio_bar(format!("{arch} table part of a fault, pages=1"), linux, here, 5.0));
    }
}

/// Large pages of programs: both with `transparent_hugepage=always`.
fn large(rows: &[Row], bars: &mut Vec<Goal>) {
    let (theirs, ours) = ("linux-x86_64-always", "ptarmigan-x86_64-always");
    for case in ["touch-128m", "fork-exit-64m"] {
        let linux = linux(rows, case, theirs, |row| Some(row.value));
        if let (Some(linux), Some(here)) = (linux, value(rows, case, ours)) {
            bars.push(ratio_bar(format!("{case}, always"), linux, here, 1.0));
        }
    }
    let linux = linux(rows, "touch-128m", theirs, as_one);
    if let (Some(linux), Some(here)) = (linux, find(rows, "touch-128m", ours).and_then(as_one)) {
        bars.push(ratio_bar("touch-128m, always, pages=1".into(), linux, here, 2.0));
    }
}

fn placement(rows: &[Row], bars: &mut Vec<Goal>) {
    for case in ["fault-new-table", "fault-same-table", "fork-exit", "fork-exec"] {
        let cost = |who: &str| {
            Some(
                value(rows, case, &format!("{who}-i386-high"))?
                    - value(rows, case, &format!("{who}-i386-nohigh"))?,
            )
        };
        if let (Some(linux), Some(ours)) = (cost("linux"), cost("ptarmigan")) {
            let text = format!(
                "{case}: high tables cost {}, of Linux {}; bar a half",
                grouped(ours),
                grouped(linux)
            );
            bars.push(Goal { met: ours <= linux / 2.0, text });
        }
    }
    for (case, most) in [("fault-new-table", 16.0), ("fault-same-table", 0.0)] {
        let both = (value(rows, case, "ptarmigan-i386-auto"), value(rows, case, "ptarmigan-i386-nohigh"));
        if let (Some(auto), Some(low)) = both {
            let text = format!("{case}: auto costs {} more than nohigh; bar {most}", grouped(auto - low));
            bars.push(Goal { met: auto - low <= most, text });
        }
    }
}

/// Prints how the rows stand against the bars.
pub fn bars(rows: &[Row]) {
    let mut bars = Vec::new();
    for arch in ["i386-high", "i386-nohigh", "x86_64", "aarch64"] {
        against_linux(rows, arch, &mut bars);
    }
    placement(rows, &mut bars);
    large(rows, &mut bars);
    if bars.is_empty() {
        return;
    }
    println!();
    println!("Bars, against the cheaper of Linux's two rows:");
    for bar in &bars {
        let met = if bar.met { "met   " } else { "MISSED" };
        println!("  {met} {}", bar.text);
    }
}

/// Prints the facts that the figures do not show.
pub fn remarks() {
    println!();
    println!("Linux does more than this kernel: control groups, RCU, reverse mappings, page");
    println!("reclaim, audit, accounting, timers of tasks. Instructions are not time:");
    println!("misses of caches and TLBs, waits and serialising instructions count as one each.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0.0, -0.4, 2.5].map(grouped), ["0", "0", "3"]);
        assert_eq!(grouped(999.6), "1,000");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
        assert_eq!(grouped(-12_345.0), "-12,345");
    }
}
