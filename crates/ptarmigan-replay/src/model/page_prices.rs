//! Prices of work on private pages: stored with a cost model, or measured by who asks.
use ptarmigan_bench::stats::median;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// Rounds of a measurement.
pub const ROUNDS: usize = 5;

/// The price of one page by its fate, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UnitPrices {
    /// The first write to it.
    pub fresh: f64,
    /// A fork shows it to a child.
    pub forked: f64,
    /// A space ends that shares it.
    pub dropped: f64,
    /// The only space that has it gives it back.
    pub freed: f64,
    /// `mprotect` changes its permissions.
    pub protected: f64,
}

/// Prices of work on pages, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PriceSet {
    /// Pages of 4 KiB.
    pub small: UnitPrices,
    /// Pages of 4 KiB that were a huge page until it was split. They are never fresh.
    pub split: UnitPrices,
    /// Huge pages.
    pub huge: UnitPrices,
    /// A write to a page of 4 KiB that another space has as well.
    pub copied: f64,
    /// A write to one that no other space has any more.
    pub reused: f64,
    /// The first write to a huge page that another space has as well.
    pub splits: f64,
    /// A call for a part of a huge page splits it, beside the call itself.
    pub cuts: f64,
    /// A call that changes one page.
    pub call: f64,
    /// A fork without memory.
    pub fork: f64,
    /// An end without memory.
    pub exit: f64,
    /// A request to another CPU to flush its TLB, which it answers at once. `None` where the
    /// machine has one CPU, or an older version has measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<f64>,
}

/// The first write to a page of memory that the machine may not have used before, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewMemory {
    /// A page of 4 KiB.
    pub small: f64,
    /// A huge page.
    pub huge: f64,
}

/// When prices were measured.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Measured {
    /// Seconds since 1970.
    pub unix_time: u64,
    /// The load of the machine over a minute before.
    pub load: f64,
}

impl Measured {
    /// Returns this moment.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().and_then(|first| first.parse().ok());
        Measured { unix_time: since.map_or(0, |since| since.as_secs()), load: load.unwrap_or(0.0) }
    }
}

/// Prices of a host with their scatter.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct PagePrices {
    /// The median of each price.
    #[serde(flatten)]
    pub middle: PriceSet,
    /// First writes to the first memory that the measurement got.
    pub new: NewMemory,
    /// All prices of each round.
    #[serde(skip)]
    pub rounds: [PriceSet; ROUNDS],
    /// When they were measured, if they are from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored: Option<Measured>,
}

impl PagePrices {
    /// Takes the medians of the rounds.
    #[must_use]
    pub fn of(new: NewMemory, rounds: [PriceSet; ROUNDS]) -> Self {
        let of = |price: &dyn Fn(&PriceSet) -> f64| median(rounds.iter().map(price)).max(0.0);
        let unit = |kind: fn(&PriceSet) -> UnitPrices| UnitPrices {
            fresh: of(&|p| kind(p).fresh),
            forked: of(&|p| kind(p).forked),
            dropped: of(&|p| kind(p).dropped),
            freed: of(&|p| kind(p).freed),
            protected: of(&|p| kind(p).protected),
        };
        let middle = PriceSet {
            small: unit(|p| p.small),
            split: unit(|p| p.split),
            huge: unit(|p| p.huge),
            copied: of(&|p| p.copied),
            reused: of(&|p| p.reused),
            splits: of(&|p| p.splits),
            cuts: of(&|p| p.cuts),
            call: of(&|p| p.call),
            fork: of(&|p| p.fork),
            exit: of(&|p| p.exit),
            request: {
                let measured: Vec<f64> = rounds.iter().filter_map(|p| p.request).collect();
                (!measured.is_empty()).then(|| median(measured))
            },
        };
        PagePrices { middle, new, rounds, stored: None }
    }

    /// Returns the field `page_prices` of a cost model that has them.
    #[must_use]
    pub fn file(&self, measured: Measured) -> PriceFile {
        let Measured { unix_time, load } = measured;
        PriceFile { unix_time, load, new: self.new, rounds: self.rounds }
    }
}

/// Prices of pages as a cost model has them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "an object of unix_time, load, new and rounds")]
pub struct PriceFile {
    unix_time: u64,
    load: f64,
    new: NewMemory,
    rounds: [PriceSet; ROUNDS],
}

impl From<PriceFile> for PagePrices {
    fn from(PriceFile { unix_time, load, new, rounds }: PriceFile) -> Self {
        PagePrices { stored: Some(Measured { unix_time, load }), ..PagePrices::of(new, rounds) }
    }
}
