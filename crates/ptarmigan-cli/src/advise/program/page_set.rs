//! A set of pages that may lie anywhere in an address space.
use super::seen::{REGION, RegionPages};
use std::collections::BTreeMap;

/// Pages by their number. Takes room for each region of 2 MiB that has one.
#[derive(Clone, Default)]
pub struct PageSet {
    regions: BTreeMap<u64, RegionPages>,
    len: u64,
}

impl PageSet {
    /// Adds a page. Returns whether it is new.
    pub fn add(&mut self, page: u64) -> bool {
        let new = self.regions.entry(page / REGION).or_default().add(page);
        self.len += u64::from(new);
        new
    }

    /// Returns whether it has a page.
    pub fn has(&self, page: u64) -> bool {
        self.regions.get(&(page / REGION)).is_some_and(|pages| pages.has(page))
    }

    /// Returns the number of pages.
    pub fn len(&self) -> u64 {
        self.len
    }

    fn iter(&self, start: u64, pages: u64) -> impl Iterator<Item = u64> {
        let end = start.saturating_add(pages);
        let regions = self.regions.range(start / REGION..end.div_ceil(REGION));
        regions.flat_map(move |(&region, pages)| pages.within(region, start..end))
    }

    /// Returns the pages of a range, in order.
    pub fn within(&self, start: u64, pages: u64) -> Vec<u64> {
        self.iter(start, pages).collect()
    }

    /// Returns whether it has a page of a range.
    pub fn any(&self, start: u64, pages: u64) -> bool {
        self.iter(start, pages).next().is_some()
    }

    /// Takes the pages of a range out, and returns them in order.
    pub fn take(&mut self, start: u64, pages: u64) -> Vec<u64> {
        let taken = self.within(start, pages);
        for page in &taken {
            if let Some(region) = self.regions.get_mut(&(page / REGION)) {
                region.remove(*page);
            }
        }
        if let (Some(first), Some(last)) = (taken.first(), taken.last()) {
            let empty: Vec<u64> = self
                .regions
                .range(first / REGION..=last / REGION)
                .filter(|(_, pages)| pages.count() == 0)
                .map(|(region, _)| *region)
                .collect();
            for region in empty {
                self.regions.remove(&region);
            }
        }
        self.len -= taken.len() as u64;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_range_are_taken_out() {
        let mut set = PageSet::default();
        for page in [5, 511, 512, 513, 5000, 5] {
            set.add(page);
        }
        assert_eq!(set.len(), 5);
        assert_eq!(set.within(6, 600), [511, 512, 513]);
        assert_eq!(
            [(6, 600), (6, 505), (511, 0)].map(|(start, pages)| set.any(start, pages)),
            [true, false, false]
        );
        assert_eq!(set.take(512, 1), [512]);
        assert_eq!(set.take(0, u64::MAX), [5, 511, 513, 5000]);
        assert_eq!((set.len(), set.regions.len()), (0, 0), "no region stays");
    }
}
