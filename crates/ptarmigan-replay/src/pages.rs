//! Sets of the pages that one leaf table maps.
use std::ops::Range;

/// Pages that one leaf table maps, and one huge page has.
pub const REGION: u64 = 512;

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

    /// Calls `each` with the words that have pages of `range`, and with the bits of these pages. Of
    /// page numbers only the place in their region counts; `range` is within one region.
    fn words(range: &Range<u64>, mut each: impl FnMut(usize, u64)) {
        let (mut page, left) = (range.start % REGION, range.end.saturating_sub(range.start).min(REGION));
        let end = (page + left).min(REGION);
        while page < end {
            let until = (page / 64 * 64 + 64).min(end);
            each((page / 64) as usize, u64::MAX << (page % 64) & u64::MAX >> (63 - (until - 1) % 64));
            page = until;
        }
    }

    /// Adds the pages of a range within one region.
    pub fn add_all(&mut self, range: &Range<u64>) {
        Self::words(range, |word, bits| self.0[word] |= bits);
    }

    /// Takes the pages of a range within one region out.
    pub fn remove_all(&mut self, range: &Range<u64>) {
        Self::words(range, |word, bits| self.0[word] &= !bits);
    }

    /// Returns whether it has a page of a range within one region.
    pub fn any(&self, range: &Range<u64>) -> bool {
        let mut any = false;
        Self::words(range, |word, bits| any |= self.0[word] & bits != 0);
        any
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

    #[test]
    fn ranges_are_added_and_taken_out_word_by_word() {
        let mut pages = RegionPages::default();
        let first = 7 * REGION;
        pages.add_all(&(first + 60..first + 70));
        assert_eq!((pages.count(), pages.has(first + 60), pages.has(first + 70)), (10, true, false));
        assert!(pages.any(&(first + 69..first + 200)) && !pages.any(&(first + 70..first + REGION)));
        pages.remove_all(&(first + 61..first + 69));
        assert_eq!(pages.within(7, first..first + REGION).collect::<Vec<_>>(), [first + 60, first + 69]);
        pages.add_all(&(first..first + REGION));
        assert_eq!(pages.count(), REGION);
        pages.remove_all(&(first..first));
        assert_eq!(pages.count(), REGION, "no page is in an empty range");
    }
}
