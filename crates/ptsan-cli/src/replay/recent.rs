//! Finds the record from which an event of the sanitizer comes.
use std::collections::VecDeque;

/// The most records remembered.
const MOST: usize = 1 << 20;

/// A record, as a report names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The number of the record.
    pub(super) record: u64,
    /// The instruction that did it.
    pub(super) pc: Option<u64>,
}

/// The last records, by the first event of each.
#[derive(Default)]
pub(super) struct Recent(VecDeque<(u64, Origin)>);

impl Recent {
    /// Adds a record whose first event is `event`.
    pub(super) fn push(&mut self, event: u64, origin: Origin) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back((event, origin));
    }

    /// Returns the record that an event comes from, unless that is too long ago.
    pub(super) fn find(&self, event: u64) -> Option<Origin> {
        let after = self.0.partition_point(|(first, _)| *first <= event);
        self.0.get(after.checked_sub(1)?).map(|(_, origin)| *origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_belongs_to_the_record_that_began_last_before_it() {
        let mut recent = Recent::default();
        let origin = |record| Origin { record, pc: None };
        recent.push(5, origin(1));
        recent.push(8, origin(2));
        assert_eq!(
            [4, 5, 7, 8, 99].map(|e| recent.find(e).map(|o| o.record)),
            [None, Some(1), Some(1), Some(2), Some(2)]
        );
        for n in 0..MOST as u64 {
            recent.push(100 + n, origin(n));
        }
        assert_eq!((recent.find(8), recent.find(100).map(|o| o.record)), (None, Some(0)));
    }
}
