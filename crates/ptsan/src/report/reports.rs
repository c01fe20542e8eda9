//! All findings of a run: how they are counted, allowed, kept and printed.
use super::allow::{Allow, Suppressions};
use super::finding::{Details, Finding, Place};
use super::kind::Kind;
use super::rule::Rule;
use super::trace::Trace;
use super::wrap;
use crate::hash::FastMap;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The number of distinct places after which findings only count in the totals, so that memory
/// stays bounded.
const MOST_PLACES: usize = 1 << 16;

/// How often a finding at one place is compared again with the allowed callers.
const MOST_LOOKS: u32 = 16;

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
    /// The index of the entry that allows it, and how often to look at the callers again.
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
    /// How often each entry of the list was needed.
    allowed: Vec<u64>,
    /// The seed with which the adversary repeats its choices.
    seed: Option<u64>,
    finished: bool,
}

impl Reports {
    pub(crate) fn new(limit: usize, traces: bool, suppressions: Suppressions, seed: Option<u64>) -> Self {
        let allowed = vec![0; suppressions.list().len()];
        Self { limit, traces, suppressions, allowed, seed, ..Self::default() }
    }

    /// Counts a finding. Calls `details` only for the first finding at its place, while there is
    /// room.
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
            // Another caller may break a rule that one caller is allowed to break.
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

    /// Ends the run: from now on the report lists allowed findings that did not happen.
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
            write!(f, "\n  PTSAN_SEED={seed:#x} repeats the adversary's choices")?;
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
