//! The last few events of a table frame.
use crate::report::{Happened, HistoryEvent};

/// The number of events remembered for each frame.
pub(crate) const DEPTH: usize = 16;

/// A ring of the last [`DEPTH`] events.
#[derive(Clone, Default)]
pub(crate) struct History {
    ring: Vec<HistoryEvent>,
    next: usize,
}

impl History {
    pub(crate) fn push(&mut self, event: u64, what: Happened) {
        let new = HistoryEvent { event, what };
        if self.ring.len() < DEPTH {
            self.ring.push(new);
        } else {
            self.ring[self.next] = new;
        }
        self.next = (self.next + 1) % DEPTH;
    }

    /// Returns the events, oldest first.
    pub(crate) fn to_vec(&self) -> Vec<HistoryEvent> {
        let split = if self.ring.len() < DEPTH { 0 } else { self.next };
        let mut events: Vec<_> = self.ring[split..].iter().chain(&self.ring[..split]).copied().collect();
        // A link is added when the level of the table above becomes known.
        events.sort_by_key(|e| e.event);
        events
    }
}
