//! One finding: what it says, and how it prints.
use super::event::HistoryEvent;
use super::kind::Kind;
use super::place::Place;
use super::recorded::{Names, Recorded, events_in, in_units};
use super::rule::Rule;
use super::severity::{self, Severity};
use super::spread::Spread;
use super::trace::Trace;
use super::wrap;
use crate::arch::level_name;
use std::fmt;

/// A defect: a rule that was broken for one cause, and where that was first seen.
///
/// A cause is the callers of the hook, at tables of one level. Where there are no backtraces, it is
/// the CPU, the space and what the note says but for its numbers.
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
    /// What is wrong.
    pub kind: Kind,
    /// The rule that was broken.
    pub rule: Rule,
    /// Where it was found first.
    pub place: Place,
    /// All places at which it was found.
    pub spread: Spread,
    /// Number of the hook call that found it first, counted from 1.
    pub event: u64,
    /// How often the rule was broken for this cause.
    pub count: u64,
    /// What to do. Empty if the sentence of the rule says it.
    pub advice: String,
    /// Particulars of the first time.
    pub note: String,
    /// The last events of the table frame, oldest first.
    pub history: Vec<HistoryEvent>,
    /// The callers of the hook.
    pub trace: Option<Trace>,
    /// The callers that allocated and freed the table, if [`crate::Config::track_origins`] is set.
    pub origins: Origins,
    /// What the format calls its levels.
    pub(super) level_names: &'static [&'static str],
    /// How events are named, if they were recorded elsewhere.
    pub(super) recorded: Option<Names>,
}

impl Finding {
    /// Returns what can follow from the defect.
    #[must_use]
    pub fn severity(&self) -> Severity {
        severity::of(self.kind, self.rule)
    }

    /// Returns what the format calls the level of the table.
    #[must_use]
    pub fn level_name(&self) -> Option<String> {
        self.place.level.map(|level| level_name(self.level_names, level))
    }

    /// Returns the numbers of the events that the finding mentions besides its own: those of its
    /// history and of its note.
    pub fn events(&self) -> impl Iterator<Item = u64> + '_ {
        self.history.iter().map(|h| h.event).chain(events_in(&self.note))
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
        self.note = in_units(&self.note, unit, number);
        self.recorded = Some(Names { unit, callers, noted });
    }

    fn event_text(&self, number: u64) -> String {
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

    /// Returns the innermost caller in the code under test.
    pub(super) fn innermost(&self) -> Option<super::TraceFrame> {
        self.trace.as_ref().and_then(|trace| trace.frames().into_iter().next())
    }

    /// Returns the line of a report that says where and when.
    pub(super) fn whereabouts(&self) -> String {
        let mut text = format!("at {}", self.event_text(self.event));
        let mut add = |part: Option<String>| {
            if let Some(part) = part {
                text.push_str(", ");
                text.push_str(&part);
            }
        };
        add(self.place.frame.map(|n| format!("table frame {n:#x}")));
        add(self.level_name());
        add(self.place.va.map(|n| format!("address {n:#x}")));
        add(self.place.cpu.map(|n| format!("CPU {n}")));
        add(self.place.space.map(|n| format!("space {n}")));
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

/// What a finding says beyond its place.
pub(crate) struct Details {
    pub(crate) note: String,
    pub(crate) history: Vec<HistoryEvent>,
    pub(crate) origins: Origins,
}

/// Returns the innermost caller in a line: the one that did it.
fn innermost(trace: &Trace) -> Option<String> {
    let caller = trace.frames().into_iter().next()?;
    let at = caller.at.map_or(String::new(), |at| format!(" at {at}"));
    Some(caller.symbol + &at)
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        wrap::words(f, 0, 0, &format!("{}: {}", self.kind, self.rule))?;
        if !self.advice.is_empty() {
            wrap::line(f, 2, &format!("fix: {}", self.advice))?;
        }
        wrap::line(f, 2, &self.whereabouts())?;
        self.spread.write(f, self.count)?;
        if !self.note.is_empty() {
            wrap::line(f, 2, &self.note)?;
        }
        for (number, trace) in self.noted() {
            if let Some(caller) = innermost(trace) {
                wrap::line(f, 4, &format!("{} in {caller}", self.event_text(number)))?;
            }
        }
        for (index, h) in self.history.iter().enumerate() {
            wrap::line(f, 4, &format!("{}: {}", self.event_text(h.event), h.what.text(self.level_names)))?;
            if let Some(caller) = self.callers_of(index).and_then(innermost) {
                wrap::line(f, 6, &format!("in {caller}"))?;
            }
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
