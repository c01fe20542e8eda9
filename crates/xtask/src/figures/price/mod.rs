//! The page of prices: answers of `figures/price`, proposals by recordings.
//!
//! `cargo xtask record-set --write` writes the files, one a recording. Here they become the matrix
//! of docs/price.md, with a key figure a cell, and a paragraph for each proposal with its ranges.
mod answers;
mod columns;
mod recording;

use super::table::FigureTable;
use crate::repository;
use columns::COLUMNS;
use ptarmigan_term::Mean;
use recording::{PricedMachine, PricedRecording};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Directory of the files.
const DIRECTORY: &str = "figures/price";
/// The file of it that has no answers, but the prices of pages.
const PRICES: &str = "prices";
/// The command that writes the files.
const COMMAND: &str = "cargo xtask record-set --write";
/// A cell without an answer.
const REFUSED: &str = "–";

/// The file of prices, as far as the page says where they are from.
#[derive(Default, Deserialize)]
struct PriceList {
    host: PricedHost,
    page_prices: LoadAverage,
}

#[derive(Default, Deserialize)]
struct PricedHost {
    cpu: String,
}

#[derive(Default, Deserialize)]
struct LoadAverage {
    load: f64,
}

/// The answers on all recordings, by name.
#[derive(Default)]
pub struct PriceMatrix {
    recordings: Vec<PricedRecording>,
    prices: PriceList,
}

impl PriceMatrix {
    /// Reads all files below `root`.
    ///
    /// # Errors
    /// With the file that is wrong.
    pub fn read(root: &Path) -> Result<Self, String> {
        let directory = root.join(DIRECTORY);
        let entries = std::fs::read_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        let wrong = |path: &Path, e: serde_json::Error| format!("{}: {e}", path.display());
        let mut all = PriceMatrix::default();
        for entry in entries {
            let path = entry.map_err(|e| format!("{}: {e}", directory.display()))?.path();
            if !repository::is_kind(&path, "json") {
                continue;
            }
            let text = repository::read(&path)?;
            let value: Value = serde_json::from_str(&text).map_err(|e| wrong(&path, e))?;
            if path.file_stem().is_some_and(|name| name == PRICES) {
                all.prices = serde_json::from_value(value).map_err(|e| wrong(&path, e))?;
            } else if value.get("answered").is_some() {
                // Other figures about prices have no answers.
                all.recordings.push(serde_json::from_value(value).map_err(|e| wrong(&path, e))?);
            }
        }
        all.recordings.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Returns the matrix: a row for each recording, a column for each proposal.
    ///
    /// # Errors
    /// With the figure that an answer lacks.
    pub fn table(&self) -> Result<FigureTable, String> {
        let mut heads = vec!["recording", "kernel, s"];
        heads.extend(COLUMNS.iter().map(|column| column.head));
        let rows = self.recordings.iter().map(|recording| {
            let seconds = format!("{:.2}", Mean(recording.kernel_seconds));
            let cells = COLUMNS.iter().map(|column| {
                let answer = recording.answer(column.proposal);
                answer.map_or(Ok(REFUSED.to_owned()), |answer| column.cell(answer))
            });
            let cells = cells.collect::<Result<Vec<_>, String>>();
            let cells = cells.map_err(|why| format!("{DIRECTORY}/{}.json: {why}", recording.name))?;
            Ok([vec![recording.name.clone(), seconds], cells].concat())
        });
        let rows = rows.collect::<Result<Vec<_>, String>>()?;
        Ok(FigureTable::of_texts(&heads, rows).with_remark(&self.machines(), COMMAND).dense())
    }

    /// Returns the days and the machines of the recordings.
    fn machines(&self) -> String {
        let all: BTreeSet<String> = self
            .recordings
            .iter()
            .map(|recording| {
                let PricedMachine { cpus, kernel } = &recording.machine;
                format!("recorded on {}, {cpus} CPUs, Linux {kernel}", recording.date)
            })
            .collect();
        let PriceList { host, page_prices } = &self.prices;
        let prices = format!("prices of an {}, measured at load {:.1}", host.cpu, Mean(page_prices.load));
        all.into_iter().chain([prices]).collect::<Vec<_>>().join("; ")
    }

    /// Returns a paragraph for each proposal.
    ///
    /// # Errors
    /// With the figure that an answer lacks.
    pub fn answers(&self) -> Result<String, String> {
        answers::paragraphs(&self.recordings)
    }
}

#[cfg(test)]
mod tests {
    use super::recording::example;
    use super::*;

    fn matrix(recording: PricedRecording) -> PriceMatrix {
        PriceMatrix { recordings: vec![recording], prices: PriceList::default() }
    }

    #[test]
    fn a_cell_has_the_key_figure_or_a_dash() {
        let matrix = matrix(example("a", 74.6, None));
        let mut tables = super::super::table::Tables::default();
        tables.add("price".to_owned(), matrix.table().unwrap()).unwrap();
        let page = tables.page("price").unwrap();
        assert!(page.contains("\n|a|0.50|75 (32K)|–|"), "{page}");
        assert!(page.contains("\nRecorded on 2026-12-01, 2 CPUs, Linux 6.18; prices of"), "{page}");
    }

    #[test]
    fn a_figure_that_is_missing_is_named_with_its_file() {
        let mut of = example("a", 74.6, None);
        of.answered[0].figures.clear();
        let why = matrix(of).table().err().unwrap();
        assert_eq!(why, "figures/price/a.json: blocks has no figure faults saved at 32K");
    }

    #[test]
    fn the_files_have_all_proposals_of_the_matrix() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let matrix = PriceMatrix::read(&root).unwrap();
        assert!(!matrix.recordings.is_empty());
        for recording in &matrix.recordings {
            let refused = |column: &&columns::Column| {
                recording.answer(column.proposal).is_none()
                    && recording.refused.iter().all(|refused| refused.name != column.proposal)
            };
            let missing = COLUMNS.iter().find(refused).map(|column| column.proposal);
            assert_eq!(missing, None, "{}", recording.name);
        }
    }
}
