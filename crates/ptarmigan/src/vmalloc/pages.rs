//! Which pages of a range are taken.
use crate::bits;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};

const BITS: usize = u64::BITS as usize;

/// A bit for each page of a range: 1 for a page that is taken.
pub(super) struct Pages {
    words: BootSlice<u64>,
    len: usize,
    /// Where the next search begins: pages that were given back are taken again late.
    next: usize,
}

impl Pages {
    /// Makes `len` pages, all of them free.
    pub fn new(boot: &mut BootMemory, len: usize) -> Result<Self, BootMemoryShort> {
        Ok(Pages { words: boot.take(len.div_ceil(BITS), |_| 0)?, len, next: 0 })
    }

    pub const fn bytes(len: usize) -> usize {
        BootMemory::bytes::<u64>(len.div_ceil(BITS))
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The first page from `from` on that is taken, or is not; `len` without such a page.
    fn first(&self, from: usize, taken: bool) -> usize {
        bits::next(&self.words, from, taken).map_or(self.len, |at| at.min(self.len))
    }

    /// The runs of pages that are not taken: the first page, and the first after it.
    pub fn free(&self, from: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut at = from;
        core::iter::from_fn(move || {
            let first = self.first(at, false);
            at = self.first(first, true);
            (first < self.len).then_some((first, at))
        })
    }

    /// Takes `n` pages in a row, which follow those that were taken last if these can be had. The
    /// first of them is `rest` more than a multiple of `align`.
    pub fn take(&mut self, n: usize, align: usize, rest: usize) -> Option<usize> {
        let fits = |(from, end): (usize, usize)| {
            let first = from + (rest + align - from % align) % align;
            (first <= end && end - first >= n).then_some(first)
        };
        let first = self.free(self.next).find_map(fits).or_else(|| self.free(0).find_map(fits))?;
        self.set(first, n, true);
        self.next = first + n;
        Some(first)
    }

    /// Takes `n` pages from `first` on, all of which must be free.
    pub fn take_at(&mut self, first: usize, n: usize) {
        self.set(first, n, true);
    }

    /// Returns whether a page is taken.
    pub fn has(&self, page: usize) -> bool {
        self.words.get(page / BITS).is_some_and(|word| word >> (page % BITS) & 1 != 0)
    }

    /// The first run of pages that are taken: the first page, and the first after it.
    pub fn first_taken(&self) -> Option<(usize, usize)> {
        let first = self.first(0, true);
        (first < self.len).then(|| (first, self.first(first, false)))
    }

    /// Gives pages back.
    pub fn give(&mut self, first: usize, n: usize) {
        self.set(first, n, false);
    }

    fn set(&mut self, first: usize, n: usize, taken: bool) {
        let mut at = first;
        while at < first + n {
            let in_word = (BITS - at % BITS).min(first + n - at);
            let mask = u64::MAX >> (BITS - in_word) << (at % BITS);
            let word = &mut self.words[at / BITS];
            debug_assert_eq!(*word & mask, if taken { 0 } else { mask }, "page {at} on");
            if taken {
                *word |= mask
            } else {
                *word &= !mask
            }
            at += in_word;
        }
    }
}
