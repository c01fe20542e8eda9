//! Rows of the suite `cpus`: a case of one contender on a number of CPUs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cases::CaseCounts;
use crate::rows::median;
use crate::suite::output::SuiteCase;

/// A counter of a kernel, for each operation of a case.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Each {
    /// The median of all rounds.
    pub value: f64,
    /// The least and the most of them.
    pub range: [f64; 2],
}

/// One case of one contender.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CpuRow {
    pub case: String,
    pub contender: String,
    pub cpus: u8,
    /// The thing that values are for.
    pub unit: String,
    /// The kernel's counters by their keys (`linux/programs/suites/cpus.c`).
    pub counts: BTreeMap<String, Each>,
    /// Pages that TLBs were told to forget, one by one, on all CPUs, and roots loaded: by QEMU's
    /// plugin, which counts both kernels alike.
    pub flushed_pages: Option<f64>,
    pub root_loads: Option<f64>,
}

/// Returns the values of a counter in each round of a case, in the output of a boot.
///
/// # Errors
///
/// A line that is malformed.
fn counters(text: &str, case: &str) -> Result<BTreeMap<String, Vec<u64>>, String> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.split_once("COUNT ").map(|(_, rest)| rest.trim())) {
        let words: Vec<&str> = line.split(' ').collect();
        let &[name, _, key, number] = &words[..] else { return Err(format!("malformed: COUNT {line}")) };
        if name == case {
            let number = number.parse().map_err(|e| format!("COUNT {line}: {e}"))?;
            all.entry(key.to_owned()).or_default().push(number);
        }
    }
    Ok(all)
}

impl CpuRow {
    /// Makes the row of a case from the output of its boot, with the plugin's counts if there are
    /// any.
    ///
    /// # Errors
    ///
    /// A counter that was not printed for each round.
    pub fn of(
        (contender, cpus): (&str, u8),
        case: &SuiteCase,
        text: &str,
        counted: Option<&CaseCounts>,
    ) -> Result<CpuRow, String> {
        let rounds = case.counts.len();
        let operations = case.operations as f64;
        let mut counts = BTreeMap::new();
        for (key, mut values) in counters(text, &case.name)? {
            if values.len() != rounds {
                return Err(format!("{}: {key} of {} rounds, not {rounds}", case.name, values.len()));
            }
            let value = median(&mut values) / operations;
            let range = [values[0], values[rounds - 1]].map(|count| count as f64 / operations);
            counts.insert(key, Each { value, range });
        }
        if !counts.contains_key("requests") {
            return Err(format!("{}: the kernel counts no requests", case.name));
        }
        // The plugin counts all rounds together.
        let each = |count: u64| count as f64 / (rounds as f64 * operations);
        Ok(CpuRow {
            case: case.name.clone(),
            contender: contender.to_owned(),
            cpus,
            unit: case.unit.clone(),
            counts,
            flushed_pages: counted.map(|counts| each(counts.forgotten)),
            root_loads: counted.map(|counts| each(counts.roots)),
        })
    }

    /// Returns a counter for each operation.
    pub fn count(&self, key: &str) -> Option<Each> {
        self.counts.get(key).copied()
    }
}

#[derive(Deserialize, Serialize)]
struct CpusDocument {
    bench: String,
    rows: Vec<CpuRow>,
}

/// Returns rows as JSON.
///
/// # Errors
///
/// A number that JSON does not have.
pub fn to_json(rows: &[CpuRow]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&CpusDocument { bench: super::SUITE.to_owned(), rows: rows.to_vec() })
}

/// Reads rows from JSON.
///
/// # Errors
///
/// It is not of the form that [`to_json`] writes.
pub fn from_json(text: &str) -> serde_json::Result<Vec<CpuRow>> {
    Ok(serde_json::from_str::<CpusDocument>(text)?.rows)
}

/// Finds a row.
pub fn find<'a>(rows: &'a [CpuRow], case: &str, contender: &str, cpus: u8) -> Option<&'a CpuRow> {
    rows.iter().find(|row| row.case == case && row.contender == contender && row.cpus == cpus)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A row with counters of which each has one value.
    pub fn row(case: &str, contender: &str, cpus: u8, counts: &[(&str, f64)]) -> CpuRow {
        let each =
            |(key, value): &(&str, f64)| ((*key).to_owned(), Each { value: *value, range: [*value; 2] });
        CpuRow {
            case: case.into(),
            contender: contender.into(),
            cpus,
            unit: "page".into(),
            counts: counts.iter().map(each).collect(),
            flushed_pages: Some(2.0),
            root_loads: None,
        }
    }

    fn case() -> SuiteCase {
        SuiteCase {
            index: 0,
            name: "idle".into(),
            unit: "page".into(),
            spans: 1,
            operations: 4,
            tables: None,
            counts: vec![1, 2, 3],
        }
    }

    const TEXT: &str = "COUNT idle 0 requests 8\r\nCOUNT idle 1 requests 12\r\nCOUNT idle 2 requests 4\r\n\
                        COUNT cow 0 requests 400\r\n";

    #[test]
    fn counters_are_for_one_operation_and_have_a_spread() {
        let counted = CaseCounts { times: 3, forgotten: 24, roots: 6, ..CaseCounts::default() };
        let row = CpuRow::of(("who", 2), &case(), TEXT, Some(&counted)).expect("a row");
        assert_eq!(row.count("requests"), Some(Each { value: 2.0, range: [1.0, 3.0] }));
        assert_eq!((row.flushed_pages, row.root_loads), (Some(2.0), Some(0.5)));
        assert_eq!((row.count("deferred"), row.cpus), (None, 2));
    }

    #[test]
    fn output_without_a_round_is_refused() {
        let lost = TEXT.replace("COUNT idle 1 requests 12\r\n", "");
        assert!(CpuRow::of(("who", 2), &case(), &lost, None).is_err());
        assert!(CpuRow::of(("who", 2), &case(), "", None).is_err());
        let malformed = TEXT.replace("requests 12", "requests");
        assert!(CpuRow::of(("who", 2), &case(), &malformed, None).is_err());
    }

    #[test]
    fn rows_come_back_from_json() {
        let rows = [row("idle", "who", 4, &[("requests", 3.0)])];
        let back = from_json(&to_json(&rows).expect("JSON")).expect("rows");
        let found = find(&back, "idle", "who", 4).expect("the row");
        assert_eq!(found.count("requests"), rows[0].count("requests"));
        assert!(find(&back, "idle", "who", 2).is_none() && from_json("{}").is_err());
    }
}
