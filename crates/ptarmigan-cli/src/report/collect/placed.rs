//! Low memory under each `userpte=`.
use ptarmigan::params::UserPte;
use ptarmigan_replay::{PlacedMachine, PlacedTrace, Trace};
use ptarmigan_term::Failure;
use serde::Serialize;

/// Where tables were on a 32-bit machine with PAE.
#[derive(Serialize)]
pub(crate) struct PlacedFigures {
    /// The value of `userpte=`.
    pub userpte: &'static str,
    /// The most bytes of low memory in tables.
    pub peak_low_bytes: u64,
    /// The most bytes of high memory in leaf tables.
    pub peak_high_bytes: u64,
    /// Leaf tables handed out.
    pub tables: u64,
    /// Of these, those in high memory.
    pub high: u64,
    /// Windows opened on tables in high memory.
    pub opened: u64,
}

impl PlacedFigures {
    /// Replays a trace with each of these values.
    ///
    /// # Errors
    /// If a replay fails, or memory runs out.
    pub fn all(trace: Trace, memory: u64, low: u64, values: &[UserPte]) -> Result<Vec<Self>, Failure> {
        let trace = PlacedTrace::new(trace)?;
        let machine = PlacedMachine { memory, low, touch_data: false, copies: 1 };
        let figures = values.iter().map(|&value| {
            let peaks = trace.peaks(&machine, value)?;
            Ok(PlacedFigures {
                userpte: peaks.tables.userpte,
                peak_low_bytes: peaks.low,
                peak_high_bytes: peaks.high,
                tables: peaks.tables.tables,
                high: peaks.tables.high,
                opened: peaks.tables.opened,
            })
        });
        figures.collect()
    }
}
