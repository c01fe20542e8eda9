//! Turns a boot loader's map of memory into runs of pages that the kernel may use.
//!
//! # Malformed maps
//!
//! 1. Entries may have any order, and overlap. A byte is free if an entry says that it is memory,
//!    no entry says that it is anything else, and the byte is not reserved.
//! 2. Runs are whole pages, ascending, apart from each other, and below the limit. Entries that
//!    touch each other within a page make it whole.
//! 3. An entry without bytes is ignored. Memory that would wrap around 2^64 is left out; any other
//!    entry that would wrap reaches to the end.
//! 4. Of more runs than there is room for, the largest are kept.
//!
//! Parts that are left out are counted, so that boot can report them.

use core::fmt;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Entries of a map at the most. The time that reading takes grows with their square.
pub const MOST_ENTRIES: usize = 512;

/// One entry of a boot loader's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its first byte.
    pub start: u64,
    /// Its bytes.
    pub len: u64,
    /// It is memory that the kernel may use.
    pub is_memory: bool,
}

/// Bytes of physical memory, from `start` to below `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub start: u64,
    /// The first behind them.
    pub end: u64,
}

impl Span {
    /// Makes a span; one that would wrap around 2^64 reaches to the end.
    pub fn new(start: u64, len: u64) -> Self {
        Span { start, end: start.saturating_add(len) }
    }

    /// Returns the number of bytes.
    pub fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    fn has(self, at: u64) -> bool {
        (self.start..self.end).contains(&at)
    }

    /// Returns the pages that lie in it as a whole.
    fn whole_pages(self) -> Span {
        let start = self.start.checked_next_multiple_of(PAGE).unwrap_or(!(PAGE - 1));
        Span { start, end: (self.end & !(PAGE - 1)).max(start) }
    }
}

impl Entry {
    fn span(self) -> Span {
        Span::new(self.start, self.len)
    }

    fn wraps(self) -> bool {
        self.start.checked_add(self.len).is_none()
    }
}

/// There are more entries than [`MOST_ENTRIES`]: this many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany(pub usize);

/// Runs of free pages, `N` at the most.
#[derive(Clone, Debug)]
pub struct MemoryMap<const N: usize> {
    runs: [Span; N],
    count: usize,
    /// Bytes of free pages at or above the limit.
    pub beyond: u64,
    /// Bytes of free pages for whose runs there was no room.
    pub lost: u64,
    /// Entries that were left out because they wrap around 2^64.
    pub wrapped: usize,
}

impl<const N: usize> MemoryMap<N> {
    /// Makes runs of the free pages below `limit`.
    ///
    /// # Errors
    ///
    /// [`TooMany`] entries.
    pub fn new<E>(entries: E, reserved: &[Span], limit: u64) -> Result<Self, TooMany>
    where
        E: Iterator<Item = Entry> + Clone,
    {
        let count = entries.clone().count();
        if count > MOST_ENTRIES {
            return Err(TooMany(count));
        }
        let wrapped = entries.clone().filter(|entry| entry.is_memory && entry.wraps()).count();
        let mut map = MemoryMap { runs: [Span::default(); N], count: 0, beyond: 0, lost: 0, wrapped };
        let mut at = 0;
        while let Some(piece) = next_piece(&entries, reserved, at) {
            at = piece.end;
            let pages = piece.whole_pages();
            let limit = limit & !(PAGE - 1);
            map.beyond += Span { start: pages.start.max(limit), ..pages }.bytes();
            map.add(Span { end: pages.end.min(limit), ..pages });
        }
        Ok(map)
    }

    /// Returns the runs.
    pub fn runs(&self) -> &[Span] {
        &self.runs[..self.count]
    }

    /// Reports the parts that were left out, line by line.
    pub fn tell(&self, mut line: impl FnMut(fmt::Arguments<'_>)) {
        if self.wrapped > 0 {
            line(format_args!("{} entries wrap around 2^64 and are left out", self.wrapped));
        }
        if self.lost > 0 {
            line(format_args!("{} KiB are left out: the {N} largest runs are used", self.lost >> 10));
        }
        if self.beyond > 0 {
            line(format_args!("{} KiB are above what the kernel can use", self.beyond >> 10));
        }
    }

    /// Adds a run behind all others.
    fn add(&mut self, run: Span) {
        if run.bytes() == 0 {
            return;
        }
        if self.count == N {
            let smallest = self.runs.iter().enumerate().min_by_key(|(_, run)| run.bytes());
            let Some((at, smallest)) = smallest.filter(|(_, there)| there.bytes() < run.bytes()) else {
                self.lost += run.bytes();
                return;
            };
            self.lost += smallest.bytes();
            self.runs.copy_within(at + 1.., at);
            self.count -= 1;
        }
        self.runs[self.count] = run;
        self.count += 1;
    }
}

/// Whether all bytes of a span are memory.
pub fn is_memory<E: Iterator<Item = Entry> + Clone>(entries: &E, span: Span) -> bool {
    span.bytes() == 0
        || next_piece(entries, &[], span.start)
            .is_some_and(|piece| piece.start == span.start && piece.end >= span.end)
}

/// Returns the first free bytes at or above `from`, up to where they end.
fn next_piece<E: Iterator<Item = Entry> + Clone>(entries: &E, reserved: &[Span], from: u64) -> Option<Span> {
    let memory = |entry: &Entry| !(entry.is_memory && entry.wraps());
    let said = entries.clone().filter(memory).map(|entry| (entry.span(), entry.is_memory));
    let all = said.chain(reserved.iter().map(|span| (*span, false))).filter(|(span, _)| span.bytes() > 0);
    let (mut at, mut start) = (from, None);
    // From border to border: bytes between two are alike.
    loop {
        let (mut is_memory, mut is_taken, mut next) = (false, false, None);
        for (span, frees) in all.clone() {
            for border in [span.start, span.end] {
                if border > at && next.is_none_or(|next| border < next) {
                    next = Some(border);
                }
            }
            if span.has(at) {
                *(if frees { &mut is_memory } else { &mut is_taken }) = true;
            }
        }
        match (start, is_memory && !is_taken) {
            (None, true) => start = Some(at),
            (Some(start), false) => return Some(Span { start, end: at }),
            _ => {}
        }
        // A free piece ends at a border, as memory does not wrap: no byte is free at the last one.
        at = next?;
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const LIMIT: u64 = 4 << 30;

    fn ram(start: u64, end: u64) -> Entry {
        Entry { start, len: end - start, is_memory: true }
    }

    fn taken(start: u64, end: u64) -> Entry {
        Entry { is_memory: false, ..ram(start, end) }
    }

    fn span(start: u64, end: u64) -> Span {
        Span { start, end }
    }

    fn runs(entries: &[Entry], reserved: &[Span]) -> Vec<Span> {
        map(entries, reserved).runs().to_vec()
    }

    fn map(entries: &[Entry], reserved: &[Span]) -> MemoryMap<8> {
        MemoryMap::new(entries.iter().copied(), reserved, LIMIT).expect("few entries")
    }

    #[test]
    fn entries_in_any_order_become_ascending_runs() {
        let entries = [ram(0x9000, 0xa000), ram(0x1000, 0x3000), ram(0x5000, 0x6000)];
        let sorted = [span(0x1000, 0x3000), span(0x5000, 0x6000), span(0x9000, 0xa000)];
        assert_eq!(runs(&entries, &[]), sorted);
    }

    #[test]
    fn what_is_taken_wins_whatever_the_order() {
        let hole = [span(0x1000, 0x4000), span(0x6000, 0x9000)];
        assert_eq!(runs(&[ram(0x1000, 0x9000), taken(0x4000, 0x6000)], &[]), hole);
        assert_eq!(runs(&[taken(0x4000, 0x6000), ram(0x1000, 0x9000)], &[]), hole);
        assert_eq!(runs(&[ram(0x1000, 0x9000), ram(0x3000, 0x7000)], &[span(0x4000, 0x6000)]), hole);
        assert_eq!(runs(&[ram(0x1000, 0x9000), taken(0, u64::MAX)], &[]), []);
    }

    #[test]
    fn memory_that_overlaps_or_touches_is_one_run() {
        let whole = [span(0x1000, 0x9000)];
        assert_eq!(runs(&[ram(0x1000, 0x5000), ram(0x3000, 0x9000), ram(0x1000, 0x9000)], &[]), whole);
        assert_eq!(runs(&[ram(0x4800, 0x9000), ram(0x1000, 0x4800)], &[]), whole);
    }

    #[test]
    fn only_whole_pages_are_free() {
        assert_eq!(runs(&[ram(0x1001, 0x3fff)], &[]), [span(0x2000, 0x3000)]);
        assert_eq!(runs(&[ram(0x1001, 0x2fff)], &[]), []);
        let pieces: Vec<Entry> = (0..100).map(|i| ram(i * 0x2000, i * 0x2000 + 0xfff)).collect();
        assert_eq!(runs(&pieces, &[]), []);
        let cut = [span(0x1000, 0x2000), span(0x3000, 0x4000)];
        assert_eq!(runs(&[ram(0x1000, 0x4000)], &[span(0x2fff, 0x3000)]), cut);
    }

    #[test]
    fn entries_without_bytes_and_entries_that_wrap_make_nothing() {
        assert_eq!(runs(&[], &[]), []);
        assert_eq!(runs(&[ram(0x1000, 0x1000), taken(0x5000, 0x5000), ram(0x4000, 0x6000)], &[]).len(), 1);
        let wraps = Entry { start: 0x1000, len: u64::MAX, is_memory: true };
        assert_eq!(map(&[wraps], &[]).wrapped, 1);
        assert_eq!(runs(&[wraps, ram(0x4000, 0x5000)], &[]), [span(0x4000, 0x5000)]);
        let taken = Entry { is_memory: false, ..wraps };
        assert_eq!(runs(&[taken, ram(0, 0x5000)], &[]), [span(0, 0x1000)]);
        assert_eq!(map(&[taken], &[]).wrapped, 0);
    }

    #[test]
    fn what_lies_above_the_limit_is_counted_and_left_out() {
        let map = map(&[ram(LIMIT - 0x2000, LIMIT + 0x3000), ram(8 << 40, 9 << 40)], &[]);
        assert_eq!(map.runs(), [span(LIMIT - 0x2000, LIMIT)]);
        assert_eq!(map.beyond, 0x3000 + (1 << 40));
    }

    #[test]
    fn the_largest_runs_are_kept_and_the_rest_is_counted() {
        // Runs of 1 to 20 pages, of which eight have room.
        let entries: Vec<Entry> = (1..=20).map(|i| ram(i << 20, (i << 20) + i * PAGE)).collect();
        let mut shuffled = entries.clone();
        shuffled.reverse();
        for entries in [entries, shuffled] {
            let map = map(&entries, &[]);
            let kept: Vec<Span> = (13..=20).map(|i| span(i << 20, (i << 20) + i * PAGE)).collect();
            assert_eq!(map.runs(), kept);
            assert_eq!(map.lost, (1..=12).sum::<u64>() * PAGE);
        }
    }

    #[test]
    fn too_many_entries_are_refused() {
        let entries = vec![ram(0, PAGE); MOST_ENTRIES + 1];
        let refused = MemoryMap::<8>::new(entries.iter().copied(), &[], LIMIT);
        assert_eq!(refused.err(), Some(TooMany(MOST_ENTRIES + 1)));
        assert!(MemoryMap::<8>::new(entries[1..].iter().copied(), &[], LIMIT).is_ok());
    }

    #[test]
    fn a_span_is_memory_if_all_of_it_is() {
        let entries = [ram(0x1000, 0x3000), ram(0x3000, 0x5000), taken(0x4800, 0x4900)];
        let is_memory = |start, end| is_memory(&entries.iter().copied(), span(start, end));
        assert!(is_memory(0x1000, 0x4800) && is_memory(0x1001, 0x1002) && is_memory(0x4900, 0x5000));
        assert!(!is_memory(0xfff, 0x2000) && !is_memory(0x4000, 0x4801) && !is_memory(0x5000, 0x5001));
        assert!(is_memory(0x9000, 0x9000));
    }

    /// Xorshift, so that runs are alike.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % n
        }
    }

    #[test]
    fn runs_are_the_free_pages_of_a_model_that_looks_at_every_byte() {
        const PAGES: u64 = 32;
        // Eight pieces to a page, each of which is free or not.
        const PIECE: u64 = PAGE / 8;
        let mut random = Random(0x5eed);
        for _ in 0..5_000 {
            let some = |random: &mut Random, most: u64| -> Vec<Entry> {
                let count = random.below(most);
                let mut one = || {
                    let (a, b) = (random.below(PAGES * 8), random.below(PAGES * 8));
                    let len = if random.below(4) == 0 { b / 8 } else { b };
                    let is_memory = random.below(3) > 0;
                    Entry { start: a * PIECE, len: len * PIECE, is_memory }
                };
                (0..count).map(|_| one()).collect()
            };
            let entries = some(&mut random, 12);
            let reserved: Vec<Span> = some(&mut random, 4).iter().map(|entry| entry.span()).collect();
            let limit = random.below(2 * PAGES * 8) * PIECE;
            let map = MemoryMap::<4>::new(entries.iter().copied(), &reserved, limit).expect("few entries");

            let is_free = |at: u64| {
                entries.iter().any(|entry| entry.is_memory && entry.span().has(at))
                    && !entries.iter().any(|entry| !entry.is_memory && entry.span().has(at))
                    && !reserved.iter().any(|span| span.has(at))
            };
            let free = |page: &u64| (0..8).all(|piece| is_free(page * PAGE + piece * PIECE));
            let pages: Vec<u64> = (0..2 * PAGES).filter(free).collect();
            let (below, above): (Vec<u64>, Vec<u64>) =
                pages.iter().partition(|page| (**page + 1) * PAGE <= limit);
            let runs = map.runs();
            assert!(runs.windows(2).all(|two| two[0].end < two[1].start), "{runs:x?}");
            for run in runs {
                assert_eq!((run.start % PAGE, run.end % PAGE), (0, 0));
                assert!((run.start / PAGE..run.end / PAGE).all(|page| below.contains(&page)), "{runs:x?}");
            }
            let kept: u64 = runs.iter().map(|run| run.bytes()).sum();
            assert_eq!(kept + map.lost, below.len() as u64 * PAGE);
            assert_eq!(map.beyond, above.len() as u64 * PAGE);
            assert!(map.lost == 0 || runs.len() == 4);
        }
    }

    #[test]
    fn no_map_makes_it_panic() {
        let mut random = Random(0xbad);
        let extremes = [0, 1, PAGE - 1, PAGE, LIMIT - 1, LIMIT, 1 << 63, u64::MAX - 1, u64::MAX];
        for _ in 0..5_000 {
            let mut number = || match random.below(2) {
                0 => extremes[random.below(extremes.len() as u64) as usize],
                _ => random.below(u64::MAX) << random.below(64),
            };
            let count = number() % 10;
            let mut one = || Entry { start: number(), len: number(), is_memory: number() % 3 > 0 };
            let entries: Vec<Entry> = (0..count).map(|_| one()).collect();
            let reserved = [Span::new(number(), number()), span(number(), number())];
            let limit = number();
            let map = MemoryMap::<3>::new(entries.iter().copied(), &reserved, limit).expect("few entries");
            assert!(map.runs().iter().all(|run| run.start < run.end && run.end <= limit));
            let where_from = span(number(), number());
            let _ = is_memory(&entries.iter().copied(), where_from);
        }
    }
}
