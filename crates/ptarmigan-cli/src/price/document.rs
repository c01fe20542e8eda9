//! The result of `ptarmigan price`.
use ptarmigan_replay::Trace;
use ptarmigan_replay::model::page_prices::{PagePrices, PriceSet};
use ptarmigan_replay::price::{Answer, Priced, Pricing};
use serde::Serialize;

/// The number of the form of the document.
const SCHEMA: u32 = 1;

/// The prices of proposals on recordings.
#[derive(Serialize)]
pub struct PriceDocument {
    schema: u32,
    /// The prices that weigh work.
    pub prices: PagePrices,
    /// By recording.
    pub traces: Vec<TracePrices>,
}

impl PriceDocument {
    /// Makes a document without recordings.
    pub fn new(prices: PagePrices) -> Self {
        PriceDocument { schema: SCHEMA, prices, traces: Vec::new() }
    }
}

/// The prices of proposals on one recording.
#[derive(Serialize)]
pub struct TracePrices {
    /// The recording.
    pub name: String,
    /// How it was recorded.
    pub method: &'static str,
    /// Its faults.
    pub faults: u64,
    /// Its forks that copied a space.
    pub forks: u64,
    /// Its spaces.
    pub spaces: u64,
    /// Seconds of the kernel.
    pub kernel_seconds: f64,
    /// Whether the recording has them; otherwise they are a sum of prices.
    pub kernel_recorded: bool,
    /// Events that the recorder lost, and a clause about programs that were not recorded.
    pub lost: u64,
    /// How many of the programs were recorded, if not all.
    pub recorded_programs: Option<String>,
    /// Proposals with an answer, the largest share first.
    pub answered: Vec<RowPrice>,
    /// Proposals without one.
    pub refused: Vec<Refused>,
}

/// The price of one proposal.
#[derive(Serialize)]
pub struct RowPrice {
    /// Its name.
    pub name: &'static str,
    /// Its name in a sentence.
    pub title: &'static str,
    /// Who proposed it.
    pub reference: &'static str,
    /// The gain that they measured.
    pub claim: &'static str,
    /// The part of the kernel's time that it saves; below 0 if it costs more than it saves, `None`
    /// if its work has no price.
    pub share: Option<f64>,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
}

/// A proposal that the recording cannot price.
#[derive(Serialize)]
pub struct Refused {
    /// Its name.
    pub name: &'static str,
    /// Its name in a sentence.
    pub title: &'static str,
    /// Why, in a sentence without a full stop.
    pub reason: String,
}

impl TracePrices {
    /// Sorts the answers by the part of the kernel's time.
    pub fn new(trace: &Trace, pricing: Pricing, prices: &PriceSet) -> Self {
        let (mut answered, mut refused) = (Vec::new(), Vec::new());
        for Priced { about, answer } in &pricing.rows {
            match answer {
                Err(reason) => {
                    let reason = reason.clone();
                    refused.push(Refused { name: about.name, title: about.title, reason });
                }
                Ok(answer) => answered.push(RowPrice {
                    name: about.name,
                    title: about.title,
                    reference: about.reference,
                    claim: about.claim,
                    share: pricing.share(answer, prices),
                    answer: answer.clone(),
                }),
            }
        }
        let key = |row: &RowPrice| row.share.unwrap_or(f64::NEG_INFINITY);
        answered.sort_by(|a, b| key(b).total_cmp(&key(a)));
        TracePrices {
            name: trace.name.clone(),
            method: trace.header.method.name(),
            faults: pricing.faults,
            forks: pricing.forks,
            spaces: pricing.spaces,
            kernel_seconds: pricing.kernel.ns / 1e9,
            kernel_recorded: pricing.kernel.recorded,
            lost: trace.lost,
            recorded_programs: trace.coverage().part(),
            answered,
            refused,
        }
    }
}
