//! Merges streams of raw events by time.
use super::raw::Raw;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Merges sorted streams by time. Of two events with the same time, that of the earlier stream
/// comes first.
pub(super) struct Merge<'a> {
    sources: Vec<Box<dyn Iterator<Item = Raw> + 'a>>,
    next: Vec<Option<Raw>>,
    heap: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<'a> Merge<'a> {
    pub(super) fn new(sources: Vec<Box<dyn Iterator<Item = Raw> + 'a>>) -> Self {
        let mut merge = Self { next: vec![None; sources.len()], sources, heap: BinaryHeap::new() };
        for i in 0..merge.sources.len() {
            merge.advance(i);
        }
        merge
    }

    fn advance(&mut self, i: usize) {
        self.next[i] = self.sources[i].next();
        if let Some(raw) = &self.next[i] {
            self.heap.push(Reverse((raw.time, i)));
        }
    }
}

impl Iterator for Merge<'_> {
    type Item = Raw;

    fn next(&mut self) -> Option<Raw> {
        let Reverse((_, i)) = self.heap.pop()?;
        let raw = self.next[i].take();
        self.advance(i);
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::linux::raw::RawKind;

    #[test]
    fn in_order_of_time() {
        let source = |pid, times: &[u64]| -> Box<dyn Iterator<Item = Raw>> {
            let raws: Vec<Raw> =
                times.iter().map(|&time| Raw { time, cpu: 0, pid, what: RawKind::Idle }).collect();
            Box::new(raws.into_iter())
        };
        let merge = Merge::new(vec![source(0, &[1, 4, 4, 9]), source(1, &[]), source(2, &[2, 4, 10])]);
        let order: Vec<(u64, i32)> = merge.map(|r| (r.time, r.pid)).collect();
        assert_eq!(order, [(1, 0), (2, 2), (4, 0), (4, 0), (4, 2), (9, 0), (10, 2)]);
    }
}
