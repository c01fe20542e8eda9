//! The recording as a whole.
use crate::flushes::LinuxFlushes;
use crate::input::trace::Trace;
use crate::model::page_prices::PriceSet;
use crate::observed::Programs;

/// Levels of tables, at the most.
pub const LEVELS: usize = 5;

/// The recording as a whole, when rows answer.
pub struct Whole<'a> {
    /// The recording.
    pub trace: &'a Trace,
    /// Prices of work.
    pub prices: &'a PriceSet,
    /// Its programs. [`Moment::program`](super::Moment) is an index of them.
    pub programs: &'a Programs,
    /// Linux's flushes; `None` if they were not recorded.
    pub linux: Option<&'a LinuxFlushes>,
    /// Faults.
    pub faults: u64,
    /// Forks that copied a space.
    pub forks: u64,
    /// Entries of leaf tables that they copied.
    pub forked_entries: u64,
    /// Spaces, and the most at once.
    pub spaces: (u64, u64),
    /// Tables made, by level, leaf tables first.
    pub tables: [u64; LEVELS],
    /// The most tables at once, by level.
    pub tables_peak: [u64; LEVELS],
}

impl<'a> Whole<'a> {
    /// Returns Linux's flushes.
    ///
    /// # Errors
    /// If they were not recorded.
    pub fn flushes(&self) -> Result<&'a LinuxFlushes, String> {
        self.linux.ok_or_else(|| "the recording has no flushes of TLBs".to_owned())
    }

    /// Returns the tables made, of all levels, and at most so many at once.
    pub fn all_tables(&self) -> (u64, u64) {
        (self.tables.iter().sum(), self.tables_peak.iter().sum())
    }
}
