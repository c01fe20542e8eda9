//! Describes the addresses that an invalidation covers.
use super::runs::Runs;

/// Which addresses to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One page.
    Page(u64),
    /// All pages from `start` to `end`, 2^`stride` bytes apart.
    Range {
        /// First address.
        start: u64,
        /// First address after it; 0 for the end of the address space.
        end: u64,
        /// Binary logarithm of the page size.
        stride: u32,
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
            Scope::Page(_) => 1,
            Scope::Range { start, end, stride } => pages(*start, *end, *stride),
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
            Scope::Page(at) => va == *at,
            // An end of 0 comes after all addresses.
            Scope::Range { start, end, .. } => va >= *start && va <= end.wrapping_sub(1),
            Scope::Runs(runs) => runs.contains(va),
            Scope::Full => true,
        }
    }

    /// Iterates over runs of pages to forget, for hardware that forgets whole ranges: the first
    /// address, the first after it (0 for the end of the address space), and the binary logarithm
    /// of the distance of pages. `None` for [`Scope::Full`].
    pub fn runs(&self) -> Option<impl Iterator<Item = (u64, u64, u32)> + '_> {
        let one = match *self {
            Scope::Page(at) => Some((at, at.wrapping_add(1), 0)),
            Scope::Range { start, end, stride } => Some((start, end, stride)),
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
    /// let scope = Scope::Range { start: 0x4000, end: 0x7000, stride: 12 };
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
