//! The page of prices: answers of `figures/price`, proposals by recordings.
//!
//! `cargo xtask record-set --write` writes the files, one a recording. Here they become the matrix
//! of docs/price.md, with a key figure a cell, and a paragraph for each proposal with its ranges.
mod answers;
mod columns;

use super::table::FigureTable;
use crate::repository;
use columns::{COLUMNS, Column};
use ptarmigan_term::Mean;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// Directory of the files.
const DIRECTORY: &str = "figures/price";
/// The file of it that has no answers, but the prices of pages.
const PRICES: &str = "prices";
/// A cell without an answer.
const REFUSED: &str = "–";

/// The answers on a recording.
#[derive(Deserialize)]
struct PricedRecording {
    name: String,
    date: String,
    machine: PricedMachine,
    kernel_seconds: f64,
    faults: u64,
    answered: Vec<Answer>,
    refused: Vec<Refusal>,
}

#[derive(Deserialize)]
struct PricedMachine {
    cpus: u64,
    kernel: String,
}

#[derive(Deserialize)]
struct Answer {
    name: String,
    share: Option<f64>,
    counted: String,
    figures: Vec<AnswerFigure>,
}

#[derive(Deserialize)]
struct AnswerFigure {
    name: String,
    value: f64,
}

#[derive(Deserialize)]
struct Refusal {
    name: String,
    reason: String,
}

impl PricedRecording {
    fn answer(&self, proposal: &str) -> Option<&Answer> {
        self.answered.iter().find(|answer| answer.name == proposal)
    }
}

impl Answer {
    /// Returns a figure.
    ///
    /// # Errors
    /// If the answer has none of this name.
    fn figure(&self, name: &str) -> Result<f64, String> {
        let figure = self.figures.iter().find(|figure| figure.name == name);
        figure.map(|figure| figure.value).ok_or_else(|| format!("{} has no figure {name}", self.name))
    }
}

/// The answers on all recordings, by name.
pub struct PriceMatrix(Vec<PricedRecording>);

impl PriceMatrix {
    /// Reads all files below `root`.
    ///
    /// # Errors
    /// With the file that is wrong.
    pub fn read(root: &Path) -> Result<Self, String> {
        let directory = root.join(DIRECTORY);
        let entries = std::fs::read_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        let mut all: Vec<PricedRecording> = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| format!("{}: {e}", directory.display()))?.path();
            if !repository::is_kind(&path, "json") || path.file_stem().is_some_and(|name| name == PRICES) {
                continue;
            }
            let text = repository::read(&path)?;
            all.push(serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(PriceMatrix(all))
    }

    /// Returns the matrix: a row for each recording, a column for each proposal.
    ///
    /// # Errors
    /// With the figure that an answer lacks.
    pub fn table(&self) -> Result<FigureTable, String> {
        let mut heads = vec!["recording", "faults", "kernel, s"];
        heads.extend(COLUMNS.iter().map(|column| column.head));
        let rows = self.0.iter().map(|recording| {
            let faults = format!("{:.0}", Mean(recording.faults as f64));
            let seconds = format!("{:.2}", Mean(recording.kernel_seconds));
            let cells = COLUMNS.iter().map(|column| {
                let answer = recording.answer(column.proposal);
                answer.map_or(Ok(REFUSED.to_owned()), |answer| column.cell(answer))
            });
            let cells = cells.collect::<Result<Vec<_>, String>>();
            let cells = cells.map_err(|why| format!("{DIRECTORY}/{}.json: {why}", recording.name))?;
            Ok([vec![recording.name.clone(), faults, seconds], cells].concat())
        });
        let rows = rows.collect::<Result<Vec<_>, String>>()?;
        Ok(FigureTable::of_texts(&heads, rows)
            .with_remark(&self.machines(), "cargo xtask record-set --write"))
    }

    /// Returns the days and the machines of the recordings.
    fn machines(&self) -> String {
        let all: BTreeSet<String> = self
            .0
            .iter()
            .map(|recording| {
                let PricedMachine { cpus, kernel } = &recording.machine;
                format!("recorded on {}, {cpus} CPUs, Linux {kernel}", recording.date)
            })
            .collect();
        all.into_iter().collect::<Vec<_>>().join("; ")
    }

    /// Returns a paragraph for each proposal.
    ///
    /// # Errors
    /// With the figure that an answer lacks.
    pub fn answers(&self) -> Result<String, String> {
        answers::paragraphs(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a recording with an answer to `blocks` of so many percent, and none to `kpti`.
    pub(super) fn recording(name: &str, saved: f64, share: Option<f64>) -> PricedRecording {
        let answer = serde_json::json!({ "name": "blocks", "share": share,
            "counted": "Blocks of 32K take 3 of 4 faults away.",
            "figures": [{ "name": "faults saved at 32K", "value": saved, "unit": "%" }] });
        let refused = serde_json::json!([{ "name": "kpti", "reason": "it has no calls" }]);
        let document = serde_json::json!({ "name": name, "date": "2026-12-01", "faults": 1234,
            "machine": { "cpus": 2, "kernel": "6.18" }, "kernel_seconds": 0.5,
            "answered": [answer], "refused": refused });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn a_cell_has_the_key_figure_or_a_dash() {
        let matrix = PriceMatrix(vec![recording("a", 74.6, None)]);
        let mut tables = super::super::table::Tables::default();
        tables.add("price".to_owned(), matrix.table().unwrap()).unwrap();
        let page = tables.page("price").unwrap();
        assert!(page.contains("\n| a | 1,234 | 0.50 | 75 (32K) | – |"), "{page}");
        let remark = "\nRecorded on 2026-12-01, 2 CPUs, Linux 6.18; by `cargo xtask record-set --write`.\n";
        assert!(page.ends_with(remark), "{page}");
    }

    #[test]
    fn a_figure_that_is_missing_is_named_with_its_file() {
        let mut of = recording("a", 74.6, None);
        of.answered[0].figures.clear();
        let why = PriceMatrix(vec![of]).table().err().unwrap();
        assert_eq!(why, "figures/price/a.json: blocks has no figure faults saved at 32K");
    }

    #[test]
    fn the_files_have_all_proposals_of_the_matrix() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let matrix = PriceMatrix::read(&root).unwrap();
        assert!(!matrix.0.is_empty());
        for recording in &matrix.0 {
            let refused = |column: &&Column| {
                recording.answer(column.proposal).is_none()
                    && recording.refused.iter().all(|refused| refused.name != column.proposal)
            };
            let missing = COLUMNS.iter().find(refused).map(|column| column.proposal);
            assert_eq!(missing, None, "{}", recording.name);
        }
    }
}
