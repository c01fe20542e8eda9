//! Allocation on each policy: counts, times, and memory kept.
use super::{Parts, part_of_call};
use ptarmigan_replay::{LevelReport, LevelTimes, Observation, PolicyRun};
use serde::Serialize;

/// One policy.
#[derive(Serialize)]
pub(in crate::report) struct PolicyFigures {
    pub policy: &'static str,
    /// Number of lists of a historic policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub historic_lists: Option<u8>,
    /// Results by level, lowest first.
    pub levels: Vec<PolicyLevel>,
    /// Mean time of an allocation in the back-to-back stream, with its share of frees and trimming.
    pub mean_alloc_ns: f64,
    /// The most bytes kept.
    pub peak_cached_bytes: u64,
    /// For each part of the axis, the most bytes kept.
    pub kept: Vec<u64>,
}

/// One level.
#[derive(Serialize)]
pub(in crate::report) struct PolicyLevel {
    pub level: &'static str,
    #[serde(flatten)]
    pub report: LevelReport,
    /// Single calls by their time.
    pub histogram: Vec<Bin>,
}

/// Calls that took at least `from` and less than `to` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(in crate::report) struct Bin {
    pub from: f64,
    pub to: f64,
    pub calls: u64,
}

impl PolicyFigures {
    pub(super) fn new(run: &PolicyRun, seen: &Observation, parts: &Parts<'_>) -> Self {
        let levels = run.levels.0.iter().zip(&run.times).map(|((level, report), times)| PolicyLevel {
            level,
            report: *report,
            histogram: histogram(times),
        });
        PolicyFigures {
            policy: run.choice.name(),
            historic_lists: run.choice.lists,
            levels: levels.collect(),
            mean_alloc_ns: run.mean_alloc_ns,
            peak_cached_bytes: run.peak_cached_bytes,
            kept: kept(&run.cached, parts.len(), |call| part_of_call(seen, parts, call)),
        }
    }

    /// Returns the name, with the number of lists of a historic policy.
    pub fn label(&self) -> String {
        self.historic_lists.map_or(self.policy.to_owned(), |lists| format!("{} ({lists})", self.policy))
    }

    /// Returns the sum of a count over all levels.
    pub fn sum(&self, count: impl Fn(&LevelReport) -> u64) -> u64 {
        self.levels.iter().map(|level| count(&level.report)).sum()
    }
}

/// Returns for each part the peak of the bytes kept, including those kept at its beginning.
fn kept(changes: &[(u32, u64)], parts: usize, part_of: impl Fn(u32) -> usize) -> Vec<u64> {
    let mut changes = changes.iter().peekable();
    let mut now = 0;
    let mut all = Vec::with_capacity(parts);
    for part in 0..parts {
        let mut most = now;
        // A change that is found after a call came about by it.
        while let Some((_, bytes)) = changes.next_if(|(call, _)| part_of(call.saturating_sub(1)) <= part) {
            now = *bytes;
            most = most.max(now);
        }
        all.push(most);
    }
    all
}

/// Counts calls by their time, two bins for each power of two.
fn histogram(times: &LevelTimes) -> Vec<Bin> {
    let bin = |ns: u64| (2.0 * (ns.max(1) as f64).log2() + 1e-9) as usize;
    let mut counts = Vec::new();
    for value in times.histogram.iter_recorded() {
        let at = bin(value.value_iterated_to());
        if counts.len() <= at {
            counts.resize(at + 1, 0);
        }
        counts[at] += value.count_at_value();
    }
    let bounds = |at: usize| 2_f64.powf(at as f64 / 2.0);
    let first = counts.iter().position(|calls| *calls > 0).unwrap_or(0);
    let bins = counts.into_iter().enumerate().skip(first);
    bins.map(|(at, calls)| Bin { from: bounds(at), to: bounds(at + 1), calls }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_until_it_changes() {
        let changes = [(1, 10), (2, 40), (3, 20), (12, 5), (31, 7)];
        assert_eq!(kept(&changes, 4, |call| call as usize / 10), [40, 20, 5, 7]);
        assert_eq!(kept(&[], 2, |_| 0), [0, 0]);
    }
}
