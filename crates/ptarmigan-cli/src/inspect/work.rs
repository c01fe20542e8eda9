//! Prints the work of a recording by mapping and by function.
use ptarmigan_replay::{FunctionWork, MappingWork, Work};
use std::fmt::Write;

/// The most rows of a table.
const TOP: usize = 10;

/// Calls that make a task.
const FORKS: [&str; 3] = ["fork", "vfork", "clone"];

/// Formats the tables, with lines of at most `width` columns.
pub(super) fn tables(work: &Work, width: usize) -> String {
    let mut text = String::new();
    let rows: Vec<String> = work.mappings.iter().take(TOP).map(mapping).collect();
    let head = "    faults   share  tables  address         program: mapping";
    table(&mut text, "faults by mapping", head, &rows, work.mappings.len(), width);
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
    let head = format!("{count}   share  {}program: function", if timed { " seconds  " } else { "" });
    let lines: Vec<String> = rows.iter().take(TOP).map(|row| function(row, timed)).collect();
    table(text, title, &head, &lines, rows.len(), width);
}

fn table(text: &mut String, title: &str, head: &str, rows: &[String], all: usize, width: usize) {
    if rows.is_empty() {
        return;
    }
    let more = if all > rows.len() { format!(", the first {} of {all}", rows.len()) } else { String::new() };
    let _ = writeln!(text, "\n{title}{more}\n{head}");
    for row in rows {
        let _ = writeln!(text, "{}", cut(row, width));
    }
}

/// Cuts a line that is too long, and marks the cut.
fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn mapping(row: &MappingWork) -> String {
    let size = if row.bytes > 0 { format!(" of {}", size(row.bytes)) } else { String::new() };
    let others = if row.mappings > 1 { format!(" and {} more", row.mappings - 1) } else { String::new() };
    format!(
        "{:>10} {:>5.1} %  {:>6}  {:<14}  {}: {}{size}{others}",
        row.faults,
        100.0 * row.share,
        row.tables,
        row.address.as_deref().unwrap_or("-"),
        row.program,
        row.label(),
    )
}

fn function(row: &FunctionWork, timed: bool) -> String {
    let seconds = match (timed, row.seconds) {
        (true, Some(seconds)) => format!("{seconds:>8.3}  "),
        (true, None) => format!("{:>8}  ", "-"),
        (false, _) => String::new(),
    };
    // A module that is not the program itself, and a call that is not a fork.
    let module = row.module.as_deref().filter(|module| *module != row.program);
    let module = module.map(|module| format!(" in {module}")).unwrap_or_default();
    let call =
        if row.work == "fault" || row.work == "fork" { String::new() } else { format!("{} by ", row.work) };
    format!(
        "{:>10} {:>5.1} %  {seconds}{}: {call}{}{module}",
        row.events,
        100.0 * row.share,
        row.program,
        row.label(),
    )
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
    fn a_line_that_is_too_long_is_cut() {
        assert_eq!(cut("äbcd", 4), "äbcd");
        assert_eq!(cut("äbcde", 4), "äbc…");
        assert_eq!([4 << 10, 3 << 19, 1 << 31].map(size), ["4 KiB", "1.5 MiB", "2.0 GiB"]);
    }
}
