//! Describes one finding.
use super::caller::TraceFrame;
use super::consequence::Consequence;
use super::event::{Happened, HistoryEvent};
use super::kind::Kind;
use super::machine::MachineNames;
use super::place::Place;
use super::recorded::{Names, Recorded, events_in, in_units};
use super::rule::Rule;
use super::severity::{self, Severity};
use super::spread::Spread;
use super::trace::Trace;

/// A defect: a rule that was broken for one cause, and where that was first seen.
///
/// A cause is the callers of a store that took away entries which CPUs still hold, else the callers
/// of the hook. Its consequences are listed with it. Without backtraces, a cause is the rule, the
/// level, the CPU, the space and the note without its numbers.
/// ```
/// use ptsan::{Arch, Session, Severity};
///
/// let mut s = Session::new(Arch::x86_64(), vec![0u8; 1 << 16]);
/// s.alloc(0x1000);
/// s.free(0x1000);
/// s.free(0x1000);
/// let found = &s.sanitizer.findings()[0];
/// assert_eq!((found.severity(), found.event, found.count), (Severity::MemoryCorruption, 3, 1));
/// assert!(found.to_string().contains("double-free"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of the defect.
    pub kind: Kind,
    /// The rule that was broken.
    pub rule: Rule,
    /// Where it was found first.
    pub place: Place,
    /// All places at which this rule was broken, at tables of this level.
    pub spread: Spread,
    /// Number of the hook call that found it first, counted from 1.
    pub event: u64,
    /// How often this rule was broken for this cause, at tables of this level.
    pub count: u64,
    /// Other findings with the same cause.
    pub consequences: Vec<Consequence>,
    /// Advice for a correction. Empty if the sentence of the rule says enough.
    pub advice: String,
    /// Particulars of the first time.
    pub note: String,
    /// The last events of the table frame, oldest first.
    pub history: Vec<HistoryEvent>,
    /// The callers of the hook.
    pub trace: Option<Trace>,
    /// The callers of the store that took away an entry which a CPU still held, if stores are told
    /// or watched.
    pub store: Option<Trace>,
    /// The callers that allocated and freed the table, if [`crate::Config::track_origins`] is set.
    pub origins: Origins,
    /// The names of levels, CPUs and devices.
    pub(super) machine: MachineNames,
    /// How events are named, if they were recorded elsewhere.
    pub(super) recorded: Option<Names>,
}

impl Finding {
    /// Returns the harm that the defect can do.
    #[must_use]
    pub fn severity(&self) -> Severity {
        let others = self.consequences.iter().map(|c| severity::of(c.kind, c.rule));
        others.fold(severity::of(self.kind, self.rule), Severity::min)
    }

    /// Returns how often any rule was broken for this cause.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.count + self.consequences.iter().map(|c| c.count).sum::<u64>()
    }

    /// Counts a rule that was broken for this cause once more. `new` says that it was not broken at
    /// this place before.
    pub(super) fn again(&mut self, event: u64, rule: (Kind, Rule), place: &Place, new: bool) {
        if rule == (self.kind, self.rule) && place.level == self.place.level {
            self.count += 1;
            if new {
                self.spread.add(place)
            } else {
                self.spread.touch(place)
            }
            return;
        }
        match self.consequences.iter_mut().find(|c| c.is(rule, place)) {
            Some(known) => {
                known.count += 1;
                known.places += u64::from(new);
            }
            None => {
                let (kind, rule) = rule;
                let place = *place;
                self.consequences.push(Consequence { kind, rule, place, event, count: 1, places: 1 });
            }
        }
    }

    /// Returns the format's name for the level of the table.
    #[must_use]
    pub fn level_name(&self) -> Option<String> {
        self.place.level.map(|level| self.machine.level(level))
    }

    /// Returns the numbers of the events that the finding mentions besides its own: those of its
    /// history, of its note and of its consequences.
    pub fn events(&self) -> impl Iterator<Item = u64> + '_ {
        let others = self.consequences.iter().map(|c| c.event);
        self.history.iter().map(|h| h.event).chain(events_in(&self.note)).chain(others)
    }

    /// Replaces the numbers of events by those of a recording. An event that `look` does not know
    /// gets number 0.
    pub(super) fn name_events(&mut self, unit: &'static str, look: impl Fn(u64) -> Option<Recorded>) {
        let number = |event| look(event).map_or(0, |recorded| recorded.number);
        let mut callers = Vec::new();
        for event in &mut self.history {
            callers.push(look(event.event).and_then(|recorded| recorded.callers));
            event.event = number(event.event);
        }
        let mut noted: Vec<Recorded> = events_in(&self.note).filter_map(&look).collect();
        noted.retain(|recorded| recorded.callers.is_some());
        noted.sort_by_key(|recorded| recorded.number);
        noted.dedup_by_key(|recorded| recorded.number);
        self.event = number(self.event);
        self.consequences.iter_mut().for_each(|c| c.event = number(c.event));
        self.note = in_units(&self.note, unit, number);
        self.recorded = Some(Names { unit, callers, noted });
    }

    pub(super) fn event_text(&self, number: u64) -> String {
        self.recorded.as_ref().map_or_else(|| format!("event {number}"), |names| names.text(number))
    }

    /// Returns the callers of an event of the history, if a recording has them.
    pub(super) fn callers_of(&self, index: usize) -> Option<&Trace> {
        self.recorded.as_ref()?.callers.get(index)?.as_ref()
    }

    /// Returns the events that the note mentions and whose callers a recording has.
    pub(super) fn noted(&self) -> impl Iterator<Item = (u64, &Trace)> {
        let noted = self.recorded.as_ref().map(|names| names.noted.as_slice()).unwrap_or_default();
        noted.iter().filter_map(|event| Some((event.number, event.callers.as_ref()?)))
    }

    /// Returns whether it is found later than the code did wrong, and by another caller of a hook:
    /// when an operation has ended, or at an access.
    pub(super) fn is_found_late(&self) -> bool {
        let late = [Kind::StaleUse, Kind::FlushMissing, Kind::ContiguousRange, Kind::BreakBeforeMake];
        self.store.is_some() && late.contains(&self.kind)
    }

    /// Returns the callers that the finding is about: those of the store if it is found late, else
    /// those of the hook.
    fn callers(&self) -> Option<&Trace> {
        if self.is_found_late() { self.store.as_ref() } else { self.trace.as_ref() }
    }

    /// Returns the innermost caller in the code under test: the line that reports mark.
    pub(super) fn innermost(&self) -> Option<TraceFrame> {
        self.callers().and_then(|trace| trace.frames().into_iter().next())
    }

    /// Returns the line of a report that says where and when a rule was broken first.
    pub(super) fn whereabouts(&self, event: u64, place: &Place) -> String {
        let mut text = format!("at {}", self.event_text(event));
        let mut add = |part: Option<String>| {
            if let Some(part) = part {
                text.push_str(", ");
                text.push_str(&part);
            }
        };
        add(place.frame.map(|n| format!("table frame {n:#x}")));
        add(place.level.map(|level| self.machine.level(level)));
        add(place.va.map(|n| format!("address {n:#x}")));
        add(place.cpu.map(|n| self.machine.reader(n)));
        add(place.space.map(|n| format!("space {n:#x}")));
        text
    }
}

/// The callers that allocated and freed a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// The last allocation.
    pub allocated: Option<Trace>,
    /// The last time it was freed.
    pub freed: Option<Trace>,
}

/// The parts of a finding beyond its place.
pub(crate) struct Details {
    pub(crate) note: String,
    /// The last events of the table frame, by the number of the hook call.
    pub(crate) history: Vec<(u64, Happened)>,
    pub(crate) origins: Origins,
}
