//! Large pages, where the recorded Linux had huge ones.
use ptarmigan_replay::{CountedRun, LargeCounts};
use serde::Serialize;

/// Bytes of a table of x86-64.
const TABLE_BYTES: u64 = 4096;

/// Counts of a replay with large pages.
#[derive(Serialize)]
pub(crate) struct LargePageReplay {
    /// Faults that mapped a large page.
    pub mapped: u64,
    /// Large pages that were split.
    pub splits: u64,
    /// Faults that found their page mapped.
    pub faults_found: u64,
    /// Tables made, roots included.
    pub tables_made: u64,
    /// The most tables at once.
    pub peak_live_tables: u64,
    /// Their bytes.
    pub peak_table_bytes: u64,
    /// The most bytes at once in tables and in frames that are reserved for splits.
    pub peak_bytes_with_reserve: u64,
}

impl LargePageReplay {
    /// Takes the counts of a replay.
    pub fn new(run: &CountedRun) -> Self {
        let LargeCounts { mapped, splits, peak_with_reserve } = run.large;
        LargePageReplay {
            mapped,
            splits,
            faults_found: run.found_mapped,
            tables_made: run.made,
            peak_live_tables: run.peak,
            peak_table_bytes: run.peak * TABLE_BYTES,
            peak_bytes_with_reserve: peak_with_reserve * TABLE_BYTES,
        }
    }
}
