//! The view of a replay that the finders of advice get.
use ptarmigan_replay::{Look, When};
use ptarmigan_trace::{FaultFlags, Kind};
use std::ops::Range;

/// Pages that one leaf table maps, and one huge page has.
pub const REGION: u64 = 512;
/// Binary logarithm of the size of a page in bytes.
pub const PAGE: u32 = 12;

/// An operation on a space.
#[derive(Clone, Copy, Debug)]
pub enum Happens {
    /// A fault on a page.
    Fault {
        /// The page.
        page: u64,
        /// Access bits.
        flags: FaultFlags,
    },
    /// A call.
    Call(Kind),
    /// It is copied.
    Fork {
        /// The number of the copy.
        child: u32,
    },
    /// It ends. This is seen before only.
    End,
}

/// One operation on a space, before or after it is carried out.
pub struct SpaceOperation<'s> {
    /// The number of the event in the recording.
    pub event: u32,
    /// The number of the space.
    pub space: u32,
    /// The number of the program that the task runs.
    pub program: u32,
    /// The operation.
    pub what: Happens,
    /// Before or after.
    pub when: When,
    /// The space.
    pub look: &'s dyn Look,
}

/// Looks for something that could be better.
pub trait Finder: Send {
    /// Sees one operation. Operations come in order.
    fn see(&mut self, seen: &SpaceOperation<'_>);
}

/// Shows each operation to all finders.
pub struct All<'f>(pub Vec<&'f mut dyn Finder>);

impl Finder for All<'_> {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        self.0.iter_mut().for_each(|finder| finder.see(seen));
    }
}

/// A set of pages, as a bitmap for each region.
#[derive(Clone, Copy, Default)]
pub struct RegionPages([u64; REGION as usize / 64]);

impl RegionPages {
    /// Adds a page. Returns whether it is new.
    pub fn add(&mut self, page: u64) -> bool {
        let (word, bit) = (page % REGION / 64, 1 << (page % 64));
        let old = self.0[word as usize];
        self.0[word as usize] |= bit;
        old & bit == 0
    }

    /// Takes a page out. Returns whether it was in.
    pub fn remove(&mut self, page: u64) -> bool {
        let (word, bit) = (page % REGION / 64, 1 << (page % 64));
        let old = self.0[word as usize];
        self.0[word as usize] &= !bit;
        old & bit != 0
    }

    /// Returns whether it has a page.
    pub fn has(&self, page: u64) -> bool {
        self.0[(page % REGION / 64) as usize] >> (page % 64) & 1 != 0
    }

    /// Returns the number of pages.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns the pages of the region with this number that lie in `range`, in order.
    pub fn within(self, region: u64, range: Range<u64>) -> impl Iterator<Item = u64> {
        let first = region * REGION;
        let inside = |page: u64| page.clamp(first, first + REGION) - first;
        let (start, end) = (inside(range.start), inside(range.end));
        (start / 64..end.div_ceil(64)).flat_map(move |word| {
            let (before, behind) = (start.saturating_sub(word * 64), (word * 64 + 64).saturating_sub(end));
            let mut bits = self.0[word as usize] & u64::MAX << before & u64::MAX >> behind;
            std::iter::from_fn(move || {
                let lowest = (bits != 0).then(|| u64::from(bits.trailing_zeros()))?;
                bits &= bits - 1;
                Some(first + word * 64 + lowest)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_region_come_back_in_order() {
        let mut pages = RegionPages::default();
        let added = [5 * REGION + 511, 5 * REGION, 5 * REGION + 64, 5 * REGION];
        assert_eq!(added.map(|page| pages.add(page)), [true, true, true, false]);
        assert_eq!(pages.count(), 3);
        let within = |start: u64, end: u64| -> Vec<u64> {
            pages.within(5, 5 * REGION + start..5 * REGION + end).map(|page| page - 5 * REGION).collect()
        };
        assert_eq!(within(0, REGION), [0, 64, 511]);
        assert_eq!(
            [within(1, 64), within(1, 65), within(64, 511), within(65, 65)],
            [vec![], vec![64], vec![64], vec![]]
        );
        assert!(pages.within(5, 0..u64::MAX).count() == 3 && pages.within(5, 0..9).next().is_none());
    }
}
