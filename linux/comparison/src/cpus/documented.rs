//! Compares rows with the tables of a file of figures.

use std::collections::HashMap;

use super::row::CpuRow;
use super::show;
use crate::suite::documented::{TOLERANCE, tables};

/// A value may be above the file's by as many events for an operation, if 3 % of it are fewer. They
/// depend on the moments of ticks.
const EVENTS: f64 = 0.01;
/// Values have as many decimals in the file.
const ROUNDED: f64 = 0.0005;

/// Whether a column decides: Linux's have a spread, and of CPUs that caught up each has its time.
fn is_compared(column: &str) -> bool {
    !column.starts_with("Linux: ") && !column.ends_with(": caught up")
}

/// Returns the numbers of all tables of a file, by case and CPUs, and column.
fn cells(text: &str) -> Result<HashMap<(String, String), f64>, String> {
    let mut cells = HashMap::new();
    for table in tables(text)?.values() {
        let compared = table.numbers().filter(|(_, column, _)| is_compared(column));
        cells.extend(compared.map(|(row, column, value)| ((row.to_owned(), column.to_owned()), value)));
    }
    Ok(cells)
}

/// Returns a line for each value that is above the file's by more than 3 % and by more than
/// [`EVENTS`], or that it has not.
///
/// # Errors
///
/// The text is no file of tables.
pub fn above(rows: &[CpuRow], text: &str) -> Result<Vec<String>, String> {
    let documented = cells(text)?;
    let mut lines: Vec<String> = Vec::new();
    for ((row, column), value) in cells(&show::figures(rows))? {
        let name = format!("{row} CPUs, {column}: {value}");
        match documented.get(&(row, column)) {
            Some(most) if value <= (most * TOLERANCE).max(most + EVENTS) + ROUNDED => {}
            Some(most) => lines.push(format!("{name}, documented {most}")),
            None => lines.push(format!("{name}, and the file has no value")),
        }
    }
    lines.sort_unstable();
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;
    use crate::contender::{LINUX_64, OURS_64};

    #[test]
    fn a_value_may_be_three_hundredths_above_the_files() {
        let ours = |requests| row("idle", OURS_64, 4, &[("requests", requests)]);
        let document = show::figures(&[ours(1.0)]);
        let lines = |requests| above(&[ours(requests)], &document).unwrap();
        assert!(lines(1.03).is_empty() && lines(0.1).is_empty());
        assert_eq!(lines(1.04), ["idle, 4 CPUs, interrupt: requests: 1.04, documented 1"]);
        assert_eq!(above(&[ours(1.0)], "").unwrap().len(), 2, "requests and pages");
    }

    #[test]
    fn a_value_near_zero_may_exceed_the_files_by_0_01() {
        let ours = |requests| row("idle", OURS_64, 4, &[("requests", requests)]);
        for documented in [0.0, 0.003, 0.2] {
            let document = show::figures(&[ours(documented)]);
            let lines = |more: f64| above(&[ours(documented + more)], &document).unwrap().len();
            assert_eq!([lines(-0.003), lines(0.01), lines(0.011)], [0, 0, 1], "{documented}");
        }
    }

    #[test]
    fn values_of_linux_are_not_compared() {
        let linux = |requests| row("idle", LINUX_64, 4, &[("requests", requests)]);
        assert!(above(&[linux(9.0)], &show::figures(&[linux(1.0)])).unwrap().is_empty());
    }
}
