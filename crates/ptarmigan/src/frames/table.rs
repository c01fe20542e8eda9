//! Finds the record of a frame.
//!
//! Memory has holes: a PC's below 4 GiB, and on machines with several nodes a terabyte from one to
//! the next. Records are kept for frames only. Runs that touch form a *span*; the records of the
//! largest span are an array of their own, those of the others follow each other in a second one,
//! and a sorted table says where each span begins.
//!
//! * A frame of the largest span, which is every frame of most machines, costs one subtraction, one
//!   compare and one load.
//! * A frame of the second largest costs a call, one subtraction and one compare more: what is left
//!   on one side of a hole is small, and small blocks are handed out first.
//! * Any other costs a binary search over the spans as well.
//!
//! Rejected: sections (a table of pointers by the upper bits of the number), as they cost a second
//! load, which depends on the first, for every frame of every machine; and a search over all spans
//! each time.
use super::memory::{MemoryRun, MemorySize};
use super::record::FrameMeta;
use crate::addr::Pfn;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};

/// Frames without a hole in between.
#[derive(Clone, Copy)]
struct FrameSpan {
    start: u32,
    frames: u32,
    /// Index of its first record among those that are not of the largest span.
    at: u32,
}

impl FrameSpan {
    /// Returns the index of a frame's record, if the frame is in it.
    #[inline]
    fn record(&self, pfn: Pfn) -> Option<usize> {
        let offset = pfn.0.wrapping_sub(self.start);
        (offset < self.frames).then(|| self.at.wrapping_add(offset) as usize)
    }
}

/// The records of all frames.
pub(crate) struct FrameTable {
    /// First frame of the largest span.
    base: u32,
    records: BootSlice<FrameMeta>,
    /// The largest of the others.
    second: FrameSpan,
    /// The spans but the largest, in order.
    others: BootSlice<FrameSpan>,
    other_records: BootSlice<FrameMeta>,
}

/// The spans that sorted runs form.
fn spans(runs: &[MemoryRun]) -> impl Iterator<Item = FrameSpan> + '_ {
    let mut left = runs;
    core::iter::from_fn(move || {
        let (first, rest) = left.split_first()?;
        let (start, mut end) = (first.start.0, first.end());
        left = rest;
        while let Some((next, rest)) = left.split_first()
            && u64::from(next.start.0) == end
        {
            end = next.end();
            left = rest;
        }
        Some(FrameSpan { start, frames: (end - u64::from(start)) as u32, at: 0 })
    })
}

impl FrameTable {
    /// Makes the records of `runs`, which are sorted and do not overlap.
    pub fn new(boot: &mut BootMemory, runs: &[MemoryRun]) -> Result<Self, BootMemoryShort> {
        let none = FrameSpan { start: 0, frames: 0, at: 0 };
        // The first of the largest.
        let larger = |a: FrameSpan, b: FrameSpan| if b.frames > a.frames { b } else { a };
        let main = spans(runs).fold(none, larger);
        let mut others = spans(runs).filter(|span| span.start != main.start);
        let (count, mut total) = (others.by_ref().count(), 0);
        let mut others = spans(runs).filter(|span| span.start != main.start);
        let others = boot.take(count, |_| {
            let span = others.next().unwrap_or(none);
            let at = total;
            total += span.frames;
            FrameSpan { at, ..span }
        })?;
        let mut records = |n: u32| boot.take(n as usize, |_| FrameMeta::default());
        Ok(FrameTable {
            base: main.start,
            records: records(main.frames)?,
            second: others.iter().copied().fold(none, larger),
            others,
            other_records: records(total)?,
        })
    }

    /// Returns the bytes of boot memory that it takes at most.
    pub const fn bytes(size: &MemorySize) -> usize {
        BootMemory::bytes::<FrameMeta>(size.frames())
            .saturating_add(BootMemory::bytes::<FrameMeta>(0))
            .saturating_add(BootMemory::bytes::<FrameSpan>(size.runs()))
    }

    /// First frame of the largest span.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// Returns the numbers of records: of the largest span, and of the others.
    pub fn sizes(&self) -> (usize, usize) {
        (self.records.len(), self.other_records.len())
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.records.len() + self.other_records.len()
    }

    /// Returns the record of a frame, if it has one.
    #[cfg_attr(not(feature = "small"), inline)]
    pub fn get(&self, pfn: Pfn) -> Option<&FrameMeta> {
        match self.records.get(pfn.0.wrapping_sub(self.base) as usize) {
            Some(record) => Some(record),
            None => self.other_records.get(self.find(pfn)?),
        }
    }

    /// Returns the record of a frame of the largest span, without a call.
    #[inline(always)]
    pub fn meta_at_hand(&self, pfn: Pfn) -> Option<&FrameMeta> {
        self.records.get(pfn.0.wrapping_sub(self.base) as usize)
    }

    /// Returns the record of a frame.
    ///
    /// # Panics
    ///
    /// If it has no record.
    #[cfg_attr(not(feature = "small"), inline)]
    pub fn meta(&self, pfn: Pfn) -> &FrameMeta {
        match self.records.get(pfn.0.wrapping_sub(self.base) as usize) {
            Some(record) => record,
            None => self.other(pfn),
        }
    }

    /// As [`meta`](Self::meta), for a frame that is not of the largest span.
    #[cold]
    #[inline(never)]
    fn other(&self, pfn: Pfn) -> &FrameMeta {
        let record = self.second.record(pfn).and_then(|index| self.other_records.get(index));
        match record {
            Some(record) => record,
            None => self.far(pfn),
        }
    }

    /// As [`meta`](Self::meta), by a search. The one place that panics, for all callers.
    #[cold]
    #[inline(never)]
    fn far(&self, pfn: Pfn) -> &FrameMeta {
        match self.search(pfn).and_then(|index| self.other_records.get(index)) {
            Some(record) => record,
            // Formatted text takes code.
            None if cfg!(feature = "small") => panic!("a frame is not under management"),
            None => panic!("frame {pfn} is not under management"),
        }
    }

    /// Finds the record of a frame that is not of the largest span, among those of such frames.
    #[cfg_attr(not(feature = "small"), inline)]
    pub fn find(&self, pfn: Pfn) -> Option<usize> {
        self.second.record(pfn).or_else(|| self.search(pfn))
    }

    /// As [`find`](Self::find), by a search over the spans.
    #[cold]
    fn search(&self, pfn: Pfn) -> Option<usize> {
        let behind = self.others.partition_point(|span| span.start <= pfn.0);
        self.others.get(behind.checked_sub(1)?)?.record(pfn)
    }
}
