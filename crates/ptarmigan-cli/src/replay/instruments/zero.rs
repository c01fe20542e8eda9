//! Frames cleared ahead in idle time: how many were asked for, found and cleared, and whether it pays.
//!
//! Recordings say when a CPU had nothing to do, not for how long. So each such moment is taken to be good for the number of
//! frames given on the command line, and what clearing them took is charged: it is shown apart, and in a
//! total that is compared with passes without it, in the same rounds.
use crate::measure::stats::median;
use ptarmigan::frames::ZeroCounts;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// Processor time of all workers in one round.
#[derive(Clone, Copy)]
pub struct IdleRound {
    /// Of the whole replay with idle work.
    pub with: Duration,
    /// The idle work in that.
    pub ahead: Duration,
    /// Of a replay in which idle CPUs clear nothing.
    pub without: Duration,
}

/// Frames that were asked for as zero.
#[derive(Serialize, Clone, Copy, Default)]
pub struct ZeroRequests {
    /// Asked for.
    pub asked: u64,
    /// Known to be zero.
    pub found: u64,
    /// Cleared when they were handed out: the difference.
    pub cleared_then: u64,
    /// Cleared ahead.
    pub cleared_ahead: u64,
    /// Known to be zero, and taken by somebody who had not asked for that.
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

/// What came of it.
#[derive(Serialize, Clone, Default)]
pub struct ZeroReport {
    /// Frames that each idle moment is good for.
    pub idle_zero: u32,
    /// Asked for by faults on anonymous memory.
    pub faults: ZeroRequests,
    /// Asked of the zones, for tables and for the CPUs' lists.
    pub zones: ZeroRequests,
    /// Processor time, if idle moments were used: medians of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<IdleTimes>,
}

/// Processor time of all workers, in nanoseconds.
#[derive(Serialize, Clone, Copy)]
pub struct IdleTimes {
    /// Of the replay, without the idle work.
    pub replay_ns: f64,
    /// Of the idle work.
    pub ahead_ns: f64,
    /// Of both.
    pub total_ns: f64,
    /// Of the replay when idle CPUs clear nothing.
    pub without_ns: f64,
    /// The first by the last, round by round: below 1, nobody waits as long as before.
    pub replay_ratio: f64,
    /// The total by the last: below 1, less work is done in all.
    pub total_ratio: f64,
}

impl IdleTimes {
    /// The medians; `None` if there were no rounds.
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
    /// Lines of at most 80 columns.
    pub fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "{:<8} {:>10} {:>10} {:>12} {:>13} {:>10}",
            "zero", "asked for", "found zero", "cleared then", "cleared ahead", "wasted"
        )?;
        for (name, a) in [("faults", &self.faults), ("zones", &self.zones)] {
            writeln!(
                out,
                "  {:<6} {:>10} {:>10} {:>12} {:>13} {:>10}",
                name, a.asked, a.found, a.cleared_then, a.cleared_ahead, a.wasted
            )?;
        }
        if let Some(t) = &self.times {
            let ms = |ns: f64| ns / 1e6;
            writeln!(
                out,
                "  replay {:.1} ms, clearing ahead {:.1} ms, in all {:.1} ms; without {:.1} ms",
                ms(t.replay_ns),
                ms(t.ahead_ns),
                ms(t.total_ns),
                ms(t.without_ns)
            )?;
            writeln!(
                out,
                "  replay {:.3} x, in all {:.3} x the time without",
                t.replay_ratio, t.total_ratio
            )?;
        }
        Ok(())
    }
}
