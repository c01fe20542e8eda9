//! Findings: what they are, how they are counted, how they print.
mod allow;
mod kind;
mod trace;
mod wrap;

use crate::hash::FastMap;
use crate::history::HistoryEvent;
pub use allow::{Allow, SuppressionError, Suppressions};
pub use kind::{Kind, Rule};
use std::fmt;
use std::hash::{Hash, Hasher};
pub use trace::{Trace, TraceFrame};

/// After so many different places, further findings only count in the totals: memory stays bounded.
const MOST_PLACES: usize = 1 << 16;

/// How often a finding at one place is compared with the allowed callers again.
const MOST_LOOKS: u32 = 16;

/// A defect, and where it was first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub kind: Kind,
    /// The rule that was broken.
    pub rule: Rule,
    /// Where.
    pub place: Place,
    /// Number of the hook call that found it first, counted from 1.
    pub event: u64,
    /// How often the same rule was broken at the same place.
    pub count: u64,
    /// Particulars of the first time.
    pub note: String,
    /// The last events of the table frame, oldest first.
    pub history: Vec<HistoryEvent>,
    /// Who called the hook.
    pub trace: Option<Trace>,
    /// Who allocated the table and who freed it, if [`crate::Config::track_origins`] is set.
    pub origins: Origins,
}

/// Where a table came from and went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// The last allocation.
    pub allocated: Option<Trace>,
    /// The last time it was given back.
    pub freed: Option<Trace>,
}

/// What a finding says beyond its place.
pub(crate) struct Details {
    pub(crate) note: String,
    pub(crate) history: Vec<HistoryEvent>,
    pub(crate) origins: Origins,
}

/// Where something was found; what does not apply is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Physical address of the table frame.
    pub frame: Option<u64>,
    /// Virtual address.
    pub va: Option<u64>,
    /// The CPU that walked, or that may still hold the frame.
    pub cpu: Option<usize>,
    /// Level of the table.
    pub level: Option<u8>,
    /// The address space.
    pub space: Option<u64>,
}

impl Place {
    /// What makes two findings of one rule the same: the frame, else the page, else the space.
    fn identity(&self) -> u64 {
        self.frame.or(self.va.map(|va| va & !0xfff)).or(self.space).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        wrap::words(f, 0, 0, &format!("{}: {}", self.kind, self.rule))?;
        let mut place = format!("at event {}", self.event);
        let mut add = |what: &str, number: Option<String>| {
            if let Some(number) = number {
                place.push_str(&format!(", {what} {number}"));
            }
        };
        add("table frame", self.place.frame.map(|n| format!("{n:#x}")));
        add("level", self.place.level.map(|n| n.to_string()));
        add("address", self.place.va.map(|n| format!("{n:#x}")));
        add("CPU", self.place.cpu.map(|n| n.to_string()));
        add("space", self.place.space.map(|n| n.to_string()));
        if self.count > 1 {
            place.push_str(&format!(" ({} times)", self.count));
        }
        wrap::line(f, 2, &place)?;
        if !self.note.is_empty() {
            wrap::line(f, 2, &self.note)?;
        }
        for h in &self.history {
            wrap::line(f, 4, &h.to_string())?;
        }
        for (title, trace) in [
            ("found in", &self.trace),
            ("the table was freed in", &self.origins.freed),
            ("the table was allocated in", &self.origins.allocated),
        ] {
            let frames = trace.as_ref().map(Trace::frames).unwrap_or_default();
            if !frames.is_empty() {
                wrap::line(f, 2, title)?;
            }
            for frame in frames {
                wrap::line(f, 4, &frame.symbol)?;
                if let Some(at) = frame.at {
                    wrap::line(f, 6, &format!("at {at}"))?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    rule: (Kind, Rule),
    identity: u64,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64((self.rule.0 as u64) << 8 | self.rule.1 as u64);
        state.write_u64(self.identity);
    }
}

/// What is known of a place.
#[derive(Clone, Copy)]
enum Seen {
    /// Index into the findings kept.
    Kept(u32),
    Counted,
    /// By which entry of the list, and how often to look at the callers again.
    Allowed(u32, u32),
}

/// All findings of a run.
#[derive(Default)]
pub(crate) struct Reports {
    totals: [u64; Kind::ALL.len()],
    seen: FastMap<Key, Seen>,
    kept: Vec<Finding>,
    limit: usize,
    traces: bool,
    suppressions: Suppressions,
    /// How often each was needed.
    allowed: Vec<u64>,
    /// With which the adversary does the same again.
    seed: Option<u64>,
    finished: bool,
}

impl Reports {
    pub(crate) fn new(limit: usize, traces: bool, suppressions: Suppressions, seed: Option<u64>) -> Self {
        let allowed = vec![0; suppressions.list().len()];
        Self { limit, traces, suppressions, allowed, seed, ..Self::default() }
    }

    /// Counts a finding; `details` are made only for the first at its place, while there is room.
    pub(crate) fn add(
        &mut self,
        event: u64,
        (kind, rule): (Kind, Rule),
        place: Place,
        details: impl FnOnce() -> Details,
    ) {
        let key = Key { rule: (kind, rule), identity: place.identity() };
        let known = self.seen.get(&key).copied();
        match known {
            Some(Seen::Kept(index)) => self.kept[index as usize].count += 1,
            Some(Seen::Counted) => {}
            // Another caller may do what one caller is allowed to do.
            Some(Seen::Allowed(index, 0)) => {
                self.allowed[index as usize] += 1;
                return;
            }
            Some(Seen::Allowed(..)) | None => {
                if self.is_allowed(&key, known) {
                    return;
                }
                self.keep(event, key, place, details);
            }
        }
        self.totals[kind as usize] += 1;
    }

    fn is_allowed(&mut self, key: &Key, known: Option<Seen>) -> bool {
        let Some((index, by_caller)) = self.suppressions.matching(key.rule, || Trace::capture().frames())
        else {
            return false;
        };
        self.allowed[index] += 1;
        let looks = match known {
            Some(Seen::Allowed(_, looks)) => looks - 1,
            _ if by_caller => MOST_LOOKS,
            _ => 0,
        };
        if known.is_some() || self.seen.len() < MOST_PLACES {
            self.seen.insert(*key, Seen::Allowed(index as u32, looks));
        }
        true
    }

    fn keep(&mut self, event: u64, key: Key, place: Place, details: impl FnOnce() -> Details) {
        if self.seen.len() >= MOST_PLACES {
            return;
        }
        let room = self.kept.len() < self.limit;
        self.seen.insert(key, if room { Seen::Kept(self.kept.len() as u32) } else { Seen::Counted });
        if room {
            let (kind, rule) = key.rule;
            let Details { note, history, origins } = details();
            let trace = self.traces.then(Trace::capture);
            self.kept.push(Finding { kind, rule, place, event, count: 1, note, history, trace, origins });
        }
    }

    pub(crate) fn findings(&self) -> &[Finding] {
        &self.kept
    }

    pub(crate) fn count(&self, kind: Kind) -> u64 {
        self.totals[kind as usize]
    }

    pub(crate) fn total(&self) -> u64 {
        self.totals.iter().sum()
    }

    pub(crate) fn allowed(&self) -> u64 {
        self.allowed.iter().sum()
    }

    /// The run is over: what was allowed and did not happen can be told.
    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }

    pub(crate) fn unused(&self) -> impl Iterator<Item = &Allow> {
        let never = self.allowed.iter().map(|&n| n == 0);
        self.suppressions.list().iter().zip(never).filter(|u| u.1).map(|u| u.0)
    }
}

impl fmt::Display for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.total() {
            0 => write!(f, "ptsan: no findings")?,
            1 => write!(f, "ptsan: 1 finding")?,
            many => write!(f, "ptsan: {many} findings")?,
        }
        for kind in Kind::ALL {
            if self.count(kind) > 0 {
                write!(f, "\n  {:>8}  {kind}", self.count(kind))?;
            }
        }
        if self.allowed() > 0 {
            write!(f, "\n  {:>8}  allowed, not counted above", self.allowed())?;
        }
        if let Some(seed) = self.seed.filter(|_| self.total() > 0) {
            write!(f, "\n  PTSAN_SEED={seed:#x} makes the adversary do the same again")?;
        }
        for allow in self.unused().filter(|_| self.finished) {
            wrap::line(f, 2, &format!("allowed and not seen: {allow}"))?;
        }
        for finding in &self.kept {
            write!(f, "\n\n{finding}")?;
        }
        let shown: u64 = self.kept.iter().map(|k| k.count).sum();
        if shown < self.total() {
            write!(f, "\n\n{} more are counted above and not kept", self.total() - shown)?;
        }
        Ok(())
    }
}
