//! Describes the addresses that an invalidation covers.
use super::runs::Runs;

/// Which addresses to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One page.
    Page {
        /// Its first address.
        at: u64,
        /// Binary logarithm of its size.
        shift: u32,
    },
    /// All pages from `start` to `end`, 2^`stride` bytes apart.
    Range {
        /// First address.
        start: u64,
        /// First address after it; 0 for the end of the address space.
        end: u64,
        /// Binary logarithm of the size of the smallest page.
        stride: u32,
        /// Some pages may be larger than that.
        mixed: bool,
    },
    /// Several runs of pages, apart from each other.
    Runs(Runs),
    /// The whole space, or the whole half of the kernel.
    Full,
}

impl Scope {
    /// Returns whether it covers all addresses.
    #[inline]
    pub const fn is_full(&self) -> bool {
        matches!(self, Scope::Full)
    }

    /// Returns the number of pages; 0 for [`Scope::Full`].
    pub fn len(&self) -> u64 {
        match self {
            Scope::Page { .. } => 1,
            Scope::Range { start, end, stride, .. } => pages(*start, *end, *stride),
            Scope::Runs(runs) => runs.pages(),
            Scope::Full => 0,
        }
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        !self.is_full() && self.len() == 0
    }

    /// Returns whether it covers the address.
    pub fn covers(&self, va: u64) -> bool {
        match self {
            Scope::Page { at, shift } => va >> shift == at >> shift,
            // An end of 0 comes after all addresses.
            Scope::Range { start, end, .. } => va >= *start && va <= end.wrapping_sub(1),
            Scope::Runs(runs) => runs.contains(va),
            Scope::Full => true,
        }
    }

    /// Returns the binary logarithm of the size of each page, for hardware that is told a size or a
    /// level with an address (AArch64's `TLBI` with FEAT_TTL, `tlbie` of 64-bit PowerPC). `None` if
    /// pages have several sizes, and for [`Scope::Full`].
    ///
    /// It says nothing of links of tables: an invalidation that has to reach these
    /// ([`Invalidation::tables_freed`](super::Invalidation::tables_freed)) names no size.
    ///
    /// ```
    /// use ptarmigan::tlb::{CostModel, Runs};
    /// let mut stale = Runs::one(0x20_0000, 0x40_0000, 21); // a page of 2 MiB
    /// assert_eq!(CostModel::LINUX.plan(&stale).page_shift(), Some(21));
    /// stale.mix(); // or larger
    /// assert_eq!(CostModel::LINUX.plan(&stale).page_shift(), None);
    /// ```
    pub const fn page_shift(&self) -> Option<u32> {
        match self {
            Scope::Page { shift, .. } => Some(*shift),
            Scope::Range { stride, mixed: false, .. } => Some(*stride),
            Scope::Runs(runs) if !runs.is_mixed() => Some(runs.shift()),
            _ => None,
        }
    }

    /// Iterates over runs of pages to forget, for hardware that forgets whole ranges: the first
    /// address, the first after it (0 for the end of the address space), and the binary logarithm
    /// of the distance of pages. `None` for [`Scope::Full`].
    pub fn runs(&self) -> Option<impl Iterator<Item = (u64, u64, u32)> + '_> {
        let one = match *self {
            Scope::Page { at, shift } => Some((at, at.wrapping_add(1 << shift), shift)),
            Scope::Range { start, end, stride, .. } => Some((start, end, stride)),
            Scope::Runs(_) => None,
            Scope::Full => return None,
        };
        let several = match self {
            Scope::Runs(runs) => Some(runs),
            _ => None,
        };
        let several = several.into_iter().flat_map(|runs| runs.iter().map(|(s, e)| (s, e, runs.shift())));
        Some(one.into_iter().chain(several))
    }

    /// Iterates over the first addresses of all pages to forget, for hardware that forgets them one
    /// by one; `None` for [`Scope::Full`].
    ///
    /// ```
    /// use ptarmigan::tlb::Scope;
    /// # let (mut dropped, drop_page, drop_everything) = (0, 1, 1000);
    /// let scope = Scope::Range { start: 0x4000, end: 0x7000, stride: 12, mixed: false };
    /// match scope.pages() {
    ///     Some(pages) => pages.for_each(|va| dropped += drop_page * (va >> 14)),
    ///     None => dropped += drop_everything,
    /// }
    /// # assert_eq!(dropped, 3);
    /// ```
    pub fn pages(&self) -> Option<impl Iterator<Item = u64> + '_> {
        Some(self.runs()?.flat_map(|(start, end, stride)| {
            (0..pages(start, end, stride)).map(move |page| start.wrapping_add(page << stride))
        }))
    }
}

/// The pages of 2^`stride` bytes in a range; empty where there is no such page.
#[inline]
const fn pages(start: u64, end: u64, stride: u32) -> u64 {
    match end.wrapping_sub(start).checked_shr(stride) {
        Some(pages) => pages,
        None => 0,
    }
}
