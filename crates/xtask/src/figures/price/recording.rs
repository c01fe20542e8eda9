//! Reads the answers on a recording from a file of `figures/price`.
use serde::Deserialize;

/// The answers on a recording.
#[derive(Deserialize)]
pub struct PricedRecording {
    pub name: String,
    pub date: String,
    pub machine: PricedMachine,
    pub kernel_seconds: f64,
    pub answered: Vec<PricedAnswer>,
    pub refused: Vec<Refusal>,
}

/// The machine of a recording.
#[derive(Deserialize)]
pub struct PricedMachine {
    pub cpus: u64,
    pub kernel: String,
}

/// The answer to a proposal.
#[derive(Deserialize)]
pub struct PricedAnswer {
    pub name: String,
    pub share: Option<f64>,
    pub counted: String,
    pub figures: Vec<AnswerFigure>,
}

/// A figure of an answer.
#[derive(Deserialize)]
pub struct AnswerFigure {
    pub name: String,
    pub value: f64,
}

/// A proposal without an answer, and why.
#[derive(Deserialize)]
pub struct Refusal {
    pub name: String,
    pub reason: String,
}

impl PricedRecording {
    /// Returns the answer to a proposal, if the recording has one.
    pub fn answer(&self, proposal: &str) -> Option<&PricedAnswer> {
        self.answered.iter().find(|answer| answer.name == proposal)
    }
}

impl PricedAnswer {
    /// Returns a figure.
    ///
    /// # Errors
    /// If the answer has none of this name.
    pub fn figure(&self, name: &str) -> Result<f64, String> {
        let figure = self.figures.iter().find(|figure| figure.name == name);
        figure.map(|figure| figure.value).ok_or_else(|| format!("{} has no figure {name}", self.name))
    }
}

/// Makes a recording with an answer to `blocks` of so many percent, and none to `kpti`.
#[cfg(test)]
pub fn example(name: &str, saved: f64, share: Option<f64>) -> PricedRecording {
    let answer = serde_json::json!({ "name": "blocks", "share": share,
        "counted": "Blocks of 32K take 3 of 4 faults away.",
        "figures": [
            { "name": "faults saved at 32K", "value": saved },
            { "name": "pages cleared for each one touched at 32K", "value": 1.25 },
        ] });
    let refused = serde_json::json!([{ "name": "kpti", "reason": "it has no calls" }]);
    let document = serde_json::json!({ "name": name, "date": "2026-12-01",
        "machine": { "cpus": 2, "kernel": "6.18" }, "kernel_seconds": 0.5,
        "answered": [answer], "refused": refused });
    serde_json::from_value(document).unwrap()
}
