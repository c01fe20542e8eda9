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
#[cfg(test)]
mod tests;

pub use page::Page;

use crate::input::trace::Trace;
use crate::instruments::classes::TableCounts;
use crate::instruments::levels::Levels;
use crate::memory;
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

/// Decides which table pages are kept, and for which tables.
///
/// Levels count from 0, the leaf tables; CPUs are the recorded ones. Calls come one after the
/// other, from one thread or another. A panic ends the replay with an error.
///
/// # Example
///
/// ```
/// use ptarmigan_replay::{Page, PolicyOptions, TablePolicy, Trace, run_with};
///
/// /// Keeps up to 100 pages for all CPUs.
/// #[derive(Default)]
/// struct Hundred(Vec<Page>);
///
/// impl TablePolicy for Hundred {
///     fn name(&self) -> &str {
///         "hundred"
///     }
///
///     fn alloc(&mut self, level: u8, _cpu: usize) -> Option<Page> {
///         let found = self.0.iter().rposition(|page| page.serves(level))?;
///         Some(self.0.remove(found))
///     }
///
///     fn free(&mut self, page: Page, _level: u8, _cpu: usize) -> Option<Page> {
///         if self.0.len() == 100 {
///             return Some(page);
///         }
///         self.0.push(page);
///         None
///     }
/// }
///
/// let trace = Trace::open("fixture".as_ref()).expect("a shipped recording");
/// let options = PolicyOptions { memory: 256 << 20, ..PolicyOptions::default() };
/// let result = run_with(trace, Box::new(Hundred::default()), &options).expect("a replay");
/// assert!(result.hits() > 0 && result.peak_kept <= 100);
/// ```
pub trait TablePolicy: Send {
    /// Returns the name, for messages and results.
    fn name(&self) -> &str;

    /// A table of `level` is made on `cpu`. Returns a kept page that [serves](Page::serves) the
    /// level, or `None`: the table gets a new page from the allocator, which clears it.
    fn alloc(&mut self, level: u8, cpu: usize) -> Option<Page>;

    /// A table of `level` has gone, and no TLB knows it any more: `page` was its page, clean again.
    /// Keeps the page and returns `None`, or returns it, or another page that it kept: that one
    /// goes back to the allocator. So do pages that are dropped, and at the end of the replay all.
    fn free(&mut self, page: Page, level: u8, cpu: usize) -> Option<Page>;
}

/// The machine of [`run_with`].
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
    memory::check_range(options.memory).context("memory")?;
    memory::check(options.memory, 1)?;
    let name = caught(|| policy.name().to_owned()).context("policy: name panicked")?;
    let solo = SoloTrace::new(trace);
    let setup = solo.on(options.memory);
    let setup = Setup { job: Job { large_pages: options.large_pages, ..setup.job }, ..setup };
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
