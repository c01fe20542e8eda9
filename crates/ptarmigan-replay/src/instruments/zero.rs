//! Zeroing in idle time: how many zeroed frames were requested, found and cleared, and whether it
//! pays.
//!
//! A recording says when a CPU was idle, but not for how long. So every idle moment is worth the
//! number of frames given on the command line, and the time for clearing them is charged. The
//! report shows this time separately, and compares the total with passes without zeroing in the
//! same rounds.
use ptarmigan::frames::ZeroCounts;
use ptarmigan_bench::stats::median;
use ptarmigan_term::text::{Text, TextTable};
use ptarmigan_term::{Count, Time};
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// Processor time of all workers in one round.
#[derive(Clone, Copy)]
pub struct IdleRound {
    /// Of a replay that clears frames in idle time.
    pub with: Duration,
    /// The part of `with` that was spent clearing frames in idle time.
    pub ahead: Duration,
    /// Of a replay in which idle CPUs do not clear frames.
    pub without: Duration,
}

/// Requests for zeroed frames.
#[derive(Serialize, Clone, Copy, Default)]
pub struct ZeroRequests {
    /// Number of requests.
    pub asked: u64,
    /// Requests served with a frame known to be zero.
    pub found: u64,
    /// Requests that had to clear the frame.
    pub cleared_then: u64,
    /// Frames cleared ahead of need.
    pub cleared_ahead: u64,
    /// Frames known to be zero that served other requests.
    pub wasted: u64,
}

impl From<ZeroCounts> for ZeroRequests {
    fn from(c: ZeroCounts) -> Self {
        ZeroRequests {
            asked: c.asked,
            found: c.found,
            cleared_then: c.asked - c.found,
            cleared_ahead: c.ahead,
            wasted: c.wasted,
        }
    }
}

/// The result of zeroing in idle time.
#[derive(Serialize, Clone, Default)]
pub struct ZeroReport {
    /// Frames cleared in each idle moment.
    pub idle_zero: u32,
    /// Requests by faults on anonymous memory.
    pub faults: ZeroRequests,
    /// Requests to the zones, for tables and for the CPUs' lists.
    pub zones: ZeroRequests,
    /// Processor time with idle zeroing, as medians of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<IdleTimes>,
}

/// Processor time of all workers, in nanoseconds.
#[derive(Serialize, Clone, Copy)]
pub struct IdleTimes {
    /// Of the replay without the time for idle zeroing.
    pub replay_ns: f64,
    /// Of idle zeroing.
    pub ahead_ns: f64,
    /// Of both.
    pub total_ns: f64,
    /// Of a replay in which idle CPUs do not clear frames.
    pub without_ns: f64,
    /// `replay_ns` divided by `without_ns`. Below 1, programs wait less than without idle zeroing.
    pub replay_ratio: f64,
    /// `total_ns` divided by `without_ns`. Below 1, all work together takes less time.
    pub total_ratio: f64,
}

impl IdleTimes {
    /// Returns the medians, or `None` without rounds.
    pub fn of(rounds: &[IdleRound]) -> Option<Self> {
        let middle = |value: &dyn Fn(&IdleRound) -> f64| median(rounds.iter().map(value));
        let ns = |d: Duration| d.as_nanos() as f64;
        let replay = |r: &IdleRound| ns(r.with.saturating_sub(r.ahead));
        let without = |r: &IdleRound| ns(r.without).max(1.0);
        (!rounds.is_empty()).then(|| IdleTimes {
            replay_ns: middle(&replay),
            ahead_ns: middle(&|r| ns(r.ahead)),
            total_ns: middle(&|r| ns(r.with)),
            without_ns: middle(&without),
            replay_ratio: middle(&|r| replay(r) / without(r)),
            total_ratio: middle(&|r| ns(r.with) / without(r)),
        })
    }
}

impl ZeroReport {
    /// Writes lines of at most 80 columns.
    pub fn write(&self, out: &mut Text) -> std::fmt::Result {
        let mut table = TextTable::new(
            &["zero", "asked for", "found zero", "cleared then", "cleared ahead", "wasted"],
            &[-8, 10, 10, 12, 13, 10],
        );
        for (name, a) in [("  faults", &self.faults), ("  zones", &self.zones)] {
            let counts = [a.asked, a.found, a.cleared_then, a.cleared_ahead, a.wasted];
            table.texts([name.to_owned()].into_iter().chain(counts.map(|n| Count(n).to_string())));
        }
        out.table(table);
        if let Some(t) = &self.times {
            let [replay, ahead, total, without] =
                [t.replay_ns, t.ahead_ns, t.total_ns, t.without_ns].map(Time::from_nanos);
            writeln!(out, "  replay {replay}, clearing ahead {ahead}, in all {total}; without {without}")?;
            writeln!(
                out,
                "  replay {:.3} x, in all {:.3} x the time without",
                t.replay_ratio, t.total_ratio
            )?;
        }
        Ok(())
    }
}
