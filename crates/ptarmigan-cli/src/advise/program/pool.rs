//! The places of a program's memory if it gives none of it back.
//!
//! # Why
//!
//! A program that unmaps memory and maps some again gets other addresses, or the same ones for
//! other things. A program that keeps its memory hands that out again. So a range of the recording
//! lies elsewhere in the kept program, and each later event on it has to follow:
//!
//! ```text
//!   recorded   mmap A   munmap A   mmap C (a file, where A was)   mmap B
//!   kept       mmap A   ─          mmap C at a fresh place        B lies in A: its pages are there
//! ```
use super::seen::REGION;
use ptarmigan_trace::Prot;
use std::collections::BTreeMap;

/// Where ranges go whose place is taken: page number of address 2^45, far from stacks, heaps and
/// libraries.
const FRESH: u64 = 1 << 33;

/// A range of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First page.
    pub start: u64,
    /// Length.
    pub pages: u64,
}

/// A range of the recording that lies elsewhere.
#[derive(Clone, Copy, Debug)]
struct Moved {
    end: u64,
    to: u64,
}

/// Memory that was given back, and is there.
#[derive(Clone, Copy, Debug)]
struct Kept {
    end: u64,
    /// Its permissions, if they are the same everywhere.
    prot: Option<Prot>,
}

/// The memory of one address space.
#[derive(Clone, Default)]
pub struct Pool {
    /// By the first recorded page.
    moved: BTreeMap<u64, Moved>,
    /// The places of `moved`: from the first page to the one behind the last.
    targets: BTreeMap<u64, u64>,
    /// By the first page.
    kept: BTreeMap<u64, Kept>,
    /// How far fresh places are used.
    fresh: u64,
}

impl Pool {
    /// Returns where a recorded page lies.
    pub fn page(&self, page: u64) -> u64 {
        match self.moved.range(..=page).next_back() {
            Some((start, moved)) if page < moved.end => moved.to + (page - start),
            _ => page,
        }
    }

    /// Returns where a recorded range lies, piece by piece.
    pub fn places(&self, start: u64, pages: u64) -> Vec<Place> {
        let (mut at, end) = (start, start.saturating_add(pages));
        let mut places = Vec::new();
        let first = self.moved.range(..=start).next_back().map_or(start, |(first, _)| *first);
        for (&from, moved) in self.moved.range(first..end) {
            let (from, to) = (from.max(at), moved.to + (from.max(at) - from));
            if moved.end <= from {
                continue;
            }
            if at < from {
                places.push(Place { start: at, pages: from - at });
            }
            at = moved.end.min(end);
            places.push(Place { start: to, pages: at - from });
        }
        if at < end {
            places.push(Place { start: at, pages: end - at });
        }
        places
    }

    /// Places a new range in kept memory: where it was recorded if that is kept, else in the
    /// smallest kept range that is large enough. Returns the place, and the permissions of the
    /// memory if they are the same everywhere.
    pub fn reuse(&mut self, start: u64, pages: u64) -> Option<(u64, Option<Prot>)> {
        let here = self.kept.range(..=start).next_back().filter(|(_, kept)| start + pages <= kept.end);
        let fits = |(first, kept): &(&u64, &Kept)| kept.end - **first >= pages;
        let (first, kept) = match here {
            Some((first, kept)) => (*first, *kept),
            None => {
                let smallest =
                    self.kept.iter().filter(fits).min_by_key(|(first, kept)| kept.end - **first)?;
                (*smallest.0, *smallest.1)
            }
        };
        let at = if (first..kept.end).contains(&start) && start + pages <= kept.end { start } else { first };
        self.kept.remove(&first);
        for (start, end) in [(first, at), (at + pages, kept.end)] {
            if start < end {
                self.kept.insert(start, Kept { end, ..kept });
            }
        }
        self.lies(start, pages, at);
        Some((at, kept.prot))
    }

    /// Places a new range that no kept memory is for: where it was recorded, or at a fresh place if
    /// something lies there. Returns the place.
    pub fn place(&mut self, start: u64, pages: u64) -> u64 {
        if self.is_free(start, pages) {
            self.lies(start, pages, start);
            return start;
        }
        self.place_afresh(start, pages)
    }

    /// Places a new range where nothing lies.
    pub fn place_afresh(&mut self, start: u64, pages: u64) -> u64 {
        let at = FRESH + self.fresh;
        // A region between two: they fill tables of their own.
        self.fresh += pages.next_multiple_of(REGION) + REGION;
        self.lies(start, pages, at);
        at
    }

    /// Returns whether neither kept nor moved memory lies in a range.
    pub fn is_free(&self, start: u64, pages: u64) -> bool {
        let end = start.saturating_add(pages);
        let kept = self.kept.range(..end).next_back().is_some_and(|(_, kept)| kept.end > start);
        let moved = self.targets.range(..end).next_back().is_some_and(|(_, last)| *last > start);
        !kept && !moved
    }

    /// Keeps a range that is given back.
    pub fn keep(&mut self, start: u64, pages: u64, prot: Option<Prot>) {
        for place in self.places(start, pages) {
            let (mut first, mut kept) = (place.start, Kept { end: place.start + place.pages, prot });
            let before = self.kept.range(..=first).next_back().map(|(at, kept)| (*at, *kept));
            for (at, other) in before.into_iter().chain(self.kept.get(&kept.end).map(|k| (kept.end, *k))) {
                if other.end < first || at > kept.end {
                    continue;
                }
                self.kept.remove(&at);
                (first, kept.end) = (first.min(at), kept.end.max(other.end));
                kept.prot = kept.prot.filter(|prot| other.prot == Some(*prot));
            }
            self.kept.insert(first, kept);
        }
        self.forget(start, pages);
    }

    /// Forgets a recorded range: it is unmapped, or lies where it was recorded from now on.
    pub fn forget(&mut self, start: u64, pages: u64) {
        let end = start.saturating_add(pages);
        let first = self.moved.range(..=start).next_back().map_or(start, |(first, _)| *first);
        let hit: Vec<(u64, Moved)> = self
            .moved
            .range(first..end)
            .filter(|(_, moved)| moved.end > start)
            .map(|(from, moved)| (*from, *moved))
            .collect();
        for (from, moved) in hit {
            self.moved.remove(&from);
            self.targets.remove(&moved.to);
            if from < start {
                self.add(from, Moved { end: start, to: moved.to });
            }
            if end < moved.end {
                self.add(end, Moved { end: moved.end, to: moved.to + (end - from) });
            }
        }
    }

    /// Returns how many pages are kept for later mappings, touched or not.
    pub fn kept_pages(&self) -> u64 {
        self.kept.iter().map(|(start, kept)| kept.end - start).sum()
    }

    /// Gives kept memory of a range up: something is mapped over it.
    pub fn evict(&mut self, start: u64, pages: u64) {
        let end = start.saturating_add(pages);
        let hit: Vec<(u64, Kept)> =
            self.kept.range(..end).filter(|(_, kept)| kept.end > start).map(|(at, k)| (*at, *k)).collect();
        for (at, kept) in hit {
            self.kept.remove(&at);
            for (from, to) in [(at, start.min(kept.end)), (end.max(at), kept.end)] {
                if from < to {
                    self.kept.insert(from, Kept { end: to, ..kept });
                }
            }
        }
    }

    /// A recorded range lies at a place from now on.
    pub fn lies(&mut self, start: u64, pages: u64, at: u64) {
        self.forget(start, pages);
        if at != start {
            self.add(start, Moved { end: start + pages, to: at });
        }
    }

    fn add(&mut self, start: u64, moved: Moved) {
        self.targets.insert(moved.to, moved.to + (moved.end - start));
        self.moved.insert(start, moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: Prot = Prot(Prot::READ | Prot::WRITE);

    fn place(start: u64, pages: u64) -> Place {
        Place { start, pages }
    }

    #[test]
    fn memory_is_handed_out_where_it_was_or_where_it_fits_best() {
        let mut pool = Pool::default();
        pool.keep(100, 50, Some(RW));
        pool.keep(200, 10, Some(RW));
        assert_eq!(pool.reuse(120, 5), Some((120, Some(RW))), "it is kept where it was");
        assert_eq!(pool.reuse(900, 8), Some((200, Some(RW))), "the smallest that is large enough");
        assert_eq!((pool.page(903), pool.page(120), pool.page(908)), (203, 120, 908));
        assert_eq!(pool.reuse(500, 26), None, "20 and 25 pages are left");
    }

    #[test]
    fn neighbours_become_one_and_lose_permissions_that_differ() {
        let mut pool = Pool::default();
        pool.keep(100, 10, Some(RW));
        pool.keep(120, 10, Some(RW));
        pool.keep(110, 10, Some(RW));
        assert_eq!(pool.reuse(0, 30), Some((100, Some(RW))));
        pool.keep(0, 30, Some(RW));
        pool.keep(130, 1, Some(Prot(0)));
        assert_eq!(pool.reuse(0, 31), Some((100, None)));
    }

    #[test]
    fn ranges_that_lie_elsewhere_are_followed_piece_by_piece() {
        let mut pool = Pool::default();
        pool.keep(100, 10, None);
        assert_eq!(pool.reuse(500, 10), Some((100, None)));
        assert_eq!(pool.places(495, 20), [place(495, 5), place(100, 10), place(510, 5)]);
        assert_eq!(pool.places(503, 2), [place(103, 2)]);
        pool.forget(503, 2);
        assert_eq!(pool.places(500, 10), [place(100, 3), place(503, 2), place(105, 5)]);
    }

    #[test]
    fn what_is_mapped_where_memory_is_kept_lies_elsewhere() {
        let mut pool = Pool::default();
        pool.keep(100, 10, None);
        let at = pool.place(105, 20);
        assert!(at >= FRESH, "{at}");
        assert_eq!(pool.place(300, 5), 300);
        let again = pool.place(100, 1);
        assert!(again >= at + 20, "places do not overlap");
        pool.evict(102, 3);
        assert!(pool.is_free(102, 3) && !pool.is_free(101, 3) && !pool.is_free(104, 2));
    }
}
