//! Page-table crates as they are released, by their hooks on the library's pages, and by a space of
//! the library's adapters: each makes the same spaces, fills them and drops them.
//!
//! Released, a crate has its tables from a stack of frames, the cheapest allocator that there is;
//! `aarch64-paging` demands that it clears. No contender executes a TLB instruction.
mod aarch64_paging;
mod ours;
mod page_table_generic;
mod page_table_multiarch;
mod work;
mod x86_64;

use std::fmt::Write as _;

use ptarmigan_bench::report::{BenchReport, Row};
use ptarmigan_bench::table::peer_pool;
use ptarmigan_bench::turns::{Turn, take_turns};

use ours::OurPages;
use work::Work;

/// How a crate comes to its tables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As released, from a stack of frames.
    Released,
    /// Its own hooks, over the library's pages.
    Hooks,
    /// A space of `ptarmigan-adapters`.
    Space,
}

/// A crate: its name, the names of its three contenders, and how it makes spaces.
struct Subject {
    name: &'static str,
    contenders: [(Way, &'static str); 3],
    run: fn(Way, &Work, &OurPages),
}

macro_rules! subject {
    ($name:literal, $run:path) => {
        Subject {
            name: $name,
            contenders: [
                (Way::Released, concat!($name, " released")),
                (Way::Hooks, concat!($name, " hooks")),
                (Way::Space, concat!($name, " space")),
            ],
            run: $run,
        }
    };
}

const SUBJECTS: [Subject; 4] = [
    subject!("aarch64-paging", aarch64_paging::run),
    subject!("page_table_multiarch", page_table_multiarch::run),
    subject!("page-table-generic", page_table_generic::run),
    subject!("x86_64", x86_64::run),
];

/// The selection of cases and contenders.
#[derive(Clone, Copy, Default)]
pub struct Choice<'a> {
    /// A crate, or one of its contenders; otherwise all.
    pub only: Option<&'a str>,
    /// A case; otherwise all.
    pub case: Option<&'a str>,
}

/// Returns the names of the crates and of their contenders.
pub fn names() -> impl Iterator<Item = &'static str> {
    SUBJECTS.iter().flat_map(|s| std::iter::once(s.name).chain(s.contenders.map(|(_, name)| name)))
}

/// Runs the chosen contenders, on about `spaces` spaces in each case.
///
/// # Errors
///
/// If a machine cannot be set up, or tables do not come back.
pub fn run(rounds: u32, spaces: usize, choice: Choice<'_>) -> Result<BenchReport, String> {
    ours::with_pages(|ours| run_on(ours, rounds, spaces, choice))
}

fn run_on(
    ours: &'static OurPages,
    rounds: u32,
    spaces: usize,
    choice: Choice<'_>,
) -> Result<BenchReport, String> {
    let mut cases = Vec::from(Work::all(spaces));
    cases.retain(|work| choice.case.is_none_or(|case| case == work.name));
    peer_pool::reset();
    let mut turns = Vec::new();
    for work in &cases {
        for subject in &SUBJECTS {
            for (way, contender) in subject.contenders {
                if choice.only.is_some_and(|name| name != subject.name && name != contender) {
                    continue;
                }
                let work_once = Box::new(move || (subject.run)(way, work, ours));
                turns.push(Turn { case: work.name, contender, operations: work.pages(), work: work_once });
            }
        }
    }
    let mut rows = take_turns(rounds, "ns/page", turns)?;
    let lost = [ours::out(ours), peer_pool::live()];
    if lost != [0, 0] {
        return Err(format!("tables did not come back: {} of ours, {} of the stack's", lost[0], lost[1]));
    }
    let mut ratios = Vec::new();
    for work in &cases {
        for subject in &SUBJECTS {
            let value = |at: usize| value(&rows, work.name, subject.contenders[at].1);
            for (at, unit) in [(1, "released/hooks"), (2, "released/space")] {
                let ratio = value(0) / value(at);
                if ratio.is_nan() {
                    continue;
                }
                let contender = subject.name.to_string();
                ratios.push(Row { case: work.name, contender, value: ratio, unit, min: ratio });
            }
        }
    }
    rows.extend(ratios);
    let notes = cases.iter().map(|work| format!("{}: {}", work.name, work.about)).collect();
    Ok(BenchReport { bench: "adapters", arch: None, rows, reference: "released", notes })
}

fn value(rows: &[Row], case: &str, contender: &str) -> f64 {
    rows.iter().find(|row| row.case == case && row.contender == contender).map_or(f64::NAN, |row| row.value)
}

/// Returns a table of at most 80 columns: nanoseconds per page, and how many times as fast as
/// released.
pub fn plain(report: &BenchReport) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:<8} {:<20} {:>9} {:>9} {:>7} {:>9} {:>7}",
        "case", "crate", "released", "hooks", "", "space", ""
    );
    let mut last = "";
    let known = |row: &&Row| SUBJECTS.iter().any(|s| s.contenders.iter().any(|c| c.1 == row.contender));
    let mut done: Vec<(&str, &str)> = Vec::new();
    for row in report.rows.iter().filter(known) {
        let name = row.contender.rsplit_once(' ').map_or("", |(name, _)| name);
        if done.contains(&(row.case, name)) {
            continue;
        }
        done.push((row.case, name));
        if !last.is_empty() && last != row.case {
            text.push('\n');
        }
        last = row.case;
        let of = |way: &str| value(&report.rows, row.case, &format!("{name} {way}"));
        let ns = |way: &str| if of(way).is_nan() { "-".into() } else { format!("{:.1}", of(way)) };
        let times = |way: &str| {
            let ratio = of("released") / of(way);
            if ratio.is_nan() { String::new() } else { format!("{ratio:.2}x") }
        };
        let _ = writeln!(
            text,
            "{:<8} {:<20} {:>9} {:>9} {:>7} {:>9} {:>7}",
            row.case,
            name,
            ns("released"),
            ns("hooks"),
            times("hooks"),
            ns("space"),
            times("space"),
        );
    }
    let _ = writeln!(text, "\nns/page to make, fill and drop a space, median; x: times as fast as released");
    for note in &report.notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_has_rows_and_the_table_fits_a_terminal() {
        let report = run(1, 2, Choice::default()).unwrap();
        assert_eq!(report.rows.len(), 3 * 4 * (3 + 2));
        assert!(report.rows.iter().all(|row| row.value.is_finite() && row.value > 0.0));
        let text = plain(&report);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(SUBJECTS.iter().all(|subject| text.contains(subject.name)));
    }

    #[test]
    fn one_contender_in_one_case_is_a_row_without_ratios() {
        let choice = Choice { only: Some("x86_64 space"), case: Some("tiny") };
        let report = run(1, 2, choice).unwrap();
        assert_eq!(
            report.rows.iter().map(|row| row.contender.as_str()).collect::<Vec<_>>(),
            ["x86_64 space"]
        );
        assert!(!plain(&report).contains("NaN"));
    }
}
