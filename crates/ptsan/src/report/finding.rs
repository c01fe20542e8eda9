//! One finding: what it says, and how it prints.
use super::event::HistoryEvent;
use super::kind::Kind;
use super::rule::Rule;
use super::trace::Trace;
use super::wrap;
use std::fmt;

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
    /// The callers of the hook.
    pub trace: Option<Trace>,
    /// The callers that allocated and freed the table, if [`crate::Config::track_origins`] is set.
    pub origins: Origins,
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
    /// Returns what makes two findings of one rule the same: the frame, else the page, else the
    /// space.
    pub(super) fn identity(&self) -> u64 {
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
