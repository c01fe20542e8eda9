//! All findings of a run: how they are counted, allowed and kept.
use super::advice::advice;
use super::allow::{Allow, Suppressions};
use super::caller::TraceFrame;
use super::cause::{Candidate, Cause, Causes};
use super::event::HistoryEvent;
use super::finding::{Details, Finding};
use super::format::Choice;
use super::harness::Harness;
use super::kind::Kind;
use super::machine::MachineNames;
use super::place::Place;
use super::recorded::Recorded;
use super::rule::Rule;
use super::severity::{self, Severity};
use super::spread::Spread;
use super::stored::Stored;
use super::summary::Summary;
use super::trace::Trace;
use crate::hash::FastMap;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// The record of a place.
#[derive(Clone, Copy)]
enum PlaceRecord {
    /// Index into the findings kept, and the depth of the stack at the store from which the last
    /// followed, or 0.
    Kept(u32, usize),
    Counted,
    /// The index of the entry that allows it, and how often to look at the callers again.
    Allowed(u32, u32),
}

/// A finding as its place was seen before.
enum Look {
    /// An entry of the list allows it.
    Allowed,
    /// It only counts.
    Known,
    New(NewPlace),
}

/// A finding at a place that is to be noted.
struct NewPlace {
    key: Key,
    /// How the place was seen before.
    known: Option<PlaceRecord>,
    stack: Stack,
    /// Depth of the stack at the hook.
    depth: usize,
}

/// All findings of a run.
pub(crate) struct Reports {
    totals: [u64; Kind::ALL.len()],
    by_severity: [u64; Severity::ALL.len()],
    seen: FastMap<Key, PlaceRecord>,
    /// Findings that have a place, where [`seen`](Self::seen) names the one of another cause.
    elsewhere: FastMap<(Key, u32), ()>,
    kept: Vec<Finding>,
    causes: Causes,
    limit: usize,
    traces: bool,
    /// The callers of the hooks that are called now, if they were given.
    callers: Option<Trace>,
    harness: Arc<Harness>,
    /// How many more stores have their callers remembered.
    stores_left: usize,
    /// The last of these, with its event.
    stored: Option<(u64, Stored)>,
    /// Whether any store was told.
    pub(crate) tells: bool,
    /// Whether stores are told later than they were made, by other callers.
    is_late: bool,
    suppressions: Suppressions,
    /// How often each entry of the list was needed.
    allowed: Vec<u64>,
    machine: MachineNames,
    choice: Choice,
    /// The seed with which the adversary repeats its choices.
    seed: Option<u64>,
    test: Option<String>,
    finished: bool,
    /// Whether somebody asked for the findings since the last was made.
    read: AtomicBool,
}

impl Reports {
    pub(crate) fn new(
        limit: usize,
        traces: bool,
        suppressions: Suppressions,
        seed: Option<u64>,
        machine: MachineNames,
        (harness, stores): (Harness, usize),
    ) -> Self {
        let thread = std::thread::current();
        Self {
            totals: [0; Kind::ALL.len()],
            by_severity: [0; Severity::ALL.len()],
            seen: FastMap::default(),
            elsewhere: FastMap::default(),
            kept: Vec::new(),
            causes: Causes::default(),
            limit,
            traces,
            callers: None,
            harness: Arc::new(harness),
            stores_left: stores,
            stored: None,
            tells: false,
            is_late: false,
            allowed: vec![0; suppressions.list().len()],
            suppressions,
            machine,
            choice: Choice::from_variable(std::env::var("PTSAN_FORMAT").ok()),
            seed,
            test: thread.name().filter(|name| *name != "main").map(str::to_owned),
            finished: false,
            read: AtomicBool::new(false),
        }
    }

    /// Counts a finding, which follows from `store` if that is known. Calls `details` only for the
    /// first finding at its place, while there is room, and for each misuse.
    pub(crate) fn add(
        &mut self,
        event: u64,
        rule: (Kind, Rule),
        place: Place,
        store: Option<&Stored>,
        details: &mut dyn FnMut() -> Details,
    ) {
        // A misuse is told apart by its note.
        let known = (rule.0 == Kind::Misuse).then(&mut *details);
        let identity = known.as_ref().map_or_else(|| place.identity(), |d| place.identity_of_misuse(&d.note));
        match self.look(event, Key { rule, identity }, &place, store) {
            Look::Allowed => return,
            Look::Known => {}
            Look::New(new) => {
                let details = known.unwrap_or_else(details);
                self.keep(event, new, place, (store, details));
            }
        }
        self.count_one(rule);
    }

    fn count_one(&mut self, (kind, rule): (Kind, Rule)) {
        self.totals[kind as usize] += 1;
        self.by_severity[severity::of(kind, rule) as usize] += 1;
        self.read.store(false, Ordering::Relaxed);
    }

    /// Counts a finding at a place that is known, and finds out whether another one is to be kept.
    fn look(&mut self, event: u64, key: Key, place: &Place, store: Option<&Stored>) -> Look {
        let known = self.seen.get(&key).copied();
        let stored_at = store.map_or(0, Stored::depth);
        match known {
            Some(PlaceRecord::Kept(index, depth))
                if depth == stored_at && (store.is_none() || !self.causes.looks_up_all()) =>
            {
                self.kept[index as usize].again(event, key.rule, place, false);
                Look::Known
            }
            Some(PlaceRecord::Counted) => Look::Known,
            // Another caller may break a rule that one caller is allowed to break.
            Some(PlaceRecord::Allowed(index, 0)) => {
                self.allowed[index as usize] += 1;
                Look::Allowed
            }
            // Nor is a store of another caller the same cause.
            Some(PlaceRecord::Allowed(..) | PlaceRecord::Kept(..)) | None => {
                let harness = self.harness.clone();
                let mut stack = Stack { trace: self.given(), frames: None, harness };
                if self.is_allowed(&key, known, &mut stack) {
                    return Look::Allowed;
                }
                if self.seen.len() >= MOST_PLACES {
                    return Look::Known;
                }
                // The depth is that of this call, whose callers are the hook's.
                let here = 0u8;
                let depth = std::ptr::from_ref(std::hint::black_box(&here)).addr();
                let depth = self.callers.as_ref().and_then(Trace::identity).unwrap_or(depth);
                Look::New(NewPlace { key, known, stack, depth })
            }
        }
    }

    fn is_allowed(&mut self, key: &Key, known: Option<PlaceRecord>, stack: &mut Stack) -> bool {
        let Some((index, by_caller)) = self.suppressions.matching(key.rule, || stack.frames().to_vec())
        else {
            return false;
        };
        self.allowed[index] += 1;
        let looks = match known {
            Some(PlaceRecord::Allowed(_, looks)) => looks - 1,
            _ if by_caller => MOST_LOOKS,
            _ => 0,
        };
        if known.is_some() || self.seen.len() < MOST_PLACES {
            self.seen.insert(*key, PlaceRecord::Allowed(index as u32, looks));
        }
        true
    }

    /// Adds a finding to those of its cause, or keeps it as the first of a new one.
    fn keep(
        &mut self,
        event: u64,
        NewPlace { key, known, mut stack, depth }: NewPlace,
        place: Place,
        (store, details): (Option<&Stored>, Details),
    ) {
        let stored_at = store.map_or(0, Stored::depth);
        let new = Candidate { rule: key.rule, place: &place, details: &details, store, depth };
        let mut callers = || stack.trace().frames();
        let callers: Option<&mut dyn FnMut() -> Vec<TraceFrame>> =
            if self.traces { Some(&mut callers) } else { None };
        let before = match known {
            Some(PlaceRecord::Kept(before, _)) => Some(before),
            _ => None,
        };
        let seen = match self.causes.find(&new, &self.kept, callers) {
            Cause::Known(index) => {
                let new = before != Some(index) && !self.elsewhere.contains_key(&(key, index));
                self.kept[index as usize].again(event, key.rule, &place, new);
                PlaceRecord::Kept(index, stored_at)
            }
            Cause::New(print) if self.kept.len() < self.limit => {
                let index = self.kept.len() as u32;
                self.causes.added(&new, index, print);
                let trace = self.traces.then(|| stack.trace().clone());
                self.push(event, key.rule, place, details, (trace, store.map(|s| s.trace().clone())));
                PlaceRecord::Kept(index, stored_at)
            }
            Cause::New(_) => {
                self.causes.refused(&new);
                PlaceRecord::Counted
            }
            Cause::Unknown => PlaceRecord::Counted,
        };
        if let Some(before) = before
            && !matches!(seen, PlaceRecord::Kept(index, _) if index == before)
            && self.elsewhere.len() < MOST_PLACES
        {
            self.elsewhere.insert((key, before), ());
        }
        self.seen.insert(key, seen);
    }

    fn push(
        &mut self,
        event: u64,
        (kind, rule): (Kind, Rule),
        place: Place,
        details: Details,
        (trace, store): (Option<Trace>, Option<Trace>),
    ) {
        let Details { note, history, origins } = details;
        let machine = self.machine;
        let named = |(event, what)| HistoryEvent { event, what, machine };
        self.kept.push(Finding {
            kind,
            rule,
            place,
            spread: Spread::new(&place),
            event,
            count: 1,
            advice: advice(rule, &place, &self.machine, self.tells),
            note,
            history: history.into_iter().map(named).collect(),
            trace,
            store,
            consequences: Vec::new(),
            origins,
            machine,
            recorded: None,
        });
    }

    /// Takes these for the callers of the hooks that follow, in place of backtraces.
    pub(crate) fn called_from(&mut self, callers: Option<Trace>) {
        self.callers = callers;
    }

    /// Returns the callers of the hook that is called now.
    pub(crate) fn callers(&self) -> Trace {
        self.given().unwrap_or_else(|| Trace::capture(self.harness.clone()))
    }

    /// Returns the callers that were given.
    fn given(&self) -> Option<Trace> {
        self.callers.clone().map(|callers| callers.without(self.harness.clone()))
    }

    /// Marks files or functions as harness.
    pub(crate) fn mark_harness(&mut self, pattern: &str) {
        Arc::make_mut(&mut self.harness).mark(pattern);
    }

    /// Says whether stores are told later than they were made, by other callers.
    #[cfg(feature = "watch")]
    pub(crate) fn told_late(&mut self, late: bool) {
        self.is_late = late;
    }

    /// Returns the callers of the hook of a store that owes flushes, of which `event` is the
    /// number, while there is room. It takes a backtrace once for each store.
    pub(crate) fn stored(&mut self, event: u64) -> Option<Stored> {
        if let Some((at, stored)) = &self.stored
            && *at == event
        {
            return Some(stored.clone());
        }
        let here = 0u8;
        let trace = match self.given().filter(|_| self.traces) {
            Some(given) => given,
            None if !self.traces || self.is_late => return None,
            None => {
                self.stores_left = self.stores_left.checked_sub(1)?;
                self.callers()
            }
        };
        let depth = trace.identity().unwrap_or(std::ptr::from_ref(std::hint::black_box(&here)).addr());
        let stored = Stored::new(trace, depth);
        self.stored = Some((event, stored.clone()));
        Some(stored)
    }

    /// Sorts stores by their callers. Returns the number of the group of each, counted from 0.
    pub(crate) fn sort(&mut self, stores: &[Option<&Stored>]) -> Vec<usize> {
        self.causes.sort(stores)
    }

    /// Names the events of the findings kept as `look` does, which gets the index of a finding and
    /// an event.
    pub(crate) fn name_events(&mut self, unit: &'static str, look: impl Fn(usize, u64) -> Option<Recorded>) {
        for (index, finding) in self.kept.iter_mut().enumerate() {
            finding.name_events(unit, |event| look(index, event));
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

    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    pub(crate) fn unused(&self) -> impl Iterator<Item = &Allow> {
        let never = self.allowed.iter().map(|&n| n == 0);
        self.suppressions.list().iter().zip(never).filter(|u| u.1).map(|u| u.0)
    }

    /// Returns the indices of the findings kept in the order of the report: the worst first.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.kept.len()).collect();
        order.sort_by_key(|&index| self.kept[index].severity());
        order
    }

    /// Returns where a finding stands in the report, counted from 0.
    #[cfg(feature = "watch")]
    pub(crate) fn position(&self, finding: usize) -> Option<usize> {
        self.order().into_iter().position(|index| index == finding)
    }

    pub(crate) fn summary(&self) -> Summary {
        let in_kept: u64 = self.kept.iter().map(Finding::total).sum();
        Summary {
            by_severity: self.by_severity,
            causes: self.kept.len() as u64,
            not_kept: self.total() - in_kept,
            allowed: self.allowed(),
            seed: self.seed,
            test: self.test.clone(),
        }
    }

    pub(super) fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Notes that somebody looks at the findings.
    pub(crate) fn mark_read(&self) {
        self.read.store(true, Ordering::Relaxed);
    }
}

/// Findings that nobody asked for are not lost with the sanitizer. See docs/decisions/ptsan.md,
/// "Findings".
impl Drop for Reports {
    fn drop(&mut self) {
        if self.total() > 0 && !*self.read.get_mut() && !std::thread::panicking() {
            let told =
                "nobody looked at these findings\n  fix: end with Sanitizer::assert_clean or Session::finish";
            // Not `eprintln`: the output of a test that passes would be dropped. If there is no
            // standard error, nobody can be told.
            let _ = writeln!(std::io::stderr().lock(), "\n{self}\nptsan: {told}");
        }
    }
}

/// The callers of the hook, taken and looked up when they are needed first.
struct Stack {
    trace: Option<Trace>,
    /// All callers, with those of the harness.
    frames: Option<Vec<TraceFrame>>,
    harness: Arc<Harness>,
}

impl Stack {
    fn trace(&mut self) -> &Trace {
        self.trace.get_or_insert_with(|| Trace::capture(self.harness.clone()))
    }

    fn frames(&mut self) -> &[TraceFrame] {
        if self.frames.is_none() {
            self.frames = Some(self.trace().with_harness());
        }
        self.frames.as_deref().unwrap_or_default()
    }
}
