//! Finds advice for the author of a program in short form, for a page of other figures.
use super::advice::{Advice, Details, To};
use super::args::AdviseArgs;
use crate::page_prices;
use ptarmigan_replay::SoloTrace;
use ptarmigan_replay::model::page_prices::PagePrices;
use ptarmigan_term::Failure;
use serde::Serialize;

/// A piece of advice, in short.
#[derive(Clone, Debug, Serialize)]
pub struct Brief {
    /// The change that it advises, in a few words.
    pub title: String,
    /// The saving, as sentences.
    pub figure: String,
    /// How to do it.
    pub how: String,
    /// The effects that were not measured.
    pub not_measured: String,
    /// The largest mapping that it is about, as a part of a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The function that causes most of it, with its part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
}

impl Brief {
    fn of(piece: Advice) -> Self {
        let Advice { title, figure, how, not_measured, details: Details { places, caller, .. }, .. } = piece;
        let place = places.first().map(|largest| match places.len() {
            1 => largest.text(),
            n => format!("{}, and {} more", largest.text(), n - 1),
        });
        Brief { title, figure, how, not_measured, place, caller }
    }

    /// Returns the way to do it and its limits, each with its word.
    pub fn folded(&self) -> [(&'static str, &str); 2] {
        [("How", &self.how), ("Not measured", &self.not_measured)]
    }

    /// Returns the place and the function as a line: `Where: … Function: …`. `None` if the
    /// recording has neither.
    pub fn line(&self) -> Option<String> {
        let part = |word: &str, text: &Option<String>| text.as_ref().map(|text| format!("{word}: {text}."));
        let parts = [part("Where", &self.place), part("Function", &self.caller)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(" "))
    }
}

/// How much advice costs.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    rounds: u8,
    prices: Option<PagePrices>,
}

impl Effort {
    /// Replays each side once: counts decide, and are the same in each run.
    pub const COUNTS: Effort = Effort { rounds: 0, prices: None };

    /// Replays each side five times and measures prices of pages, as `ptarmigan advise` does. To be
    /// called before traces are read: prices are measured with forks, which a large process makes
    /// dear.
    pub fn timed() -> Self {
        Effort { rounds: 5, prices: page_prices::measure().ok() }
    }
}

/// Returns the advice for a recorded program, the most valuable first, from replays on a machine of
/// `memory` bytes. Advice that may be a loss is not part of it, nor is advice for the machine.
///
/// # Errors
/// If a replay fails, or memory runs out.
pub fn brief(recorded: &SoloTrace, memory: u64, effort: Effort) -> Result<Vec<Brief>, Failure> {
    let Effort { rounds, prices } = effort;
    let advice = super::one(recorded, &AdviseArgs::for_program(memory, rounds), None, prices)?.advice;
    let told = |piece: &Advice| !piece.details.uncertain && piece.to != To::Machine;
    Ok(advice.into_iter().filter(told).map(Brief::of).collect())
}
