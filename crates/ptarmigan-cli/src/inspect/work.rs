//! Prints the work of a recording by mapping and by function.
use crate::rows;
use ptarmigan_replay::flushes::{LinuxFlushes, ProgramRequests};
use ptarmigan_replay::{FunctionWork, MappingWork, Work};
use ptarmigan_term::{Count, Time};
use std::fmt::Write;

/// The most rows of a table.
const TOP: usize = 10;

/// Below so many columns a row is two lines: its numbers, then its names.
const NARROW: usize = 60;

/// Formats the tables, with lines of at most `width` columns.
pub(super) fn tables(work: &Work, width: usize) -> String {
    let mut text = String::new();
    let rows: Vec<WorkRow> = work.mappings.iter().take(TOP).map(mapping).collect();
    let head = ["    faults   share", "address         program: mapping"].map(str::to_owned);
    table(&mut text, "faults by mapping", &head, &rows, work.mappings.len(), width);
    for functions in rows::functions(work) {
        let timed = functions.is_timed();
        let numbers = format!("{:>10}   share{}", functions.counts, if timed { "      time" } else { "" });
        let head = [numbers, "program: function".to_owned()];
        let rows = &functions.rows;
        let lines: Vec<WorkRow> = rows.iter().take(TOP).map(|row| function(row, timed)).collect();
        table(&mut text, functions.title, &head, &lines, rows.len(), width);
    }
    text
}

/// Formats the table of requests between CPUs, with lines of at most `width` columns.
pub(super) fn requests(flushes: Option<&LinuxFlushes>, width: usize) -> String {
    let mut text = String::new();
    let requests = flushes.map_or(&[][..], |flushes| &flushes.requests);
    let all: u64 = requests.iter().map(|row| row.requested.total()).sum();
    let row = |row: &ProgramRequests| {
        let requests = row.requested.total();
        let share = 100.0 * requests as f64 / all.max(1) as f64;
        [format!("{:>10} {share:>5.1} %", Count(requests)), format!("{}: {}", row.program, row.cause.name())]
    };
    let rows: Vec<WorkRow> = requests.iter().take(TOP).map(row).collect();
    let head = ["  requests   share", "program: cause"].map(str::to_owned);
    table(&mut text, "requests between CPUs", &head, &rows, requests.len(), width);
    text
}

/// The numbers of a row, and its names.
type WorkRow = [String; 2];

fn table(text: &mut String, title: &str, head: &WorkRow, rows: &[WorkRow], all: usize, width: usize) {
    if rows.is_empty() {
        return;
    }
    let more = if all > rows.len() {
        format!(", the first {} of {}", rows.len(), Count(all as u64))
    } else {
        String::new()
    };
    let _ = writeln!(text, "\n{}", cut(&format!("{title}{more}"), width));
    for [numbers, names] in std::iter::once(head).chain(rows) {
        let between = if width < NARROW { "\n    " } else { "  " };
        for line in format!("{numbers}{between}{names}").lines() {
            let _ = writeln!(text, "{}", cut(line, width));
        }
    }
}

/// Cuts a line that is too long, and marks the cut.
fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn mapping(row: &MappingWork) -> WorkRow {
    [
        format!("{:>10} {:>5.1} %", Count(row.faults), 100.0 * row.share),
        format!("{:<14}  {}", rows::address(row), rows::mapping(row)),
    ]
}

fn function(row: &FunctionWork, timed: bool) -> WorkRow {
    let time = match (timed, row.seconds) {
        (true, Some(secs)) => format!("  {:>8}", Time::from_secs(secs)),
        (true, None) => format!("  {:>8}", "-"),
        (false, _) => String::new(),
    };
    [format!("{:>10} {:>5.1} %{time}", Count(row.events), 100.0 * row.share), rows::function(row)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_narrow_table_are_two_lines() {
        let rows = [["         7  50.0 %".to_owned(), "true: library libc.so.6".to_owned()]];
        let head = ["    faults   share".to_owned(), "program: mapping".to_owned()];
        let mut text = String::new();
        table(&mut text, "title", &head, &rows, 1, 20);
        let narrow =
            "\ntitle\n    faults   share\n    program: mapping\n         7  50.0 %\n    true: library l…\n";
        assert_eq!(text, narrow);
        text.clear();
        table(&mut text, "title", &head, &rows, 3, 80);
        let wide = "\ntitle, the first 1 of 3\n    faults   share  program: mapping\n         7  50.0 %  true: library libc.so.6\n";
        assert_eq!(text, wide);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        assert_eq!(cut("äbcd", 4), "äbcd");
        assert_eq!(cut("äbcde", 4), "äbc…");
    }
}
