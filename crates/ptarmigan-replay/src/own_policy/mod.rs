//! Replays a recording on a policy of one's own, written in safe Rust: [`TablePolicy`].
//!
//! # Why
//!
//! A policy of the library holds the pages themselves, and its contract is unsafe, because a page
//! that is handed out twice is two tables at once. A policy that is only to be counted needs no
//! pages. So it gets tokens, [`Page`]s, while the replay keeps the pages: it decides which page is
//! kept for how long, and cannot break a tree.
mod adapter;
mod page;
mod table_policy;
#[cfg(test)]
mod tests;

pub use page::Page;
pub use table_policy::TablePolicy;

use crate::input::trace::Trace;
use crate::instruments::classes::TableCounts;
use crate::instruments::levels::Levels;
use crate::platform::RecordedX86;
use crate::setup::{Setup, SoloTrace};
use crate::workers::job::Job;
use crate::workers::panics::caught;
use adapter::{OwnCounts, OwnPolicy};
use ptarmigan::format::{Format, X86_64};
use ptarmigan::quicklist::{Layered, Policy};
use ptarmigan_hosted::Delivery;
use ptarmigan_term::{Context, Failure};
use serde::Serialize;

/// The machine of [`run_with`], and of [`write_table_events`](crate::write_table_events).
#[derive(Clone, Copy, Debug)]
pub struct PolicyOptions {
    /// Bytes of memory, 1 MiB to 8 TiB. The records of frames take 1/256 of it on the host.
    pub memory: u64,
    /// Whether spaces have large pages where the recorded ones had.
    pub large_pages: bool,
}

impl Default for PolicyOptions {
    /// Returns 4 GiB, without large pages.
    fn default() -> Self {
        PolicyOptions { memory: 4 << 30, large_pages: false }
    }
}

impl PolicyOptions {
    /// Describes the replay of a recording.
    pub(super) fn setup<'a>(&self, solo: &'a SoloTrace) -> Setup<'a, RecordedX86> {
        let setup = solo.on(self.memory);
        Setup { job: Job { large_pages: self.large_pages, ..setup.job }, ..setup }
    }
}

/// Counts of a policy of one's own.
#[derive(Clone, Serialize)]
pub struct PolicyResult {
    /// Name of the policy.
    pub policy: String,
    /// Name of the workload.
    pub trace: String,
    /// Counts by level, lowest first.
    pub levels: Levels<OwnLevel>,
    /// The most pages kept at once.
    pub peak_kept: u64,
    /// Pages kept at the end.
    pub kept_at_end: u64,
    /// The most tables at once, roots included.
    pub peak_tables: u64,
}

/// Counts of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OwnLevel {
    /// Tables made.
    pub allocs: u64,
    /// Tables gone, those that went at the end of the recording included.
    pub frees: u64,
    /// Tables made of kept pages.
    pub hits: u64,
    /// The most pages kept at once that had been tables of this level.
    pub peak_kept: u64,
    /// Pages that came from the allocator, for tables of this level.
    pub taken: u64,
    /// Pages that had been tables of this level and went to the allocator. Those that are kept at
    /// the end are not among them.
    pub given: u64,
}

impl PolicyResult {
    /// Returns the number of tables made of kept pages.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.sum(|level| level.hits)
    }

    /// Returns the number of tables made.
    #[must_use]
    pub fn allocs(&self) -> u64 {
        self.sum(|level| level.allocs)
    }

    /// Returns the number of table events: tables made, and tables gone.
    #[must_use]
    pub fn table_events(&self) -> u64 {
        self.sum(|level| level.allocs + level.frees)
    }

    fn sum(&self, of: impl Fn(&OwnLevel) -> u64) -> u64 {
        self.levels.0.iter().map(|(_, level)| of(level)).sum()
    }
}

/// Replays a recording on x86-64, with one worker, and counts for `policy`. No time is measured.
///
/// # Errors
/// If the machine cannot be set up, memory runs out, or the policy panics or returns a page that
/// cannot be the table.
pub fn run_with(
    trace: Trace,
    policy: Box<dyn TablePolicy>,
    options: &PolicyOptions,
) -> Result<PolicyResult, Failure> {
    let name = caught(|| policy.name().to_owned()).context("policy: name panicked")?;
    let solo = SoloTrace::new(trace);
    let setup = options.setup(&solo);
    let fresh = setup.fresh()?;
    let own = OwnPolicy::new(fresh.source(), setup.job.cpus(), policy);
    let tables = TableCounts::new(fresh.host().frames(), false);
    let layered = Layered::new(tables, &own).context("layers")?;
    let machine = fresh.machine(&layered as &dyn Policy, RecordedX86::NO_MMU, Delivery::AtOnce)?;
    let ran = fresh.run(&machine, Vec::new(), None);
    // A policy that fails lets memory run out, so its own failure says more.
    let OwnCounts { counts, peaks, peak } =
        own.finish().map_err(|why| Failure::new(format!("{}: policy {name}: {why}", solo.trace().name)))?;
    setup.check_memory(&ran?.outcome)?;
    let levels = X86_64::LEVEL_NAMES.iter().zip(&counts.levels).zip(peaks);
    let levels = levels.map(|((name, count), peak_kept)| {
        let [allocs, frees, taken, given] =
            [count.allocs, count.frees, count.misses, count.returns].map(|n| n as u64);
        (*name, OwnLevel { allocs, frees, hits: allocs - taken, peak_kept, taken, given })
    });
    Ok(PolicyResult {
        policy: name,
        trace: solo.trace().name.clone(),
        levels: Levels(levels.collect()),
        peak_kept: peak,
        kept_at_end: counts.cached() as u64,
        peak_tables: layered.layer().peak(),
    })
}
