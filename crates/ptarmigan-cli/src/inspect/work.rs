//! Prints the work of a recording by mapping and by function.
use ptarmigan_replay::{FunctionWork, MappingWork, Work};
use std::fmt::Write;

/// The most rows of a table.
const TOP: usize = 10;

/// Below so many columns a row is two lines: its numbers, then its names.
const NARROW: usize = 60;

/// Calls that make a task.
const FORKS: [&str; 3] = ["fork", "vfork", "clone"];

/// Formats the tables, with lines of at most `width` columns.
pub(super) fn tables(work: &Work, width: usize) -> String {
    let mut text = String::new();
    let rows: Vec<Row> = work.mappings.iter().take(TOP).map(mapping).collect();
    let head = ["    faults   share  tables", "address         program: mapping"].map(str::to_owned);
    table(&mut text, "faults by mapping", &head, &rows, work.mappings.len(), width);
    let faults = |row: &&FunctionWork| row.work == "fault";
    let forks = |row: &&FunctionWork| FORKS.contains(&row.work);
    functions(&mut text, "faults by function", "    faults", work.functions.iter().filter(faults), width);
    functions(&mut text, "forks by caller", "     forks", work.functions.iter().filter(forks), width);
    let calls = work.functions.iter().filter(|row| !faults(row) && !forks(row));
    functions(&mut text, "other calls by caller", "     calls", calls, width);
    text
}

fn functions<'a>(
    text: &mut String,
    title: &str,
    count: &str,
    rows: impl Iterator<Item = &'a FunctionWork>,
    width: usize,
) {
    let rows: Vec<&FunctionWork> = rows.collect();
    let timed = rows.iter().any(|row| row.seconds.is_some());
    let numbers = format!("{count}   share{}", if timed { "   seconds" } else { "" });
    let head = [numbers, "program: function".to_owned()];
    let lines: Vec<Row> = rows.iter().take(TOP).map(|row| function(row, timed)).collect();
    table(text, title, &head, &lines, rows.len(), width);
}

/// The numbers of a row, and its names.
type Row = [String; 2];

fn table(text: &mut String, title: &str, head: &Row, rows: &[Row], all: usize, width: usize) {
    if rows.is_empty() {
        return;
    }
    let more = if all > rows.len() { format!(", the first {} of {all}", rows.len()) } else { String::new() };
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

fn mapping(row: &MappingWork) -> Row {
    let size = if row.bytes > 0 { format!(" of {}", size(row.bytes)) } else { String::new() };
    let others = if row.mappings > 1 { format!(" and {} more", row.mappings - 1) } else { String::new() };
    let address = row.address.as_deref().unwrap_or("-");
    [
        format!("{:>10} {:>5.1} %  {:>6}", row.faults, 100.0 * row.share, row.tables),
        format!("{address:<14}  {}: {}{size}{others}", row.program, row.label()),
    ]
}

fn function(row: &FunctionWork, timed: bool) -> Row {
    let seconds = match (timed, row.seconds) {
        (true, Some(seconds)) => format!("  {seconds:>8.3}"),
        (true, None) => format!("  {:>8}", "-"),
        (false, _) => String::new(),
    };
    // A module that is not the program itself, and a call that is not a fork.
    let module = row.module.as_deref().filter(|module| *module != row.program);
    let module = module.map(|module| format!(" in {module}")).unwrap_or_default();
    let call =
        if row.work == "fault" || row.work == "fork" { String::new() } else { format!("{} by ", row.work) };
    [
        format!("{:>10} {:>5.1} %{seconds}", row.events, 100.0 * row.share),
        format!("{}: {call}{}{module}", row.program, row.label()),
    ]
}

fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB")];
    let unit = units.iter().find(|(shift, _)| bytes >> shift > 0);
    unit.map_or_else(
        || format!("{} KiB", bytes >> 10),
        |(shift, name)| format!("{:.1} {name}", bytes as f64 / f64::from(1_u32 << shift)),
    )
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
        assert_eq!([4 << 10, 3 << 19, 1 << 31].map(size), ["4 KiB", "1.5 MiB", "2.0 GiB"]);
    }
}
