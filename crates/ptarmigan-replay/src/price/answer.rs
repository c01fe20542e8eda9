//! The answer of a row.
use crate::model::page_prices::PriceSet;
use serde::Serialize;

/// Work of the kernel that a proposal saves or causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A fault, without the page that it clears or copies.
    Fault,
    /// A page that is cleared.
    Clear,
    /// A page that is copied at a write.
    Copy,
    /// An entry that a fork copies.
    ForkedEntry,
    /// A request to another CPU to flush its TLB.
    Request,
}

impl Unit {
    /// Returns its price in nanoseconds. `None` if it was not measured.
    pub fn ns(self, prices: &PriceSet) -> Option<f64> {
        let over = |price: f64| (price - prices.reused).max(0.0);
        match self {
            // A write to a page that nobody else has any more changes one entry, and no memory.
            Unit::Fault => Some(prices.reused),
            Unit::Clear => Some(over(prices.small.fresh)),
            Unit::Copy => Some(over(prices.copied)),
            Unit::ForkedEntry => Some(prices.small.forked),
            Unit::Request => prices.request,
        }
    }
}

/// So many units of work less; more, if the number is negative.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Saving {
    /// The work.
    pub unit: Unit,
    /// How many.
    pub count: i64,
}

/// A figure of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name, the same for each recording: `faults saved at 64K`.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit: `faults`, `pages`, `%`.
    pub unit: &'static str,
}

/// A figure that a replay with the mechanism has, beside the same one as a row has counted it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// What it counts, in the plural: `faults saved`.
    pub what: &'static str,
    /// As counted.
    pub counted: f64,
    /// As replayed.
    pub replayed: f64,
}

impl Judgement {
    /// Returns the part by which the counted figure is off; 0 if both are 0.
    pub fn error(&self) -> f64 {
        (self.counted - self.replayed).abs() / self.replayed.abs().max(1.0)
    }
}

/// What a proposal would do for a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Answer {
    /// What is counted, with its figure: a sentence.
    pub counted: String,
    /// What it costs: a sentence.
    pub cost: String,
    /// When it does not help, with a number of this recording: a sentence.
    pub when_not: String,
    /// What to set today, or which kernel has it: a sentence.
    pub today: String,
    /// All figures.
    pub figures: Vec<Figure>,
    /// The work that is saved.
    pub savings: Vec<Saving>,
    /// The verdict of a replay, where the library has the mechanism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Judgement>,
}

impl Answer {
    /// Adds a figure.
    pub fn figure(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { name: name.into(), value, unit });
    }

    /// Adds work that is saved; more work, if the count is negative.
    pub fn saves(&mut self, unit: Unit, count: i64) {
        if count != 0 {
            self.savings.push(Saving { unit, count });
        }
    }

    /// Returns the nanoseconds that it saves. `None` if work of it has no price.
    pub fn ns(&self, prices: &PriceSet) -> Option<f64> {
        self.savings.iter().map(|saving| saving.unit.ns(prices).map(|ns| ns * saving.count as f64)).sum()
    }
}

/// Returns a part in percent; 0 if the whole is 0.
pub fn percent(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

/// A row with its answer, or with the reason why it has none.
#[derive(Clone, Debug)]
pub struct Priced {
    /// The proposal.
    pub about: super::About,
    /// Its answer.
    pub answer: Result<Answer, String>,
}
