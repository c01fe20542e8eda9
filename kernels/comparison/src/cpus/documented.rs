//! Compares rows with the tables of a document.

use std::collections::HashMap;

use super::row::CpuRow;
use super::show;
use crate::suite::documented::TOLERANCE;

/// A value may be above the document's by as many events for an operation, if 3 % of it are fewer.
/// They depend on the moments of ticks, and docs/suites.md states the number.
const EVENTS: f64 = 0.01;
/// Values have as many decimals in the document.
const ROUNDED: f64 = 0.0005;

/// Titles of columns that decide nothing: Linux's, which have a spread, and CPUs that caught up,
/// of which each has its time.
fn is_compared(title: &str, of_linux: bool) -> bool {
    !of_linux && title != "caught up"
}

/// Returns the cells of all tables whose first column is `case` and third one `CPUs`, by case, CPUs
/// and column.
fn cells(text: &str) -> HashMap<(String, String, String), String> {
    let (mut cells, mut titles) = (HashMap::new(), Vec::new());
    for line in text.lines() {
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else {
            if !line.starts_with("|---") {
                titles.clear();
            }
            continue;
        };
        let row: Vec<&str> = row.split(" | ").collect();
        if row.first() == Some(&"case") {
            titles = if row.get(2) == Some(&"CPUs") { row } else { Vec::new() };
            continue;
        }
        if titles.len() != row.len() {
            continue;
        }
        // A title without a name of its own is of the group before it.
        let mut group = "";
        for (title, cell) in titles.iter().zip(&row).skip(3) {
            let name = match title.split_once(": ") {
                Some((before, name)) => {
                    group = before;
                    name
                }
                None => title,
            };
            if is_compared(name, group == "Linux") {
                let key = (row[0].to_owned(), row[2].to_owned(), format!("{group}: {name}"));
                cells.insert(key, (*cell).to_owned());
            }
        }
    }
    cells
}

/// Returns a line for each value that is above the document's by more than 3 % and by more than
/// [`EVENTS`], or that it has not.
pub fn above(rows: &[CpuRow], document: &str) -> Vec<String> {
    let documented = cells(document);
    let mut lines: Vec<String> = Vec::new();
    for ((case, cpus, column), now) in cells(&show::markdown(rows)) {
        let Ok(value) = now.parse::<f64>() else { continue };
        let name = format!("{case} on {cpus} CPUs, {column}: {now}");
        match documented.get(&(case, cpus, column)).map(|cell| cell.parse::<f64>()) {
            Some(Ok(most)) if value <= (most * TOLERANCE).max(most + EVENTS) + ROUNDED => {}
            Some(Ok(most)) => lines.push(format!("{name}, documented {most}")),
            _ => lines.push(format!("{name}, and the document has no value")),
        }
    }
    lines.sort_unstable();
    lines
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;
    use crate::contender::{LINUX_64, OURS_64};

    #[test]
    fn a_value_may_be_three_hundredths_above_the_documents() {
        let ours = |requests| row("idle", OURS_64, 4, &[("requests", requests)]);
        let document = show::markdown(&[ours(1.0)]);
        let lines = |requests| above(&[ours(requests)], &document);
        assert!(lines(1.03).is_empty() && lines(0.1).is_empty());
        assert_eq!(lines(1.04), ["`idle` on 4 CPUs, `interrupt`: requests: 1.04, documented 1"]);
        assert_eq!(above(&[ours(1.0)], "").len(), 2, "requests and pages");
    }

    #[test]
    fn a_value_near_zero_may_be_a_hundredth_of_an_event_above_the_documents() {
        let ours = |requests| row("idle", OURS_64, 4, &[("requests", requests)]);
        for documented in [0.0, 0.003, 0.2] {
            let document = show::markdown(&[ours(documented)]);
            let lines = |more: f64| above(&[ours(documented + more)], &document).len();
            assert_eq!([lines(-0.003), lines(0.01), lines(0.011)], [0, 0, 1], "{documented}");
        }
    }

    #[test]
    fn values_of_linux_are_not_compared() {
        let linux = |requests| row("idle", LINUX_64, 4, &[("requests", requests)]);
        assert!(above(&[linux(9.0)], &show::markdown(&[linux(1.0)])).is_empty());
    }
}
