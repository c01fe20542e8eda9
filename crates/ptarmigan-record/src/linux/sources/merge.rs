//! Merges streams of raw events by time.
use crate::linux::raw::Raw;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Raw events in order of time.
pub(crate) struct Stream<'a> {
    pub(crate) events: Box<dyn Iterator<Item = Raw> + 'a>,
    /// The end of the recording is missing.
    pub(crate) cut: bool,
}

/// The raw events of a recording's source.
pub(crate) struct Finished {
    pub(crate) streams: Vec<Stream<'static>>,
    pub(crate) lost: u64,
    /// Why the streams end early.
    pub(crate) failed: Option<std::io::Error>,
}

/// Merges sorted streams by time. Of two events with the same time, that of the earlier stream
/// comes first. Ends where a stream ends that was cut.
pub(crate) struct Merge<'a> {
    sources: Vec<Stream<'a>>,
    cut: bool,
    /// Events after this time are dropped.
    until: u64,
    next: Vec<Option<Raw>>,
    heap: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<'a> Merge<'a> {
    /// Events after `until`, if it is given, are left out.
    pub(crate) fn new(sources: Vec<Stream<'a>>, until: Option<u64>) -> Self {
        let (next, heap) = (vec![None; sources.len()], BinaryHeap::new());
        let mut merge = Self { next, sources, cut: false, until: until.unwrap_or(u64::MAX), heap };
        for i in 0..merge.sources.len() {
            merge.advance(i);
        }
        merge
    }

    fn advance(&mut self, i: usize) {
        self.next[i] = self.sources[i].events.next();
        match &self.next[i] {
            Some(raw) => self.heap.push(Reverse((raw.time, i))),
            None => self.cut |= self.sources[i].cut,
        }
    }
}

impl Iterator for Merge<'_> {
    type Item = Raw;

    fn next(&mut self) -> Option<Raw> {
        if self.cut {
            return None;
        }
        let Reverse((time, i)) = self.heap.pop()?;
        if time > self.until {
            return None;
        }
        let raw = self.next[i].take();
        self.advance(i);
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::raw::RawKind;

    #[test]
    fn in_order_of_time() {
        let source = |pid, times: &[u64], cut| {
            let raws: Vec<Raw> =
                times.iter().map(|&time| Raw { time, cpu: 0, pid, what: RawKind::Idle }).collect();
            Stream { events: Box::new(raws.into_iter()), cut }
        };
        let streams =
            |cut| vec![source(0, &[1, 4, 4, 9], cut), source(1, &[], false), source(2, &[2, 4, 10], false)];
        let merge = Merge::new(streams(false), None);
        let order: Vec<(u64, i32)> = merge.map(|r| (r.time, r.pid)).collect();
        assert_eq!(order, [(1, 0), (2, 2), (4, 0), (4, 0), (4, 2), (9, 0), (10, 2)]);
        let cut: Vec<u64> = Merge::new(streams(true), None).map(|r| r.time).collect();
        assert_eq!(cut, [1, 2, 4, 4, 4, 9]);
        assert_eq!(Merge::new(streams(false), Some(4)).count(), 5);
    }
}
