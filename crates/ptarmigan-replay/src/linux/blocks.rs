//! Blocks of several pages that Linux maps at one fault on anonymous memory (multi-size huge
//! pages).
//!
//! The rules are those of Linux 6.8 and later: a write to a page that is not there maps the largest
//! block, of the sizes that are on, which lies in one area and has no page yet. A read maps the
//! page of zeros by itself, and copies are of single pages. Blocks of 2 MiB have an entry of their
//! own instead of a table, and are not among these ([`HugeFaults`](super::HugeFaults)).
use super::pieces::PAGE;
use super::tags;
use ptarmigan::addr::VirtRange;
use ptarmigan::space::{Area, AreaFlags};

/// Number of sizes: blocks of 2 to 256 pages.
pub const SIZES: usize = 8;

/// The sizes of blocks that a machine maps: bit `n` stands for 2 to the power of `n + 1` pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    always: u8,
    advised: u8,
}

impl Blocks {
    /// Takes the sizes in KiB: those that are used everywhere, and those that are used where
    /// programs ask for huge pages. Sizes that no block has are left out.
    pub fn new(always: &[u64], advised: &[u64]) -> Self {
        let mask = |sizes: &[u64]| {
            let of = |kib: &u64| (0..SIZES).find(|n| 8 << n == *kib).map_or(0, |n| 1 << n);
            sizes.iter().map(of).fold(0, |all: u8, one: u8| all | one)
        };
        Blocks { always: mask(always), advised: mask(advised) }
    }

    /// Returns whether there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.always | self.advised == 0
    }

    /// Returns the block that a write to the page at `va` in `area` maps, with its size as an
    /// index, if it maps one. `others` returns whether a range has pages beside this one.
    pub fn around(
        self,
        area: &Area,
        va: u64,
        mut others: impl FnMut(VirtRange) -> bool,
    ) -> Option<(usize, VirtRange)> {
        let refused = area.tag & (tags::NO_HUGE | tags::HUGE_ONLY | tags::ALONE) != 0;
        if refused || area.flags.has(AreaFlags::SHARED) || area.flags.has(AreaFlags::BACKED) {
            return None;
        }
        let advised = if area.tag & tags::HUGE != 0 { self.advised } else { 0 };
        let on = self.always | advised;
        let mut sizes = (0..SIZES).rev().filter(|n| on >> n & 1 != 0);
        sizes.find_map(|n| {
            let bytes = 2 << n << PAGE;
            let start = va & !(bytes - 1);
            let range = VirtRange::new(start, start.checked_add(bytes)?).ok()?;
            let fits = area.start <= range.start && range.end <= area.end;
            (fits && !others(range)).then_some((n, range))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(start: u64, end: u64, tag: u16) -> Area {
        let flags = AreaFlags::READ.with(AreaFlags::WRITE);
        Area { tag, ..Area::new(VirtRange::new(start << PAGE, end << PAGE).unwrap(), flags, 0) }
    }

    fn pages(found: Option<(usize, VirtRange)>) -> Option<(u64, u64)> {
        found.map(|(n, range)| {
            assert_eq!(range.len(), 2 << n << PAGE, "the index is that of the size");
            (range.start >> PAGE, range.end >> PAGE)
        })
    }

    #[test]
    fn the_largest_block_that_fits_is_mapped() {
        let blocks = Blocks::new(&[16, 64], &[1024]);
        let at = |area: &Area, page: u64| pages(blocks.around(area, page << PAGE, |_| false));
        assert_eq!(at(&area(0, 64, 0), 21), Some((16, 32)));
        assert_eq!(at(&area(18, 64, 0), 21), Some((20, 24)), "64 KiB begin before the area");
        assert_eq!(at(&area(21, 23, 0), 21), None);
        assert_eq!(at(&area(0, 256, tags::HUGE), 21), Some((0, 256)));
        assert_eq!(at(&area(0, 256, tags::NO_HUGE), 21), None);
        let near = |range: VirtRange| range.len() > 16 << 10;
        assert_eq!(pages(blocks.around(&area(0, 64, 0), 21 << PAGE, near)), Some((20, 24)));
    }

    #[test]
    fn only_sizes_of_blocks_count() {
        assert!(Blocks::new(&[4, 2048, 24], &[]).is_empty() && !Blocks::new(&[], &[8]).is_empty());
        let mut shared = area(0, 64, 0);
        shared.flags = shared.flags.with(AreaFlags::SHARED);
        assert_eq!(Blocks::new(&[64], &[]).around(&shared, 0, |_| false), None);
    }
}
