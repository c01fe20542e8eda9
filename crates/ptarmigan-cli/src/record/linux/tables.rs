//! Where the events so far have made last-level tables, as far as that is certain.
//!
//! Of the pages that are found at a stop only those are written into the trace that lie where no
//! event has made a table. So a trace does not grow where faults have told everything.
use super::proc::PAGE_SHIFT;
use super::raw::Found;
use ptarmigan_trace::Kind;
use std::collections::HashSet;

/// Binary logarithm of the pages below one last-level table.
const SPAN: u32 = 9;

/// The spans of last-level tables that are certainly there.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownTables {
    spans: HashSet<u64>,
    /// The span that was added last: most faults lie beside the one before.
    last: Option<u64>,
}

impl KnownTables {
    /// A fault has made `page` present.
    pub(super) fn add(&mut self, page: u64) {
        let span = page >> SPAN;
        if self.last != Some(span) {
            self.last = Some(span);
            self.spans.insert(span);
        }
    }

    /// Forgets what a call may have freed.
    pub(super) fn forget_by(&mut self, kind: &Kind) {
        match *kind {
            Kind::Mmap { start, pages, .. }
            | Kind::Munmap { start, pages }
            | Kind::Madvise { start, pages, .. } => self.forget(start, pages),
            Kind::Mremap { from, old_pages, to, new_pages, .. } => {
                self.forget(from, old_pages);
                self.forget(to, new_pages);
            }
            // The heap shrinks from anywhere.
            Kind::Brk { end } => self.forget(end, u64::MAX >> PAGE_SHIFT),
            Kind::Failed { .. } => {
                self.spans.clear();
                self.last = None;
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
                self.spans.remove(&span);
            }
        } else {
            self.spans.retain(|span| !gone.contains(span));
        }
    }

    /// Returns the parts of `found` that lie where no table is known, which are known from then
    /// on; and those without a table.
    pub(super) fn news(&mut self, found: &[Found]) -> Vec<Found> {
        let mut news: Vec<Found> = Vec::new();
        let mut added = HashSet::new();
        for f in found {
            let end = f.start + f.pages;
            let mut start = f.start;
            while start < end {
                let span = start >> SPAN;
                let stop = ((span + 1) << SPAN).min(end);
                if f.huge || added.contains(&span) || !self.spans.contains(&span) {
                    if !f.huge {
                        added.insert(span);
                    }
                    match news.last_mut() {
                        Some(last)
                            if last.start + last.pages == start
                                && (last.private, last.huge) == (f.private, f.huge) =>
                        {
                            last.pages = stop - last.start;
                        }
                        _ => news.push(Found { start, pages: stop - start, ..*f }),
                    }
                }
                start = stop;
            }
        }
        self.spans.extend(added);
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(start: u64, pages: u64) -> Found {
        Found { start, pages, private: true, huge: false }
    }

    #[test]
    fn only_what_no_event_explains_is_news() {
        let mut known = KnownTables::default();
        known.add(512);
        known.add(600);
        assert_eq!(known.news(&[found(500, 1000)]), [found(500, 12), found(1024, 476)]);
        assert_eq!(known.news(&[found(500, 1000)]), []);
        known.forget_by(&Kind::Munmap { start: 700, pages: 1 });
        assert_eq!(known.news(&[found(510, 3), found(514, 1)]), [found(512, 1), found(514, 1)]);
        known.forget_by(&Kind::Brk { end: 1023 });
        assert_eq!(known.news(&[found(0, 2048)]), [found(512, 1536)]);
    }

    #[test]
    fn entries_of_upper_levels_are_always_news() {
        let mut known = KnownTables::default();
        known.add(512);
        let huge = Found { huge: true, private: false, ..found(512, 1024) };
        assert_eq!(known.news(&[huge]), [huge]);
        assert_eq!(known.news(&[huge]), [huge]);
    }
}
