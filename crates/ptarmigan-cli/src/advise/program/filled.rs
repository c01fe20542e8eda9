//! Finds the faults that mapped a block of several pages, or a huge page, on the recorded machine.
//!
//! # Why
//!
//! A machine that maps 64 KiB at a fault records one fault for 16 pages. Dense memory of such a
//! recording looks sparse to a count of faults: 32 of 512 pages in each table.
use super::seen::{Finder, Happens, PAGE, REGION, SpaceOperation};
use ptarmigan::addr::VirtRange;
use ptarmigan_replay::{HugeFaults, When};
use ptarmigan_trace::FaultFlags;

/// Faults that mapped several pages.
pub struct FilledBlocks {
    huge: HugeFaults,
    /// The event, the first page and how many, in order of events.
    faults: Vec<(u32, u64, u64)>,
}

impl FilledBlocks {
    /// Looks at a machine with these huge pages.
    pub fn new(huge: HugeFaults) -> Self {
        FilledBlocks { huge, faults: Vec::new() }
    }

    /// Returns the range that the fault of an event mapped, if it mapped several pages.
    pub fn range(&self, event: u32) -> Option<(u64, u64)> {
        let at = self.faults.partition_point(|(fault, ..)| *fault < event);
        let (_, start, pages) = self.faults.get(at).filter(|(fault, ..)| *fault == event)?;
        Some((*start, start + pages))
    }

    /// Returns the number of the faults.
    pub fn count(&self) -> u64 {
        self.faults.len() as u64
    }
}

impl Finder for FilledBlocks {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        let (Happens::Fault { page, flags }, When::Before) = (seen.what, seen.when) else { return };
        if self.huge == HugeFaults::Never || flags.0 & FaultFlags::REFUSED != 0 {
            return;
        }
        let start = page / REGION * REGION;
        let reached = seen.look.area(page << PAGE).is_some_and(|area| self.huge.reaches(&area, page << PAGE));
        // A replay has 512 small pages instead of a huge one, and maps one of them at this fault.
        if reached && seen.look.pages(VirtRange::saturating_pages(start, REGION, PAGE)) == 0 {
            self.faults.push((seen.event, start, REGION));
        }
    }

    fn block(&mut self, event: u32, start: u64, pages: u64) {
        // Linux tries a huge page first.
        if self.range(event).is_none() {
            self.faults.push((event, start, pages));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_page_comes_before_a_block() {
        let mut filled = FilledBlocks::new(HugeFaults::Advised);
        filled.faults.push((3, 512, 512));
        filled.block(3, 512, 16);
        filled.block(5, 32, 16);
        assert_eq!(
            [2, 3, 4, 5].map(|event| filled.range(event)),
            [None, Some((512, 1024)), None, Some((32, 48))]
        );
        assert_eq!(filled.count(), 2);
    }
}
