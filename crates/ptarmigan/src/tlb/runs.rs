//! Collects stale pages as a few runs.

/// Runs that are kept apart.
const MOST: usize = Runs::MOST;

/// One run, in page numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    first: u64,
    /// First page after it.
    end: u64,
}

/// Pages that a TLB may hold old translations of: up to eight runs of consecutive pages, ascending
/// and apart.
///
/// Pages that are inserted join the runs they touch. When there would be a ninth run, the two that
/// are nearest to each other become one, with the gap between them. So a `Runs` covers at least the
/// ranges inserted, and exactly these as long as there were no more than eight runs.
///
/// ```
/// use ptarmigan::tlb::Runs;
/// let mut stale = Runs::new(12);
/// stale.insert(0x5000, 0x6000);
/// stale.insert(0x1000, 0x2000);
/// stale.insert(0x2000, 0x4000);
/// assert_eq!(stale.iter().collect::<Vec<_>>(), [(0x1000, 0x4000), (0x5000, 0x6000)]);
/// assert_eq!(stale.pages(), 4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    runs: [Run; MOST],
    len: u8,
    shift: u8,
    /// Some pages may be larger than 2^`shift` bytes.
    mixed: bool,
    /// Pages in it that were put into the hash table, where the machine has one.
    hashed: u32,
}

impl Runs {
    /// Runs that a set keeps apart.
    pub const MOST: usize = 8;

    /// Makes an empty set of pages of 2^`shift` bytes each: see [`mix`](Self::mix). Another number
    /// than 1 to 63 is taken for the nearest of these.
    #[inline]
    pub const fn new(shift: u32) -> Self {
        let shift = match shift {
            0 => 1,
            64.. => 63,
            shift => shift as u8,
        };
        Runs { runs: [Run { first: 0, end: 0 }; MOST], len: 0, shift, mixed: false, hashed: 0 }
    }

    /// Makes a set of the pages that lie in `start..end`, wholly or partly.
    #[inline]
    pub fn one(start: u64, end: u64, shift: u32) -> Self {
        let mut runs = Runs::new(shift);
        runs.insert(start, end);
        runs
    }

    /// Notes that pages in it may be larger than 2^`shift` bytes, or are there for links of tables.
    /// A flush then names no size of pages ([`Scope::page_shift`](super::Scope::page_shift)):
    /// hardware that is told one need not forget a page of another size.
    #[inline]
    pub const fn mix(&mut self) {
        self.mixed = true;
    }

    /// Returns whether pages in it may be larger than 2^`shift` bytes.
    #[inline]
    pub const fn is_mixed(&self) -> bool {
        self.mixed
    }

    /// Inserts the pages that lie in `start..end`, wholly or partly. An `end` of 0 is the end of
    /// the address space, so that `0..0` is all of it; otherwise the call has no effect if `end` is
    /// not above `start`.
    #[inline]
    pub fn insert(&mut self, start: u64, end: u64) {
        let last = end.wrapping_sub(1);
        if last < start {
            return;
        }
        let new = Run { first: start >> self.shift, end: (last >> self.shift) + 1 };
        let Some(at) = usize::from(self.len).checked_sub(1) else {
            (self.runs[0], self.len) = (new, 1);
            return;
        };
        // Operations go along ascending addresses: nearly always the last run grows.
        if let Some(run) = self.runs.get_mut(at)
            && new.first >= run.first
            && new.first <= run.end
        {
            if new.end > run.end {
                run.end = new.end;
            }
            return;
        }
        self.insert_apart(new);
    }

    /// Inserts a run that does not begin in the last one.
    #[cold]
    fn insert_apart(&mut self, new: Run) {
        // One place more than are kept: the new run always finds room, and the two nearest are
        // merged then.
        let mut all = [Run::default(); MOST + 1];
        let mut len = 0;
        let mut push = |run| {
            if let Some(place) = all.get_mut(len) {
                *place = run;
                len += 1;
            }
        };
        let mut new = Some(new);
        for &run in self.used() {
            match new {
                Some(one) if run.first > one.end => {
                    push(one);
                    push(run);
                    new = None;
                }
                // They touch; the new run grows, and may touch the next one.
                Some(one) if run.end >= one.first => {
                    new = Some(Run { first: one.first.min(run.first), end: one.end.max(run.end) });
                }
                _ => push(run),
            }
        }
        if let Some(one) = new {
            push(one);
        }
        let gap = |pair: &[Run]| match pair {
            [one, next] => next.first - one.end,
            _ => u64::MAX,
        };
        let all = all.get(..len).unwrap_or_default();
        let nearest = all.windows(2).enumerate().min_by_key(|(_, pair)| gap(pair)).map(|(at, _)| at);
        let nearest = nearest.filter(|_| len > MOST);
        let mut from = all.iter().enumerate();
        self.len = 0;
        for place in &mut self.runs {
            *place = Run::default();
            let Some((at, run)) = from.next() else { continue };
            (*place, self.len) = (*run, self.len + 1);
            if nearest == Some(at)
                && let Some((_, next)) = from.next()
            {
                place.end = next.end;
            }
        }
    }

    /// Returns the pages of 2^`shift` bytes, at least as large as its own, that have a page of it.
    #[cold]
    pub(crate) fn coarser(&self, shift: u32) -> Self {
        let mut coarser = Runs::new(shift.max(self.shift()));
        coarser.mixed = self.mixed;
        for (start, end) in self.iter() {
            coarser.insert(start, end);
        }
        coarser
    }

    /// Takes all pages out.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.mixed = false;
    }

    /// Counts a page that was put into the hash table.
    #[inline]
    pub(crate) fn add_hashed(&mut self) {
        self.hashed = self.hashed.saturating_add(1);
    }

    /// Counts no page.
    #[inline]
    pub(crate) fn forget_hashed(&mut self) {
        self.hashed = 0;
    }

    /// The pages that were counted.
    pub(super) const fn hashed(&self) -> u32 {
        self.hashed
    }

    /// Returns whether no page is in it.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of runs.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the binary logarithm of the page size.
    #[inline]
    pub const fn shift(&self) -> u32 {
        self.shift as u32
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.used().iter().fold(0, |sum, run| sum + (run.end - run.first))
    }

    /// Iterates over the runs: the first address of each and the first after it, 0 for the end of
    /// the address space.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.used().iter().map(|run| (run.first << self.shift, run.end << self.shift))
    }

    /// Returns the first address and the first after all runs, 0 for the end of the address space;
    /// `None` if it is empty.
    pub fn hull(&self) -> Option<(u64, u64)> {
        let used = self.used();
        Some((used.first()?.first << self.shift, used.last()?.end << self.shift))
    }

    /// Returns the number of pages from the first to the last one, those between the runs included.
    pub fn hull_pages(&self) -> u64 {
        match self.used() {
            [] => 0,
            [one] => one.end - one.first,
            [first, .., last] => last.end - first.first,
        }
    }

    /// Returns whether a page that has an address from `first` to `last` is in it.
    pub(crate) fn meets(&self, first: u64, last: u64) -> bool {
        let (first, last) = (first >> self.shift, last >> self.shift);
        self.used().iter().any(|run| run.first <= last && run.end > first)
    }

    /// Returns whether the page that `va` lies in is in it.
    pub fn contains(&self, va: u64) -> bool {
        let page = va >> self.shift;
        self.used().iter().any(|run| (run.first..run.end).contains(&page))
    }

    #[inline]
    fn used(&self) -> &[Run] {
        self.runs.get(..usize::from(self.len)).unwrap_or(&[])
    }
}
