//! The last few events of a table frame.
use crate::report::Happened;

/// The number of events remembered for each frame.
pub(crate) const DEPTH: usize = 16;

/// A ring of the last [`DEPTH`] events, with the numbers of the hook calls.
#[derive(Clone, Default)]
pub(crate) struct History {
    ring: Vec<(u64, Happened)>,
    next: usize,
}

impl History {
    pub(crate) fn push(&mut self, event: u64, what: Happened) {
        let new = (event, what);
        if self.ring.len() < DEPTH {
            self.ring.push(new);
        } else {
            self.ring[self.next] = new;
        }
        self.next = (self.next + 1) % DEPTH;
    }

    /// Returns the events, oldest first.
    pub(crate) fn to_vec(&self) -> Vec<(u64, Happened)> {
        let split = if self.ring.len() < DEPTH { 0 } else { self.next };
        let mut events: Vec<_> = self.ring[split..].iter().chain(&self.ring[..split]).copied().collect();
        // A link is added when the level of the table above becomes known.
        events.sort_by_key(|(event, _)| *event);
        events
    }
}
