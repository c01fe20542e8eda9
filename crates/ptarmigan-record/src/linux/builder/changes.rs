//! The ranges in which tasks of a shared space have replaced mappings last.
//!
//! A look at the pages that a call has made present takes a while, and other tasks run meanwhile. A
//! page that it finds where another task has mapped since may be one of the new mapping: events of
//! that mapping tell it. Where another task has only taken pages away, for example by `munmap` or
//! `madvise`, a page that is found was there before: it belongs to the call.
use ptarmigan_trace::Kind;
use std::collections::VecDeque;
use std::ops::Range;

/// The most changes that are remembered.
const REMEMBERED: usize = 1 << 10;

/// A change: which task made it, when its call ended, and the pages.
struct AreaChange {
    pid: i32,
    time: u64,
    pages: Range<u64>,
}

/// The last changes.
#[derive(Default)]
pub(super) struct Changes {
    last: VecDeque<AreaChange>,
    /// The time of the newest that was forgotten.
    forgotten: u64,
}

impl Changes {
    /// A call of a task has ended at a time.
    pub(super) fn add(&mut self, pid: i32, time: u64, kind: &Kind) {
        let Some(pages) = replaced_by(kind) else { return };
        if self.last.len() >= REMEMBERED
            && let Some(oldest) = self.last.pop_front()
        {
            self.forgotten = oldest.time;
        }
        self.last.push_back(AreaChange { pid, time, pages });
    }

    /// Removes from `parts` everything that tasks but `pid` have replaced since a time.
    pub(super) fn remove(&self, parts: &mut Vec<Range<u64>>, pid: i32, since: u64) {
        if since <= self.forgotten {
            parts.clear();
        }
        for change in self.last.iter().rev().take_while(|change| change.time >= since) {
            if change.pid != pid {
                remove(parts, &change.pages);
            }
        }
    }
}

/// Removes a range from others.
pub(super) fn remove(parts: &mut Vec<Range<u64>>, gone: &Range<u64>) {
    *parts = parts
        .iter()
        .flat_map(|part| [part.start..part.end.min(gone.start), part.start.max(gone.end)..part.end])
        .filter(|part| !part.is_empty())
        .collect();
}

/// Returns the range in which a call may put another mapping in the place of an older one.
pub(super) fn replaced_by(kind: &Kind) -> Option<Range<u64>> {
    match *kind {
        Kind::Mmap { start, pages, .. } | Kind::Mremap { to: start, new_pages: pages, .. } => {
            Some(start..start.saturating_add(pages))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_trace::{MapFlags, Prot};

    #[test]
    fn ranges_that_others_replaced_since_are_taken_away() {
        let mut changes = Changes::default();
        let map = |start, pages| Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(MapFlags::ANON) };
        changes.add(1, 10, &map(0, 100));
        changes.add(2, 20, &map(20, 10));
        changes.add(3, 30, &Kind::Mremap { from: 40, old_pages: 1, to: 50, new_pages: 2, keep: false });
        // These only take pages away.
        changes.add(2, 40, &Kind::Munmap { start: 0, pages: 100 });
        changes.add(2, 40, &Kind::Madvise { start: 0, pages: 100, advice: 4 });
        changes.add(2, 40, &Kind::Brk { end: 1 });
        let left = |pid, since| {
            let mut parts = vec![0..60, 70..80];
            changes.remove(&mut parts, pid, since);
            parts
        };
        assert_eq!(left(1, 11), [0..20, 30..50, 52..60, 70..80]);
        assert_eq!(left(3, 20), [0..20, 30..60, 70..80]);
        assert_eq!(left(3, 10), Vec::<Range<u64>>::new());
        // More than are remembered.
        for _ in 0..REMEMBERED {
            changes.add(1, 40, &map(200, 1));
        }
        let mut parts = vec![0..60, 70..80];
        changes.remove(&mut parts, 1, 30);
        assert!(parts.is_empty());
    }
}
