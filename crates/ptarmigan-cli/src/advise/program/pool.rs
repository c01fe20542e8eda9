//! The places of a program's memory if it keeps all of it.
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
use ptarmigan_replay::RangeMap;
use ptarmigan_trace::Prot;
use std::collections::BTreeSet;
use std::ops::Range;

/// Where ranges go if their place is taken: page number of address 2^45, far from stacks, heaps and
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

/// The memory of one address space.
#[derive(Clone, Default)]
pub struct Pool {
    /// Recorded ranges that lie elsewhere: the distance to there, which may wrap.
    moved: RangeMap<u64>,
    /// The places of `moved`.
    targets: RangeMap<()>,
    /// Memory that was given back and is there: its permissions, if they are the same everywhere.
    kept: RangeMap<Option<Prot>>,
    /// The ranges of `kept` by their length: the first page of each.
    by_length: BTreeSet<(u64, u64)>,
    kept_pages: u64,
    /// How far fresh places are used.
    fresh: u64,
}

fn range(start: u64, pages: u64) -> Range<u64> {
    start..start.saturating_add(pages)
}

fn shifted(range: &Range<u64>, by: u64) -> Range<u64> {
    range.start.wrapping_add(by)..range.end.wrapping_add(by)
}

impl Pool {
    /// Returns where a recorded page lies.
    pub fn page(&self, page: u64) -> u64 {
        page.wrapping_add(self.moved.around(page).map_or(0, |(_, by)| by))
    }

    /// Returns where a recorded range lies, piece by piece.
    pub fn places(&self, start: u64, pages: u64) -> Vec<Place> {
        let whole = range(start, pages);
        let (mut at, mut places) = (start, Vec::new());
        self.moved.each(&whole, |part, by| {
            places.extend([at..part.start, shifted(&part, by)]);
            at = part.end;
        });
        places.push(at..whole.end);
        let mut joined: Vec<Place> = Vec::new();
        for place in places.into_iter().filter(|place| !place.is_empty()) {
            let pages = place.end - place.start;
            match joined.last_mut().filter(|last| last.start.wrapping_add(last.pages) == place.start) {
                Some(last) => last.pages += pages,
                None => joined.push(Place { start: place.start, pages }),
            }
        }
        joined
    }

    /// Places a new range at kept memory of one place, if all of that is kept. Returns whether it
    /// is.
    pub fn reuse_at(&mut self, start: u64, pages: u64, at: u64) -> bool {
        let is_kept = self.kept.around(at).is_some_and(|(kept, _)| at + pages <= kept.end);
        if is_kept {
            self.evict(at, pages);
            self.lies(start, pages, at);
        }
        is_kept
    }

    /// Places a new range in kept memory: where it was recorded if that is kept, else in the
    /// smallest kept range that is large enough. Returns the place, and the permissions of the
    /// memory if they are the same everywhere.
    pub fn reuse(&mut self, start: u64, pages: u64) -> Option<(u64, Option<Prot>)> {
        let here = self.kept.around(start).filter(|(kept, _)| start + pages <= kept.end);
        let (at, prot) = match here {
            Some((_, prot)) => (start, prot),
            None => {
                let &(_, smallest) = self.by_length.range((pages, 0)..).next()?;
                (smallest, self.kept.around(smallest)?.1)
            }
        };
        self.evict(at, pages);
        self.lies(start, pages, at);
        Some((at, prot))
    }

    /// Places a new range in the largest kept ranges, as an allocator that hands out what it has
    /// instead of mapping more. Returns the pieces with their permissions; `None` if there is less.
    pub fn reuse_pieces(&mut self, start: u64, pages: u64) -> Option<Vec<(Place, Option<Prot>)>> {
        if self.kept_pages < pages {
            return None;
        }
        let (mut pieces, mut done) = (Vec::new(), 0);
        while done < pages {
            let &(length, at) = self.by_length.last()?;
            let prot = self.kept.around(at)?.1;
            let piece = Place { start: at, pages: length.min(pages - done) };
            self.evict(at, piece.pages);
            self.lies(start + done, piece.pages, at);
            done += piece.pages;
            pieces.push((piece, prot));
        }
        Some(pieces)
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

    /// Places a new range at a fresh place.
    pub fn place_afresh(&mut self, start: u64, pages: u64) -> u64 {
        let at = FRESH + self.fresh;
        // A region between two: they fill tables of their own.
        self.fresh += pages.next_multiple_of(REGION) + REGION;
        self.lies(start, pages, at);
        at
    }

    /// Returns whether neither kept nor moved memory lies in a range.
    pub fn is_free(&self, start: u64, pages: u64) -> bool {
        let range = range(start, pages);
        self.kept.is_free(&range) && self.targets.is_free(&range)
    }

    /// Keeps a range that is given back.
    pub fn keep(&mut self, start: u64, pages: u64, prot: Option<Prot>) {
        for Place { start, pages } in self.places(start, pages) {
            let both = |a: Option<Prot>, b: Option<Prot>| a.filter(|_| a == b);
            self.change_kept(range(start, pages), |kept, range| kept.join(range, prot, both));
        }
        self.forget(start, pages);
    }

    /// Forgets a recorded range: it is unmapped, or lies where it was recorded from now on.
    pub fn forget(&mut self, start: u64, pages: u64) {
        let range = range(start, pages);
        let mut gone = Vec::new();
        self.moved.each(&range, |part, by| gone.push(shifted(&part, by)));
        gone.iter().for_each(|target| self.targets.remove(target));
        self.moved.remove(&range);
    }

    /// Returns how many pages are kept for later mappings, touched or not.
    pub fn kept_pages(&self) -> u64 {
        self.kept_pages
    }

    /// Gives kept memory of a range up: something is mapped over it.
    pub fn evict(&mut self, start: u64, pages: u64) {
        self.change_kept(range(start, pages), |kept, range| kept.remove(&range));
    }

    /// Changes kept memory in `range`, with all that is known of it and of its neighbours.
    fn change_kept(
        &mut self,
        range: Range<u64>,
        change: impl FnOnce(&mut RangeMap<Option<Prot>>, Range<u64>),
    ) {
        let near = |kept: &RangeMap<Option<Prot>>| {
            let mut near = BTreeSet::new();
            kept.each(&(range.start.saturating_sub(1)..range.end.saturating_add(1)), |part, _| {
                let whole = kept.around(part.start).map_or(part, |(whole, _)| whole);
                near.insert((whole.end - whole.start, whole.start));
            });
            near
        };
        for one in near(&self.kept) {
            self.by_length.remove(&one);
            self.kept_pages -= one.0;
        }
        change(&mut self.kept, range.clone());
        for one in near(&self.kept) {
            self.by_length.insert(one);
            self.kept_pages += one.0;
        }
    }

    /// A recorded range lies at a place from now on.
    pub fn lies(&mut self, start: u64, pages: u64, at: u64) {
        self.forget(start, pages);
        if at != start {
            self.targets.insert(range(at, pages), ());
            self.moved.insert(range(start, pages), at.wrapping_sub(start));
        }
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
    fn a_range_grows_into_what_it_has_given_back() {
        let mut pool = Pool::default();
        pool.lies(900, 30, 100);
        pool.keep(910, 20, Some(RW));
        assert!(!pool.reuse_at(910, 21, 110), "20 pages are kept");
        assert!(pool.reuse_at(910, 20, 110));
        assert_eq!(pool.places(900, 30), [place(100, 30)]);
    }

    #[test]
    fn memory_is_handed_out_in_pieces_the_largest_first() {
        let mut pool = Pool::default();
        pool.keep(100, 20, Some(RW));
        pool.keep(200, 30, None);
        assert_eq!(pool.reuse_pieces(900, 51), None, "50 pages are kept");
        let pieces = pool.reuse_pieces(900, 40).expect("50 pages are kept");
        assert_eq!(pieces, [(place(200, 30), None), (place(100, 10), Some(RW))]);
        assert_eq!(pool.places(900, 40), [place(200, 30), place(100, 10)]);
        assert_eq!(pool.kept_pages(), 10);
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
