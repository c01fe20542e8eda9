//! Findings: what they are, how they are counted, how they print.
mod kind;

use crate::hash::FastMap;
use crate::history::HistoryEvent;
pub use kind::{Kind, Rule};
use std::fmt;
use std::hash::{Hash, Hasher};

/// After so many different places, further findings only count in the totals: memory stays bounded.
const MOST_PLACES: usize = 1 << 16;

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
        write!(f, "{}: {}", self.kind, self.rule)?;
        write!(f, "\n  at event {}", self.event)?;
        if let Some(frame) = self.place.frame {
            write!(f, ", table frame {frame:#x}")?;
        }
        if let Some(level) = self.place.level {
            write!(f, ", level {level}")?;
        }
        if let Some(va) = self.place.va {
            write!(f, ", address {va:#x}")?;
        }
        if let Some(cpu) = self.place.cpu {
            write!(f, ", CPU {cpu}")?;
        }
        if let Some(space) = self.place.space {
            write!(f, ", space {space}")?;
        }
        if self.count > 1 {
            write!(f, " ({} times)", self.count)?;
        }
        if !self.note.is_empty() {
            write!(f, "\n  {}", self.note)?;
        }
        for h in &self.history {
            write!(f, "\n    {h}")?;
        }
        Ok(())
    }
}

#[derive(PartialEq, Eq)]
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

/// All findings of a run.
#[derive(Default)]
pub(crate) struct Reports {
    totals: [u64; Kind::ALL.len()],
    /// Index into `kept`, or `None` for a place that is counted only.
    seen: FastMap<Key, Option<u32>>,
    kept: Vec<Finding>,
    limit: usize,
}

impl Reports {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Counts a finding; `details` are made only for the first at its place, while there is room.
    pub(crate) fn add(
        &mut self,
        event: u64,
        (kind, rule): (Kind, Rule),
        place: Place,
        details: impl FnOnce() -> (String, Vec<HistoryEvent>),
    ) {
        self.totals[kind as usize] += 1;
        let key = Key { rule: (kind, rule), identity: place.identity() };
        if let Some(known) = self.seen.get(&key) {
            if let Some(index) = known {
                self.kept[*index as usize].count += 1;
            }
            return;
        }
        if self.seen.len() >= MOST_PLACES {
            return;
        }
        let room = self.kept.len() < self.limit;
        self.seen.insert(key, room.then_some(self.kept.len() as u32));
        if room {
            let (note, history) = details();
            self.kept.push(Finding { kind, rule, place, event, count: 1, note, history });
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
}

impl fmt::Display for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.total() == 0 {
            return write!(f, "ptsan: no findings");
        }
        write!(f, "ptsan: {} finding{}", self.total(), if self.total() == 1 { "" } else { "s" })?;
        for kind in Kind::ALL {
            if self.count(kind) > 0 {
                write!(f, "\n  {:>8}  {kind}", self.count(kind))?;
            }
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
