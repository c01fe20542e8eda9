//! The costs for the planner, as they follow from estimates; and the file that holds them.
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::estimate::Estimate;
use ptarmigan_replay::model::page_prices::PriceFile;
use ptarmigan_replay::model::{HostName, Model};
use ptarmigan_term::{Context, Failure};

/// The working set that a program is taken to have, in pages.
pub(super) const RESIDENT: usize = 512;
/// The lowest price that a file may have, in nanoseconds.
const LEAST_NS: f64 = 0.001;

/// Finding one page of a working set again, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct FoundAgainNs {
    /// After a flush by name of other pages.
    pub by_name: f64,
    /// After a flush of everything.
    pub everything: f64,
}

impl FoundAgainNs {
    /// Derives the costs from estimates without a working set and with one of [`RESIDENT`] pages.
    pub(super) fn of(none: &Estimate, resident: &Estimate) -> Self {
        let by_name = (resident.start - none.start) / RESIDENT as f64;
        let more = (resident.break_even.fitted * resident.page - none.break_even.fitted * none.page)
            / RESIDENT as f64;
        FoundAgainNs { by_name: by_name.max(0.0), everything: (by_name + more).max(0.0) }
    }

    /// Returns whether a flush by name makes most of the working set be missed.
    pub(super) fn names_forget_all(&self) -> bool {
        self.by_name > 1.0 && self.by_name > self.everything / 2.0
    }
}

/// Costs in nanoseconds; `None` for a cost that is 0 or lost in the noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct CostsNs {
    /// A flush of one page by name.
    pub page: f64,
    /// The beginning of a flush of several pages by name.
    pub run: Option<f64>,
    /// Each page of it.
    pub ranged_page: f64,
    /// A flush of everything.
    pub full: f64,
    /// Finding one page again after a flush of everything, more than after one by name.
    pub refill: Option<f64>,
    /// Asking another CPU.
    pub ask: Option<f64>,
}

impl CostsNs {
    /// Derives the costs from estimates on one CPU, for no working set and for one of [`RESIDENT`]
    /// pages, and on two CPUs, if there are two.
    pub(super) fn of(none: &Estimate, resident: &Estimate, two: Option<&Estimate>) -> Self {
        let some = |ns: f64| (ns >= LEAST_NS).then_some(ns);
        let start = some(none.start);
        let refill = (resident.break_even.fitted - none.break_even.fitted) * none.page / RESIDENT as f64;
        let apart = resident.break_even.low > none.break_even.high;
        CostsNs {
            page: start.unwrap_or(0.0) + none.page,
            run: start,
            ranged_page: none.page,
            full: (start.unwrap_or(0.0) + none.break_even.fitted * none.page).max(LEAST_NS),
            refill: some(refill).filter(|_| apart),
            ask: two.and_then(|two| some(two.start - none.start)),
        }
    }

    /// Returns the text of a model of this host, with the prices of pages if they were measured.
    ///
    /// # Errors
    ///
    /// If a cost is one that no model may have.
    pub(super) fn file(&self, host: &HostName, pages: Option<&PriceFile>) -> Result<String, Failure> {
        let mut costs = Map::new();
        let mut add = |name: &str, ns: Option<f64>, basis: &str| {
            if let Some(ns) = ns {
                let value = (ns * 1000.0).round() / 1000.0;
                costs.insert(name.to_owned(), json!({ "value": value, "unit": "ns", "basis": basis }));
            }
        };
        add("page", Some(self.page), "measured");
        add("run", self.run, "fitted");
        add("ranged_page", Some(self.ranged_page), "fitted");
        add("window", self.run, "fitted");
        add("full", Some(self.full), "fitted");
        add("refill", self.refill, "fitted");
        add("ask", self.ask, "fitted");
        if self.refill.is_some() {
            let pages = json!({ "value": RESIDENT, "unit": "pages", "basis": "assumed" });
            costs.insert("resident".to_owned(), pages);
        }
        let mut file = json!({
            "schema": 1,
            "name": "calibrated",
            "host": host,
            "rule": "costs",
            "costs": Value::Object(costs),
        });
        if let Some(pages) = pages {
            file["page_prices"] = serde_json::to_value(pages).context("prices of pages")?;
        }
        let text = serde_json::to_string_pretty(&file).context("model")? + "\n";
        Model::parse(&text).map_err(|problem| Failure::new(problem.at("of this host").to_string()))?;
        Ok(text)
    }
}
