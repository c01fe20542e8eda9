//! Compares rows with the tables of a document.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::row::SuiteRow;

/// A value may be so many times above the document's.
pub const TOLERANCE: f64 = 1.03;

/// Returns the values of a suite by case and contender: from tables whose first column is `case`,
/// in the part of the document below the heading that names the suite.
fn values(document: &str, suite: &str) -> HashMap<(String, String), f64> {
    let (mut values, mut header, mut is_inside) = (HashMap::new(), Vec::new(), false);
    for line in document.lines() {
        if line.starts_with('#') {
            is_inside = line.contains(&format!("`{suite}`"));
        }
        if line.starts_with("|---") {
            continue;
        }
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else {
            header.clear();
            continue;
        };
        let cells: Vec<&str> = row.split(" | ").map(|cell| cell.trim_matches('`')).collect();
        if cells[0] == "case" {
            header = cells;
        } else if is_inside && header.len() == cells.len() {
            for (contender, cell) in header.iter().zip(&cells).skip(1) {
                if let Ok(value) = cell.replace(',', "").parse() {
                    values.entry((cells[0].to_owned(), (*contender).to_owned())).or_insert(value);
                }
            }
        }
    }
    values
}

/// Reads a document, and refuses rows of which `above` says that they are above it.
///
/// # Errors
///
/// The document cannot be read; a row is above it.
pub fn check(file: &Path, above: impl FnOnce(&str) -> Vec<String>) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let above = above(&text);
    if above.is_empty() { Ok(()) } else { Err(format!("above {}: {}", file.display(), above.join("; "))) }
}

/// Returns a line for each row that is more than 3 % above the document's, or that it has not.
pub fn above(rows: &[SuiteRow], document: &str, suite: &str) -> Vec<String> {
    let values = values(document, suite);
    let line = |row: &SuiteRow| {
        let name = format!("{} {}: {:.1}", row.contender, row.case, row.value);
        match values.get(&(row.case.clone(), row.contender.clone())) {
            None => Some(format!("{name}, and the document has no value")),
            // Values are rounded there, to a tenth at the least.
            Some(most) if row.value > most * TOLERANCE + 0.05 => Some(format!("{name}, documented {most}")),
            Some(_) => None,
        }
    };
    rows.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    const TEXT: &str = "# Suites\n\n## `other`\n\n| case | for a | `ptarmigan-x86_64` |\n|---|---|---|\n| `fork` | page | 7 |\n\n\
                        ## The suite `ours`\n\n| case | for a | `ptarmigan-x86_64` |\n|---|---|---|\n| `fork` | page | 1,000 |\n";

    #[test]
    fn a_row_may_be_three_hundredths_above_the_documents() {
        let all = |value| above(&[row("fork", "ptarmigan-x86_64", value)], TEXT, "ours");
        assert!(all(1_030.0).is_empty() && all(10.0).is_empty());
        assert_eq!(all(1_031.0), ["ptarmigan-x86_64 fork: 1031.0, documented 1000"]);
        assert_eq!(above(&[row("fork", "ptarmigan-x86_64", 7.0)], TEXT, "other"), [""; 0]);
    }

    #[test]
    fn a_row_that_the_document_has_not_is_named() {
        for row in [row("exit", "ptarmigan-x86_64", 1.0), row("fork", "plain-x86_64", 1.0)] {
            assert_eq!(above(&[row], TEXT, "ours").len(), 1);
        }
    }
}
