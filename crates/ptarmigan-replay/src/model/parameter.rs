//! One cost of a file: a price or a number, and how it is known.
use super::error::Problem;
use serde::Deserialize;
use serde_json::Value;

/// Picoseconds in a nanosecond.
const PICO: f64 = 1000.0;
/// The highest price: a second.
const MOST_NS: f64 = 1e9;
/// The highest number of pages or entries.
const MOST: u64 = 1 << 40;

/// A cost as the file has it. Its value is checked by name, so that an error names it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object of value, unit and basis")]
pub(super) struct Parameter {
    value: Value,
    unit: String,
    /// `measured`: somebody took the time of it. `fitted`: it follows from the time of something
    /// larger. `assumed`: it was chosen.
    basis: String,
}

impl Parameter {
    /// Returns a price in picoseconds.
    pub(super) fn price(&self, field: &str) -> Result<u64, Problem> {
        self.labels(field, "ns")?;
        let price = self.value.as_f64().filter(|ns| (1.0 / PICO..=MOST_NS).contains(ns));
        let allowed = "a number of nanoseconds from 0.001 to 1000000000";
        price.map(|ns| (ns * PICO).round() as u64).ok_or_else(|| self.refuse(field, allowed))
    }

    /// Returns a number of `unit`.
    pub(super) fn count(&self, field: &str, unit: &str) -> Result<u64, Problem> {
        self.labels(field, unit)?;
        let count = self.value.as_u64().filter(|n| (1..=MOST).contains(n));
        count.ok_or_else(|| self.refuse(field, "a whole number from 1 to 2^40"))
    }

    /// Checks the texts beside the value.
    fn labels(&self, field: &str, unit: &str) -> Result<(), Problem> {
        let labels =
            [("unit", &self.unit, &[unit][..]), ("basis", &self.basis, &["measured", "fitted", "assumed"])];
        for (label, found, allowed) in labels {
            if !allowed.contains(&found.as_str()) {
                let (field, found) = (format!("{field}.{label}"), format!("{found:?}"));
                return Err(Problem::NotAllowed { field, found, allowed: allowed.join(" or ") });
            }
        }
        Ok(())
    }

    fn refuse(&self, field: &str, allowed: &str) -> Problem {
        Problem::NotAllowed {
            field: format!("{field}.value"),
            found: self.value.to_string(),
            allowed: allowed.to_owned(),
        }
    }
}
