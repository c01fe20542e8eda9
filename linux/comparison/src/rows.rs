//! Rows: for each case and contender, the median of all rounds, and counts of events meanwhile.

use serde::{Deserialize, Serialize};

use crate::cases::{BY, CaseCounts, MeasuredProgram};
use crate::contender::Contender;
use crate::guest::BootResults;

/// Pages cleared or copied by one kind of instruction, for each operation.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PageCounts {
    pub by: String,
    pub pages: f64,
}

/// Events in one operation, on average.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Happened {
    /// Instructions of programs.
    pub programs: f64,
    /// Instructions of the kernel.
    pub kernel: f64,
    /// The value with each page that is cleared or copied counted as one instruction.
    pub pages_as_one: f64,
    pub cleared: Vec<PageCounts>,
    pub copied: Vec<PageCounts>,
    /// Single pages that the TLB was told to forget.
    pub page_invalidations: f64,
    pub root_loads: f64,
}

impl Happened {
    /// Divides the plugin's counts by a number of operations, each of which takes `value`
    /// instructions.
    pub fn of(counts: &CaseCounts, value: f64, operations: f64) -> Happened {
        let each = |count: u64| count as f64 / operations;
        let pages = |all: &[u64]| {
            let named = BY.iter().zip(all).filter(|(_, count)| **count > 0);
            named.map(|(by, count)| PageCounts { by: (*by).into(), pages: each(*count) }).collect()
        };
        let written: u64 = counts.cleared.iter().chain(&counts.copied).sum();
        Happened {
            programs: each(counts.programs),
            kernel: each(counts.kernel),
            pages_as_one: value - each(counts.page_instructions) + each(written),
            cleared: pages(&counts.cleared),
            copied: pages(&counts.copied),
            page_invalidations: each(counts.forgotten),
            root_loads: each(counts.roots),
        }
    }

    /// Pages that are cleared, by any instruction.
    pub fn all_cleared(&self) -> f64 {
        self.cleared.iter().fold(0.0, |sum, pages| sum + pages.pages)
    }
}

/// One case of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub case: &'static str,
    pub contender: &'static str,
    /// Instructions of an operation: the median.
    pub value: f64,
    pub unit: &'static str,
    /// The least and the most of all rounds.
    pub range: [u64; 2],
    #[serde(flatten)]
    pub happened: Option<Happened>,
}

pub fn median(values: &mut [u64]) -> f64 {
    values.sort_unstable();
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    (low + high) as f64 / 2.0
}

/// Makes the rows of a contender from its boots.
pub fn of(program: &MeasuredProgram, contender: &Contender, boots: &[BootResults]) -> Vec<Row> {
    let counts = boots.iter().find_map(|boot| boot.counts.as_ref());
    let rows = program.cases.iter().enumerate().map(|(index, case)| {
        // Marks have no effect, and the plugin is not seen by the guest: its boot counts like
        // others.
        let mut values: Vec<u64> = boots.iter().flat_map(|boot| boot.values[index].iter().copied()).collect();
        let value = median(&mut values);
        let happened = counts.map(|counts| {
            let counts = &counts[index];
            Happened::of(counts, value, (counts.times * case.operations) as f64)
        });
        let range = [values[0], values[values.len() - 1]];
        Row { case: case.name, contender: contender.name, value, unit: "instructions", range, happened }
    });
    rows.collect()
}

/// Finds a row.
pub fn find<'a>(rows: &'a [Row], case: &str, contender: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.case == case && row.contender == contender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(median(&mut [5, 1, 9]), 5.0);
        assert_eq!(median(&mut [5, 1, 9, 6]), 5.5);
    }
}
