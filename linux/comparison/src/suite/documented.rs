//! Compares rows with the tables of a file of figures.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use toml::Value;

use super::row::SuiteRow;
use crate::rows::Row;

/// A value may be so many times above the file's.
pub const TOLERANCE: f64 = 1.03;

/// A table of figures: `cargo xtask figures` makes pages of it.
#[derive(Deserialize)]
pub struct FigureTable {
    /// The suite or the program that its rows are of.
    #[serde(default)]
    pub suite: String,
    #[serde(default)]
    pub columns: Vec<String>,
    #[serde(default)]
    pub rows: Vec<Vec<Value>>,
}

impl FigureTable {
    /// Returns the names of row and column of each cell that is a number.
    pub fn numbers(&self) -> impl Iterator<Item = (&str, &str, f64)> {
        self.rows.iter().flat_map(|row| {
            let name = row.first().and_then(Value::as_str).unwrap_or_default();
            self.columns.iter().zip(row).skip(1).filter_map(move |(column, cell)| {
                let value = cell.as_float().or_else(|| cell.as_integer().map(|value| value as f64))?;
                Some((name, column.as_str(), value))
            })
        })
    }
}

/// Reads the tables of a file.
///
/// # Errors
///
/// The text is no file of tables.
pub fn tables(text: &str) -> Result<BTreeMap<String, FigureTable>, String> {
    toml::from_str(text).map_err(|e| e.to_string())
}

/// Returns the values of a suite by case and contender. A table's rows are cases, or contenders if
/// its first column is.
fn values(text: &str, suite: &str) -> Result<HashMap<(String, String), f64>, String> {
    let mut values = HashMap::new();
    for table in tables(text)?.values().filter(|table| table.suite == suite) {
        let of_contenders = table.columns.first().is_some_and(|column| column == "contender");
        for (row, column, value) in table.numbers() {
            let (case, contender) = if of_contenders { (column, row) } else { (row, column) };
            values.entry((case.to_owned(), contender.to_owned())).or_insert(value);
        }
    }
    Ok(values)
}

/// Reads a file, and refuses rows of which `above` says that they are above it.
///
/// # Errors
///
/// The file cannot be read; a row is above it.
pub fn check(file: &Path, above: impl FnOnce(&str) -> Result<Vec<String>, String>) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let above = above(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    if above.is_empty() { Ok(()) } else { Err(format!("above {}: {}", file.display(), above.join("; "))) }
}

/// A value: its case, its contender and the number.
pub type CaseValue<'a> = (&'a str, &'a str, f64);

/// Returns the values of a suite's rows.
pub fn of_suite(rows: &[SuiteRow]) -> Vec<CaseValue<'_>> {
    rows.iter().map(|row| (row.case.as_str(), row.contender.as_str(), row.value)).collect()
}

/// Returns the values of a program's rows.
pub fn of_program(rows: &[Row]) -> Vec<CaseValue<'_>> {
    rows.iter().map(|row| (row.case, row.contender, row.value)).collect()
}

/// Returns a line for each value that is more than 3 % above the file's, or that it has not.
///
/// # Errors
///
/// The text is no file of tables.
pub fn above(rows: &[CaseValue<'_>], text: &str, suite: &str) -> Result<Vec<String>, String> {
    let values = values(text, suite)?;
    let line = |&(case, contender, value): &CaseValue<'_>| {
        let name = format!("{contender} {case}: {value:.1}");
        match values.get(&(case.to_owned(), contender.to_owned())) {
            None => Some(format!("{name}, and the file has no value")),
            // Values are rounded there, to a tenth at the least.
            Some(most) if value > most * TOLERANCE + 0.05 => Some(format!("{name}, documented {most}")),
            Some(_) => None,
        }
    };
    Ok(rows.iter().filter_map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    const TEXT: &str = "[a]\nsuite = \"other\"\ncolumns = [\"case\", \"ptarmigan-x86_64\"]\nrows = [[\"fork\", 7]]\n\n\
                        [b]\nsuite = \"ours\"\ncolumns = [\"case\", \"for a\", \"ptarmigan-x86_64\"]\n\
                        rows = [[\"fork\", \"page\", 1000]]\n\n\
                        [c]\nsuite = \"faults\"\ncolumns = [\"contender\", \"fork\"]\nrows = [[\"ptarmigan-x86_64\", 50.5]]\n";

    #[test]
    fn a_row_may_be_three_hundredths_above_the_files() {
        let of =
            |value, suite| above(&of_suite(&[row("fork", "ptarmigan-x86_64", value)]), TEXT, suite).unwrap();
        assert!(of(1_030.0, "ours").is_empty() && of(10.0, "ours").is_empty());
        assert_eq!(of(1_031.0, "ours"), ["ptarmigan-x86_64 fork: 1031.0, documented 1000"]);
        assert_eq!(of(7.0, "other"), [""; 0]);
        assert_eq!(of(52.0, "faults"), [""; 0]);
        assert_eq!(of(53.0, "faults").len(), 1, "a table of contenders");
    }

    #[test]
    fn a_row_that_the_file_has_not_is_named() {
        for row in [row("exit", "ptarmigan-x86_64", 1.0), row("fork", "plain-x86_64", 1.0)] {
            assert_eq!(above(&of_suite(&[row]), TEXT, "ours").unwrap().len(), 1);
        }
        assert!(above(&[], "| no | tables |", "ours").is_err());
    }
}
