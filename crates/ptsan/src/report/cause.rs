//! Which findings have one cause.
//!
//! Findings of one kind and rule, at tables of one level, have one cause if their callers are the
//! same. To compare callers, their names have to be looked up: some 0.1 ms for each place in a build
//! with debug information, and a first time that reads this information. So the cost is bounded:
//!
//! 1. The first finding of a group (kind, rule, level) is not looked up until there is a second.
//! 2. [`EXACT`] places of a run are compared by the names of their callers.
//! 3. From then on, places are compared by the depth of the stack at the hook, and every
//!    [`SAMPLE`]th of a depth by names too. Two callers at one depth may be taken for one another
//!    between two samples: the totals stay exact, the counts of these two findings do not.
//!
//! Callers that were given ([`Sanitizer::called_from`](crate::Sanitizer::called_from)) are told apart
//! at each place: what stands for the depth is the list of callers itself.
//!
//! Without backtraces, the CPU, the space and the note decide, but for the numbers in the note.
use super::caller::TraceFrame;
use super::finding::{Details, Finding, Origins};
use super::kind::Kind;
use super::place::Place;
use super::rule::Rule;
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
struct Group {
    kind: u8,
    rule: u8,
    level: u8,
}

/// A group, and how deep the stack is at the hook.
type Site = (Group, usize);

/// What was found at a site.
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
    /// For each finding kept, what stands for its cause, once it was needed.
    prints: Vec<Option<u64>>,
    sites: FastMap<Site, Found>,
    looked_up: u32,
}

/// A finding at a place where it was not seen before.
pub(super) struct Candidate<'a> {
    pub(super) rule: (Kind, Rule),
    pub(super) place: &'a Place,
    pub(super) details: &'a Details,
    /// The address of something on the stack.
    pub(super) depth: usize,
}

impl Candidate<'_> {
    fn group(&self) -> Group {
        let (kind, rule) = self.rule;
        Group { kind: kind as u8, rule: rule as u8, level: self.place.level.unwrap_or(u8::MAX) }
    }

    fn site(&self) -> Site {
        (self.group(), self.depth)
    }
}

/// The answer to a search.
pub(super) enum Cause {
    /// That of the kept finding with this index.
    Known(u32),
    /// A new one, and what stands for it if that was looked up.
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
        callers: Option<impl FnOnce() -> Vec<TraceFrame>>,
    ) -> Cause {
        if !self.groups.contains_key(&new.group()) {
            return Cause::New(None);
        }
        let allocated = allocated(new.rule.1, &new.details.origins);
        let frames = match (allocated, callers) {
            // Who allocated the table says more than who ended the run.
            (Some(trace), _) => trace.frames(),
            (None, None) => Vec::new(),
            (None, Some(callers)) => match self.shortcut(new.site()) {
                Some(cause) => return cause,
                None => callers(),
            },
        };
        let print = print(&frames, new.place, &new.details.note);
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

    /// Returns what the site says, if names need not be looked up.
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

fn allocated(rule: Rule, origins: &Origins) -> Option<&Trace> {
    origins.allocated.as_ref().filter(|_| rule == Rule::StillAllocated)
}

/// Returns what stands for the cause of a kept finding.
fn print_of(finding: &Finding) -> u64 {
    let trace = allocated(finding.rule, &finding.origins).or(finding.trace.as_ref());
    print(&trace.map(Trace::frames).unwrap_or_default(), &finding.place, &finding.note)
}

/// Returns a hash of the callers, else of the note without its numbers and of CPU and space.
fn print(callers: &[TraceFrame], place: &Place, note: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    if callers.is_empty() {
        (place.cpu, place.space).hash(&mut hasher);
        // A word with a digit in it is a number, in any base and with its punctuation.
        for word in note.split(' ').filter(|word| !word.bytes().any(|b| b.is_ascii_digit())) {
            word.hash(&mut hasher);
        }
    }
    for caller in callers {
        (&caller.symbol, &caller.at).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_differ_in_numbers_only_have_one_cause() {
        let place = Place { cpu: Some(1), ..Place::default() };
        let of = |place: &Place, note: &str| print(&[], place, note);
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
        let of = |at: &str, note: &str| print(&[frame(at)], &Place::default(), note);
        assert_eq!(of("a.rs:1:1", "x"), of("a.rs:1:1", "y"));
        assert_ne!(of("a.rs:1:1", "x"), of("a.rs:2:1", "x"));
    }
}
