//! Rows of suites: from boots, or from JSON that was printed before.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::output::SuiteCase;
use crate::cases::CaseCounts;
use crate::rows::{Happened, median};

/// Instructions of the kernel in functions of one group, for each operation.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Part {
    pub group: String,
    pub instructions: f64,
}

/// Misses of modelled caches in an operation, and the cycles that the model makes of them.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Misses {
    /// Lines of data and of instructions that the first level lacks.
    pub first: f64,
    /// Of these, lines that the second level lacks, too.
    pub second: f64,
    /// Half a cycle for an instruction, 12 for each miss of the first level, 70 for each of the
    /// second.
    pub cycles: f64,
}

impl Misses {
    /// Divides the plugin's counts by a number of operations; `None` if no cache was modelled.
    fn of(counts: &CaseCounts, operations: f64) -> Option<Misses> {
        let [data, code, second] = counts.misses.map(|count| count as f64 / operations);
        let first = data + code;
        let instructions = (counts.programs + counts.kernel) as f64 / operations;
        let cycles = 0.5 * instructions + 12.0 * first + 70.0 * second;
        (first > 0.0).then_some(Misses { first, second, cycles })
    }
}

/// One case of one contender.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SuiteRow {
    pub suite: String,
    pub case: String,
    pub contender: String,
    /// Instructions of an operation: the median of all rounds.
    pub value: f64,
    /// Instructions, and their unit.
    pub unit: String,
    /// The least and the most of all rounds.
    pub range: [f64; 2],
    /// Table pages at the most, beyond those before the case.
    pub tables: Option<u64>,
    #[serde(flatten)]
    pub happened: Option<Happened>,
    /// Where the kernel's instructions go, with `--split`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// Misses of caches, with `--caches`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<Misses>,
}

impl SuiteRow {
    /// Makes a row of a case, with the plugin's counts if there are any. `groups` are the names of
    /// the groups that the plugin knows by number.
    pub fn of(
        suite: &str,
        contender: &str,
        case: &SuiteCase,
        counts: Option<&CaseCounts>,
        groups: &[&str],
    ) -> SuiteRow {
        let each = |count: u64| count as f64 / case.operations as f64;
        let mut all = case.counts.clone();
        let value = median(&mut all) / case.operations as f64;
        // The plugin counts pairs of marks, of all rounds together.
        let operations =
            counts.map_or(0.0, |counts| counts.times as f64 / case.spans as f64 * case.operations as f64);
        let parts = counts.into_iter().flat_map(|counts| groups.iter().zip(&counts.groups));
        SuiteRow {
            suite: suite.to_owned(),
            case: case.name.clone(),
            contender: contender.to_owned(),
            value,
            unit: format!("instructions/{}", case.unit),
            range: [each(all[0]), each(all[all.len() - 1])],
            tables: case.tables,
            happened: counts.map(|counts| Happened::of(counts, value, operations)),
            parts: parts
                .map(|(group, count)| Part {
                    group: (*group).to_owned(),
                    instructions: *count as f64 / operations,
                })
                .collect(),
            misses: counts.and_then(|counts| Misses::of(counts, operations)),
        }
    }
}

#[derive(Deserialize, Serialize)]
struct SuiteDocument {
    bench: String,
    rows: Vec<SuiteRow>,
}

/// Returns rows as JSON.
///
/// # Errors
///
/// A number that JSON does not have.
pub fn to_json(rows: &[SuiteRow]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&SuiteDocument { bench: "suite".to_owned(), rows: rows.to_vec() })
}

/// Reads rows of a suite from JSON.
///
/// # Errors
///
/// It is not of the form that [`to_json`] writes.
pub fn from_json(text: &str, suite: &str) -> serde_json::Result<Vec<SuiteRow>> {
    let document: SuiteDocument = serde_json::from_str(text)?;
    Ok(document.rows.into_iter().filter(|row| row.suite == suite).collect())
}

/// Reads rows from files, by `parse`. Of rows that are of the `same` the first counts.
///
/// # Errors
///
/// A file cannot be read, or is not of the form.
pub fn read<R>(
    files: &[PathBuf],
    parse: impl Fn(&str) -> serde_json::Result<Vec<R>>,
    same: impl Fn(&R, &R) -> bool,
) -> Result<Vec<R>, String> {
    let mut rows: Vec<R> = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        for row in parse(&text).map_err(|e| format!("{}: {e}", file.display()))? {
            if !rows.iter().any(|other| same(other, &row)) {
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Finds a row.
pub fn find<'a>(rows: &'a [SuiteRow], case: &str, contender: &str) -> Option<&'a SuiteRow> {
    rows.iter().find(|row| row.case == case && row.contender == contender)
}

/// Returns the names of the cases, in the order of their first rows.
pub fn cases(rows: &[SuiteRow]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&&*row.case) {
            names.push(&row.case);
        }
    }
    names
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A row without counts.
    pub fn row(case: &str, contender: &str, value: f64) -> SuiteRow {
        SuiteRow {
            suite: "ours".into(),
            case: case.into(),
            contender: contender.into(),
            value,
            unit: "instructions/page".into(),
            range: [value, value],
            tables: None,
            happened: None,
            parts: Vec::new(),
            misses: None,
        }
    }

    #[test]
    fn values_are_for_one_operation() {
        let case = SuiteCase {
            index: 0,
            name: "fork".into(),
            unit: "operation".into(),
            spans: 2,
            operations: 4,
            tables: Some(3),
            counts: vec![40, 48, 44],
        };
        // Three rounds of two pairs of marks: twelve operations.
        let counts = CaseCounts {
            times: 6,
            programs: 12,
            kernel: 120,
            forgotten: 24,
            cleared: [6, 0, 6, 0],
            misses: [30, 6, 12],
            groups: vec![36, 84],
            ..CaseCounts::default()
        };
        let row = SuiteRow::of("ours", "who", &case, Some(&counts), &["one", "two"]);
        assert_eq!((row.value, row.range), (11.0, [10.0, 12.0]));
        let happened = row.happened.expect("counts");
        assert_eq!((happened.programs, happened.kernel), (1.0, 10.0));
        assert_eq!((happened.page_invalidations, happened.all_cleared()), (2.0, 1.0));
        let parts: Vec<f64> = row.parts.iter().map(|part| part.instructions).collect();
        assert_eq!(parts, [3.0, 7.0]);
        // 11 instructions, 3 misses of the first level, 1 of the second.
        assert_eq!(row.misses, Some(Misses { first: 3.0, second: 1.0, cycles: 5.5 + 36.0 + 70.0 }));
        let alone = SuiteRow::of("ours", "who", &case, None, &["one"]);
        assert!(alone.happened.is_none() && alone.parts.is_empty() && alone.misses.is_none());
    }

    #[test]
    fn rows_come_back_from_json() {
        let rows =
            [row("fork", "plain-x86_64", 4.5), SuiteRow { suite: "other".into(), ..row("x", "y", 1.0) }];
        let text = to_json(&rows).expect("JSON");
        let back = from_json(&text, "ours").expect("rows");
        assert_eq!((back.len(), back[0].value, cases(&back)), (1, 4.5, vec!["fork"]));
        assert!(back[0].happened.is_none());
        assert!(from_json("{}", "ours").is_err());
    }
}
