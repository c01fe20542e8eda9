//! Tracks the last-level tables that the events so far have certainly made.
//!
//! Of the pages that are found at a stop only those are written into the trace that lie where no
//! event has made a table. So a trace does not grow where faults have told everything.
use crate::linux::system::pagemap::PresentPages;
use crate::linux::system::proc::PAGE_SHIFT;
use ptarmigan_trace::Kind;
use std::collections::{HashMap, HashSet};

/// Binary logarithm of the pages below one last-level table.
const SPAN: u32 = 9;

/// The spans of last-level tables that are certainly there.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownTables {
    spans: HashMap<u64, Known>,
    /// The span that was added last: most faults lie beside the one before.
    last: Option<u64>,
    /// The end of the heap, 0 before it is known.
    heap_end: u64,
    /// Whether a fork has copied this space, and whether a fork has made it. A page that only this
    /// space maps may then be one that the fork shared until the other space was gone: nobody has
    /// written it since.
    copied: bool,
    is_copy: bool,
}

/// The state of a span according to the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// There was a table, and it may have been freed.
    Was,
    /// There is a table.
    Is,
    /// There is a table with a page that was written, which fork copies.
    Written,
}

impl KnownTables {
    /// A fault has made `page` present.
    pub(crate) fn add(&mut self, page: u64, write: bool) {
        let span = page >> SPAN;
        if !write && self.last == Some(span) {
            return;
        }
        self.last = Some(span);
        let known = self.spans.entry(span).or_insert(Known::Is);
        if write {
            *known = Known::Written;
        } else if *known == Known::Was {
            *known = Known::Is;
        }
    }

    /// Returns the spans that are certain after a copy by fork.
    pub(crate) fn forked(&self) -> Self {
        let copied = self.spans.iter().filter(|(_, known)| **known == Known::Written);
        let spans = copied.map(|(span, known)| (*span, *known)).collect();
        Self { spans, last: None, copied: true, is_copy: true, ..*self }
    }

    /// A fork copies the space.
    pub(crate) fn fork(&mut self) {
        self.copied = true;
    }

    /// Forgets the tables that a call may have freed.
    pub(crate) fn forget_by(&mut self, kind: &Kind) {
        match *kind {
            Kind::Mmap { start, pages, .. }
            | Kind::Munmap { start, pages }
            | Kind::Madvise { start, pages, .. } => self.forget(start, pages),
            Kind::Mremap { from, old_pages, to, new_pages, .. } => {
                self.forget(from, old_pages);
                self.forget(to, new_pages);
            }
            Kind::Brk { end } => {
                if end < self.heap_end {
                    self.forget(end, self.heap_end - end);
                }
                self.heap_end = end;
            }
            Kind::Failed { .. } => {
                self.forget(0, u64::MAX >> PAGE_SHIFT);
            }
            _ => {}
        }
    }

    fn forget(&mut self, start: u64, pages: u64) {
        let end = start.saturating_add(pages.max(1)).div_ceil(1 << SPAN);
        let gone = start >> SPAN..end;
        if self.last.is_some_and(|last| gone.contains(&last)) {
            self.last = None;
        }
        if gone.end - gone.start < self.spans.len() as u64 {
            for span in gone {
                self.spans.entry(span).and_modify(|known| *known = Known::Was);
            }
        } else {
            let freed = self.spans.iter_mut().filter(|(span, _)| gone.contains(span));
            freed.for_each(|(_, known)| *known = Known::Was);
        }
    }

    /// Returns the parts of `found` that lie where no table is known, which are known from then
    /// on; and those without a table. Pages are exclusive only if it is certain that they were
    /// written since the last fork. Also returns in how many spans no event has ever made one.
    pub(crate) fn news(&mut self, found: &[PresentPages]) -> (Vec<PresentPages>, u64) {
        let mut news: Vec<PresentPages> = Vec::new();
        let mut added = HashSet::new();
        let mut unexplained = 0;
        for f in found {
            let end = f.start + f.pages;
            let mut start = f.start;
            while start < end {
                let span = start >> SPAN;
                let stop = ((span + 1) << SPAN).min(end);
                let known = self.spans.get(&span).copied();
                let certain = matches!(known, Some(Known::Is | Known::Written));
                let old = if known.is_none() { self.is_copy } else { self.copied };
                let next = PresentPages { start, pages: stop - start, exclusive: f.exclusive && !old, ..*f };
                if f.huge || added.contains(&span) || !certain {
                    if !f.huge && added.insert(span) {
                        unexplained += u64::from(known.is_none());
                    }
                    match news.last_mut() {
                        Some(last) if last.continues(&next) => last.pages = stop - last.start,
                        _ => news.push(next),
                    }
                }
                start = stop;
            }
        }
        self.spans.extend(added.into_iter().map(|span| (span, Known::Is)));
        (news, unexplained)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(start: u64, pages: u64) -> PresentPages {
        PresentPages { start, pages, private: true, exclusive: true, huge: false }
    }

    #[test]
    fn only_what_no_event_explains_is_news() {
        let mut known = KnownTables::default();
        known.add(512, false);
        known.add(600, true);
        assert_eq!(known.news(&[found(500, 1000)]), (vec![found(500, 12), found(1024, 476)], 2));
        assert_eq!(known.news(&[found(500, 1000)]), (vec![], 0));
        // A table that may have been freed is written again, and was no surprise.
        known.forget_by(&Kind::Munmap { start: 700, pages: 1 });
        assert_eq!(known.news(&[found(510, 3), found(514, 1)]), (vec![found(512, 1), found(514, 1)], 0));
        // A heap that grows frees no table, one that shrinks may.
        known.forget_by(&Kind::Brk { end: 2048 });
        assert_eq!(known.news(&[found(510, 514)]), (vec![], 0));
        known.forget_by(&Kind::Brk { end: 1023 });
        assert_eq!(known.news(&[found(0, 2048)]), (vec![found(512, 1536)], 1));
    }

    #[test]
    fn a_fork_copies_what_was_written() {
        let mut known = KnownTables::default();
        known.add(512, false);
        known.add(1024, true);
        let mut child = known.forked();
        // The child has not written what it got, though its parent may be gone.
        let shared = PresentPages { exclusive: false, ..found(512, 512) };
        assert_eq!(child.news(&[found(512, 1024)]), (vec![shared], 1));
    }

    #[test]
    fn pages_that_a_fork_has_shared_are_not_written() {
        let mut known = KnownTables::default();
        known.add(512, true);
        known.forget_by(&Kind::Munmap { start: 700, pages: 1 });
        let mut before = known.clone();
        assert_eq!(before.news(&[found(512, 2)]).0, [found(512, 2)]);
        known.fork();
        // In a span without a table before, somebody has written them.
        let shared = PresentPages { exclusive: false, ..found(512, 2) };
        assert_eq!(known.news(&[found(512, 2), found(1024, 2)]).0, [shared, found(1024, 2)]);
    }

    #[test]
    fn entries_of_upper_levels_are_always_news() {
        let mut known = KnownTables::default();
        known.add(512, false);
        let huge = PresentPages { huge: true, private: false, exclusive: false, ..found(512, 1024) };
        assert_eq!(known.news(&[huge]), (vec![huge], 0));
        assert_eq!(known.news(&[huge]), (vec![huge], 0));
    }
}
