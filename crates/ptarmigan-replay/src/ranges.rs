//! Ranges of pages that do not overlap, each with a value.
//!
//! A value is the same for each page of its range, so that a range can be cut. For example, a part
//! is unmapped:
//!
//! ```text
//!   insert 0..9 A    AAAAAAAAA
//!   remove 3..5      AAA  AAAA
//!   insert 4..7 B    AAA BBBAA
//! ```
use std::collections::BTreeMap;
use std::ops::Range;

/// Values by ranges of pages.
#[derive(Clone, Debug)]
pub struct RangeMap<V>(BTreeMap<u64, (u64, V)>);

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        RangeMap(BTreeMap::new())
    }
}

impl<V: Copy> RangeMap<V> {
    /// Calls `each` with the parts of ranges in `range`, in order.
    pub fn each(&self, range: &Range<u64>, mut each: impl FnMut(Range<u64>, V)) {
        let first = self.0.range(..range.start).next_back().map_or(range.start, |(start, _)| *start);
        for (start, (end, value)) in self.0.range(first..range.end.max(first)) {
            let part = range.start.max(*start)..range.end.min(*end);
            if !part.is_empty() {
                each(part, *value);
            }
        }
    }

    /// Returns all ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, V)> {
        self.0.iter().map(|(start, (end, value))| (*start..*end, *value))
    }

    /// Returns the range that has a page, as a whole.
    pub fn around(&self, page: u64) -> Option<(Range<u64>, V)> {
        let (start, (end, value)) = self.0.range(..=page).next_back()?;
        (page < *end).then_some((*start..*end, *value))
    }

    /// Returns whether no page of `range` is in a range.
    pub fn is_free(&self, range: &Range<u64>) -> bool {
        self.0.range(..range.end).next_back().is_none_or(|(_, (end, _))| *end <= range.start)
    }

    /// Removes all pages of `range`.
    pub fn remove(&mut self, range: &Range<u64>) {
        let mut parts = Vec::new();
        self.each(range, |part, _| parts.push(part));
        for part in parts {
            let Some((&start, &(end, value))) = self.0.range(..=part.start).next_back() else { continue };
            self.0.remove(&start);
            if start < part.start {
                self.0.insert(start, (part.start, value));
            }
            if part.end < end {
                self.0.insert(part.end, (end, value));
            }
        }
    }

    /// Gives all pages of `range` a value, whatever they have.
    pub fn insert(&mut self, range: Range<u64>, value: V) {
        self.remove(&range);
        if !range.is_empty() {
            self.0.insert(range.start, (range.end, value));
        }
    }

    /// Adds a range, of which no page is in another, and makes it one with its neighbours: the
    /// `both` makes its value of theirs.
    pub fn join(&mut self, mut range: Range<u64>, mut value: V, both: impl Fn(V, V) -> V) {
        let before = range.start.checked_sub(1).and_then(|page| self.around(page));
        for (other, its) in before.into_iter().chain(self.around(range.end)) {
            self.0.remove(&other.start);
            range = range.start.min(other.start)..range.end.max(other.end);
            value = both(value, its);
        }
        self.insert(range, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed<V: Copy>(ranges: &RangeMap<V>) -> Vec<(Range<u64>, V)> {
        ranges.iter().collect()
    }

    #[test]
    fn ranges_are_cut_and_replaced() {
        let mut ranges = RangeMap::default();
        ranges.insert(0..9, 'A');
        ranges.remove(&(3..5));
        ranges.insert(4..7, 'B');
        assert_eq!(listed(&ranges), [(0..3, 'A'), (4..7, 'B'), (7..9, 'A')]);
        let mut parts = Vec::new();
        ranges.each(&(2..5), |part, value| parts.push((part, value)));
        assert_eq!(parts, [(2..3, 'A'), (4..5, 'B')]);
        assert_eq!((ranges.around(6), ranges.around(3)), (Some((4..7, 'B')), None));
        assert!(ranges.is_free(&(3..4)) && ranges.is_free(&(9..20)) && !ranges.is_free(&(2..4)));
    }

    #[test]
    fn neighbours_become_one_range() {
        let mut ranges = RangeMap::default();
        let larger = |a: u32, b: u32| a.max(b);
        [(0..2, 1), (4..6, 5), (8..9, 2)].into_iter().for_each(|(range, n)| ranges.join(range, n, larger));
        ranges.join(2..4, 3, larger);
        assert_eq!(listed(&ranges), [(0..6, 5), (8..9, 2)]);
    }
}
