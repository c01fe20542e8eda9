//! Groups findings by their cause.
//!
//! # Rules
//!
//! 1. Findings that follow from stores have one cause if the callers of these are the same,
//!    whatever rules were broken and wherever. Where callers are given
//!    ([`Sanitizer::called_from`](crate::Sanitizer::called_from)), those of the hook are the same
//!    too.
//! 2. Findings made by a hook of the code under test have one cause if kind and rule, and the
//!    callers of the hook, are the same: at tables of all levels. Tables freed too early are one
//!    kind.
//! 3. Findings made by a walk, an access or at the end have one cause if the level is the same too.
//!    The caller of the hook is not related to their cause.
//!
//! Of a function that calls itself, directly or not, the innermost call counts: one line of a
//! recursive walk is one cause, however deep the walk was.
//!
//! # Cost
//!
//! To compare callers, their names have to be looked up: some 0.1 ms for each place in a build
//! with debug information, and a first time that reads this information. So the cost is bounded:
//!
//! 1. The first finding of a group, by these rules, is not looked up until there is a second.
//! 2. [`EXACT`] places of a run are compared by the names of their callers.
//! 3. From then on, places are compared by the depth of the stack at the hook, and every
//!    [`SAMPLE`]th of a depth by names too. Two callers at one depth may be taken for one another
//!    between two samples: the totals stay exact, the counts of these two findings do not.
//!
//! Callers that were given ([`Sanitizer::called_from`](crate::Sanitizer::called_from)) are told
//! apart at each place: the list of callers itself stands in for the depth.
//!
//! Without backtraces, the CPU, the space and the note decide, but for the numbers in the note.
use super::caller::TraceFrame;
use super::finding::{Details, Finding, Origins};
use super::kind::Kind;
use super::place::Place;
use super::rule::Rule;
use super::stored::Stored;
use super::trace::Trace;
use crate::hash::FastMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// The number of places that are compared by names.
const EXACT: u32 = 512;
/// Of further places at one depth of the stack, one in so many is.
const SAMPLE: u32 = 64;
/// The number of depths that are told apart.
const MOST_SITES: usize = 1 << 12;

/// Findings that may have one cause.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Group {
    /// They follow from stores.
    Stores,
    Hooks {
        kind: Kind,
        rule: Option<Rule>,
        level: Option<u8>,
    },
}

impl Group {
    fn of((kind, rule): (Kind, Rule), place: &Place) -> Self {
        use Kind as K;
        let (rule, level) = match kind {
            K::FreeBeforeFlush | K::ReuseBeforeFlush => (None, None),
            K::DataFreedBeforeFlush
            | K::DataReusedBeforeFlush
            | K::TableMapped
            | K::WriteExecute
            | K::BitLost
            | K::WrongNumber
            | K::FreeUnderReader
            | K::TornEntry
            | K::UnlockedWrite
            | K::FreeWhileLinked
            | K::LinkedBeforeCleared
            | K::NotZero
            | K::DoubleAllocate
            | K::DoubleFree
            | K::ForeignFree => (Some(rule), None),
            K::StaleUse
            | K::Disagreement
            | K::FlushMissing
            | K::UseAfterFree
            | K::BreakBeforeMake
            | K::ContiguousRange
            | K::HashTable
            | K::UnknownTable
            | K::OutsideMemory
            | K::MalformedEntry
            | K::WalkLoop
            | K::Leak
            | K::Misuse => (Some(rule), place.level),
        };
        Self::Hooks { kind, rule, level }
    }
}

/// A group, and how deep the stack is at the hook.
type Site = (Group, usize);

/// The finding at a site.
struct Found {
    /// Index of the finding, if it is kept.
    finding: Option<u32>,
    places: u32,
}

/// The causes of the findings that are kept.
#[derive(Default)]
pub(super) struct Causes {
    /// Indices of the findings of each group.
    groups: FastMap<Group, Vec<u32>>,
    /// For each finding kept, the fingerprint of its cause, once it was needed.
    prints: Vec<Option<u64>>,
    sites: FastMap<Site, Found>,
    looked_up: u32,
}

/// A finding at a place where it was not seen before.
pub(super) struct Candidate<'a> {
    pub(super) rule: (Kind, Rule),
    pub(super) place: &'a Place,
    pub(super) details: &'a Details,
    /// The store from which it follows.
    pub(super) store: Option<&'a Stored>,
    /// The address of something on the stack.
    pub(super) depth: usize,
}

impl Candidate<'_> {
    fn group(&self) -> Group {
        if self.store.is_some() { Group::Stores } else { Group::of(self.rule, self.place) }
    }

    fn site(&self) -> Site {
        let depth = match self.store {
            Some(store) if is_given(store.trace()) => store.depth() ^ self.depth.rotate_left(17),
            Some(store) => store.depth(),
            None => self.depth,
        };
        (self.group(), depth)
    }
}

/// The answer to a search.
pub(super) enum Cause {
    /// That of the kept finding with this index.
    Known(u32),
    /// A new one, and its fingerprint if that was looked up.
    New(Option<u64>),
    /// The finding can only be counted.
    Unknown,
}

impl Causes {
    /// Looks for a kept finding with the same cause. `callers` looks up those of the new finding;
    /// without backtraces, it is `None`.
    pub(super) fn find(
        &mut self,
        new: &Candidate<'_>,
        kept: &[Finding],
        callers: Option<&mut dyn FnMut() -> Vec<TraceFrame>>,
    ) -> Cause {
        if !self.groups.contains_key(&new.group()) {
            return Cause::New(None);
        }
        let frames = match (allocated(new.rule.1, &new.details.origins), new.store, callers) {
            // Who allocated the table says more than who ended the run.
            (Some(trace), ..) => trace.frames(),
            (None, None, None) => Vec::new(),
            (None, store, callers) => match (self.shortcut(new.site()), store, callers) {
                (Some(cause), ..) => return cause,
                (None, Some(store), Some(callers)) if is_given(store.trace()) => {
                    [store.trace().frames(), callers()].concat()
                }
                (None, Some(store), _) => store.trace().frames(),
                (None, None, callers) => callers.map(|callers| callers()).unwrap_or_default(),
            },
        };
        let print = print(frames, new.rule, new.place, &new.details.note);
        let members = &self.groups[&new.group()];
        let same = members.iter().copied().find(|&index| {
            let other = &kept[index as usize];
            *self.prints[index as usize].get_or_insert_with(|| print_of(other)) == print
        });
        match same {
            Some(index) => {
                self.remember(new.site(), Some(index));
                Cause::Known(index)
            }
            None => Cause::New(Some(print)),
        }
    }

    /// Returns whether every place is still compared by names.
    pub(super) fn looks_up_all(&self) -> bool {
        self.looked_up < EXACT
    }

    /// Returns the cause by the site alone, if names need not be looked up.
    fn shortcut(&mut self, site: Site) -> Option<Cause> {
        let exact = self.looked_up < EXACT;
        let full = self.sites.len() >= MOST_SITES;
        match self.sites.get_mut(&site) {
            Some(found) => {
                found.places = found.places.wrapping_add(1);
                if !exact && !found.places.is_multiple_of(SAMPLE) {
                    return Some(found.finding.map_or(Cause::Unknown, Cause::Known));
                }
            }
            None if full => return Some(Cause::Unknown),
            None => {}
        }
        self.looked_up = self.looked_up.saturating_add(1);
        None
    }

    /// Sorts stores by their callers. Returns the number of the group of each, counted from 0.
    pub(super) fn sort(&mut self, stores: &[Option<&Stored>]) -> Vec<usize> {
        let mut remembered = stores.iter().flatten();
        let first = remembered.next();
        if first.is_none_or(|first| remembered.all(|store| store.is(first))) {
            // As nearly always. No names are looked up.
            return vec![0; stores.len()];
        }
        let mut groups: Vec<Vec<TraceFrame>> = Vec::new();
        let mut known: FastMap<usize, usize> = FastMap::default();
        let mut group_of = |store: &Stored| {
            let at_depth = known.get(&store.depth()).copied();
            if let Some(group) = at_depth.filter(|_| self.looked_up >= EXACT) {
                return group;
            }
            self.looked_up = self.looked_up.saturating_add(1);
            let callers = without_repeats(store.trace().frames());
            let group = groups.iter().position(|other| *other == callers).unwrap_or_else(|| {
                groups.push(callers);
                groups.len() - 1
            });
            known.insert(store.depth(), group);
            group
        };
        let mut last: Option<(&Stored, usize)> = None;
        let mut sorted = Vec::with_capacity(stores.len());
        for store in stores {
            // A store that nobody remembers goes with the others.
            let Some(store) = store else {
                sorted.push(0);
                continue;
            };
            let group = match last {
                Some((before, group)) if before.is(store) => group,
                _ => group_of(store),
            };
            last = Some((store, group));
            sorted.push(group);
        }
        sorted
    }

    fn remember(&mut self, site: Site, finding: Option<u32>) {
        self.sites.entry(site).or_insert(Found { finding, places: 0 }).finding = finding;
    }

    /// Adds a cause with the index of its finding.
    pub(super) fn added(&mut self, new: &Candidate<'_>, index: u32, print: Option<u64>) {
        self.groups.entry(new.group()).or_default().push(index);
        self.prints.push(print);
        self.remember(new.site(), Some(index));
    }

    /// Notes that there was no room for a cause.
    pub(super) fn refused(&mut self, new: &Candidate<'_>) {
        if self.sites.len() < MOST_SITES {
            self.remember(new.site(), None);
        }
    }
}

/// Returns whether the callers come from a recording. It has one instruction, which may be in a
/// function that makes all stores: the caller of the hook counts too.
fn is_given(trace: &Trace) -> bool {
    trace.identity().is_some()
}

fn allocated(rule: Rule, origins: &Origins) -> Option<&Trace> {
    origins.allocated.as_ref().filter(|_| rule == Rule::StillAllocated)
}

/// Returns the fingerprint of the cause of a kept finding.
fn print_of(finding: &Finding) -> u64 {
    let origins = allocated(finding.rule, &finding.origins);
    let trace = origins.or(finding.store.as_ref()).or(finding.trace.as_ref());
    let mut frames = trace.map(Trace::frames).unwrap_or_default();
    if let (None, Some(_), Some(hook)) =
        (origins, finding.store.as_ref().filter(|s| is_given(s)), &finding.trace)
    {
        frames.extend(hook.frames());
    }
    print(frames, (finding.kind, finding.rule), &finding.place, &finding.note)
}

/// Returns the callers with the innermost call of each function alone.
fn without_repeats(mut callers: Vec<TraceFrame>) -> Vec<TraceFrame> {
    let mut seen: Vec<String> = Vec::new();
    callers.retain(|caller| {
        let new = !seen.contains(&caller.symbol);
        if new {
            seen.push(caller.symbol.clone());
        }
        new
    });
    callers
}

/// Returns a hash of the callers, else of the rule, of the note without its numbers and of CPU and
/// space.
fn print(callers: Vec<TraceFrame>, rule: (Kind, Rule), place: &Place, note: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    if callers.is_empty() {
        (rule, place.level, place.cpu, place.space).hash(&mut hasher);
        // A word with a digit in it is a number, in any base and with its punctuation.
        for word in note.split(' ').filter(|word| !word.bytes().any(|b| b.is_ascii_digit())) {
            word.hash(&mut hasher);
        }
    }
    for caller in without_repeats(callers) {
        (&caller.symbol, &caller.at).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: (Kind, Rule) = (Kind::StaleUse, Rule::Unmapped);

    #[test]
    fn notes_that_differ_in_numbers_only_have_one_cause() {
        let place = Place { cpu: Some(1), ..Place::default() };
        let of = |place: &Place, note: &str| print(Vec::new(), RULE, place, note);
        let first =
            of(&place, "CPU 1 is lazy, since event 7; its last flush (of 0xabc, event 12) came before");
        let again =
            of(&place, "CPU 1 is lazy, since event 9; its last flush (of 0x123, event 99) came before");
        assert_eq!(first, again);
        assert_ne!(
            first,
            of(&place, "CPU 1 is active, since event 7; its last flush (of 0xabc, event 12) came before")
        );
        assert_ne!(of(&place, ""), of(&Place { cpu: Some(2), ..place }, ""));
    }

    #[test]
    fn callers_count_more_than_notes() {
        let frame = |at: &str| TraceFrame { symbol: "kernel::unmap".to_owned(), at: Some(at.to_owned()) };
        let of = |at: &str, note: &str| print(vec![frame(at)], RULE, &Place::default(), note);
        assert_eq!(of("a.rs:1:1", "x"), of("a.rs:1:1", "y"));
        assert_ne!(of("a.rs:1:1", "x"), of("a.rs:2:1", "x"));
    }

    #[test]
    fn of_a_recursive_function_the_innermost_call_counts() {
        let of = |calls: &[(&str, &str)]| {
            let frame =
                |&(symbol, at): &(&str, &str)| TraceFrame { symbol: symbol.into(), at: Some(at.into()) };
            print(calls.iter().map(frame).collect(), RULE, &Place::default(), "")
        };
        let leaf = of(&[("free_level", "9"), ("destroy", "20")]);
        assert_eq!(leaf, of(&[("free_level", "9"), ("free_level", "5"), ("destroy", "20")]));
        assert_eq!(of(&[("a", "1"), ("b", "2")]), of(&[("a", "1"), ("b", "2"), ("a", "3"), ("b", "2")]));
        assert_ne!(leaf, of(&[("free_level", "8"), ("free_level", "9"), ("destroy", "20")]));
        assert_ne!(leaf, of(&[("free_level", "9"), ("destroy", "21")]));
    }
}
