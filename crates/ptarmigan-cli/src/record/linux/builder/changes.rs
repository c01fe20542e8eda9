//! The ranges that tasks of a shared space have changed last.
//!
//! A look at pages takes a while, and tells what was there at one moment of it. What another task
//! has changed meanwhile may have been seen before or after: its own events tell it in any case.
use ptarmigan_trace::{FailedCall, Kind};
use std::collections::VecDeque;
use std::ops::Range;

/// The most changes that are remembered.
const REMEMBERED: usize = 1 << 10;

/// A change: which task made it, when its call ended, and the pages.
struct Change {
    pid: i32,
    time: u64,
    pages: Range<u64>,
}

/// The last changes.
#[derive(Default)]
pub(super) struct Changes {
    last: VecDeque<Change>,
    /// The time of the newest that was forgotten.
    forgotten: u64,
}

impl Changes {
    /// A call of a task has ended at a time. The heap ended at the page `heap_end`.
    pub(super) fn add(&mut self, pid: i32, time: u64, kind: &Kind, heap_end: u64) {
        for pages in changed_by(kind, heap_end).into_iter().flatten() {
            if self.last.len() >= REMEMBERED
                && let Some(oldest) = self.last.pop_front()
            {
                self.forgotten = oldest.time;
            }
            self.last.push_back(Change { pid, time, pages });
        }
    }

    /// Removes from `parts` everything that tasks but `pid` have changed since a time.
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

/// Returns the ranges in which a call may take pages away or replace them.
pub(super) fn changed_by(kind: &Kind, heap_end: u64) -> [Option<Range<u64>>; 2] {
    let range = |start: u64, pages: u64| Some(start..start.saturating_add(pages));
    match *kind {
        Kind::Mmap { start, pages, .. }
        | Kind::Munmap { start, pages }
        | Kind::Madvise { start, pages, .. }
        | Kind::Failed { call: FailedCall::Madvise { start, pages, .. }, .. } => [range(start, pages), None],
        Kind::Mremap { from, old_pages, to, new_pages, .. } => [range(from, old_pages), range(to, new_pages)],
        Kind::Failed { call: FailedCall::Mremap { start, pages, to, .. }, .. } => {
            [range(start, pages), range(to, pages)]
        }
        Kind::Brk { end } => [range(end, heap_end.saturating_sub(end)), None],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_changed_since_is_taken_away() {
        let mut changes = Changes::default();
        changes.add(1, 10, &Kind::Munmap { start: 0, pages: 100 }, 0);
        changes.add(2, 20, &Kind::Munmap { start: 20, pages: 10 }, 0);
        changes.add(3, 30, &Kind::Mremap { from: 40, old_pages: 1, to: 50, new_pages: 2, keep: false }, 0);
        let left = |pid, since| {
            let mut parts = vec![0..60, 70..80];
            changes.remove(&mut parts, pid, since);
            parts
        };
        assert_eq!(left(1, 11), [0..20, 30..40, 41..50, 52..60, 70..80]);
        assert_eq!(left(3, 20), [0..20, 30..60, 70..80]);
        assert_eq!(left(3, 10), Vec::<Range<u64>>::new());
        // More than are remembered.
        for _ in 0..REMEMBERED {
            changes.add(1, 40, &Kind::Munmap { start: 200, pages: 1 }, 0);
        }
        let mut parts = vec![0..60, 70..80];
        changes.remove(&mut parts, 1, 30);
        assert!(parts.is_empty());
    }
}
