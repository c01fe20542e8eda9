//! The pages that an event may map or unmap.
use crate::linux::{DONTNEED_LOCKED, PAGE};
use crate::workers::look::Look;
use ptarmigan::addr::VirtRange;
use ptarmigan_trace::{AreaKind, FailedCall, Kind};

const ALL: VirtRange = VirtRange::up_to(u64::MAX);

/// Returns ranges that hold all pages that a call may map, unmap or move. `locks` says whether the
/// recording locks pages at all.
pub fn reach(kind: &Kind, space: &dyn Look, locks: bool) -> [Option<VirtRange>; 2] {
    let of = |start: u64, pages: u64| Some(VirtRange::saturating_pages(start, pages, PAGE));
    match *kind {
        Kind::Area { kind: AreaKind::Stack, .. }
        | Kind::LockAll { .. }
        | Kind::Failed { call: FailedCall::Lock { .. }, .. } => [Some(ALL), None],
        Kind::Area { start, pages, .. }
        | Kind::Mmap { start, pages, .. }
        | Kind::Munmap { start, pages }
        | Kind::Madvise { start, pages, .. }
        | Kind::Mprotect { start, pages, .. }
        | Kind::Lock { start, pages, .. }
        | Kind::Touched { start, pages, .. }
        | Kind::Failed { call: FailedCall::Madvise { start, pages, .. }, .. }
        | Kind::Failed { call: FailedCall::Mprotect { start, pages, .. }, .. } => [of(start, pages), None],
        Kind::Mremap { from, old_pages, to, new_pages, .. } => [of(from, old_pages), of(to, new_pages)],
        Kind::Failed { call: FailedCall::Mremap { start, pages, to, .. }, .. } => {
            [of(start, pages), of(to, pages)]
        }
        // A heap that shrinks has pages behind its new end; one that grows may be locked.
        Kind::Brk { .. } if locks => [Some(ALL), None],
        Kind::Brk { end } => {
            let start = end.saturating_mul(1 << PAGE);
            [space.area(start).and_then(|area| VirtRange::new(start, area.end).ok()), None]
        }
        _ => [None, None],
    }
}

/// Returns the pages that a call takes away whether they are mapped or not, first and length, of
/// the `ranges` that it reaches.
pub fn emptied(kind: &Kind, ranges: [Option<VirtRange>; 2]) -> Option<(u64, u64)> {
    let pages = |range: VirtRange| (range.start >> PAGE, range.len() >> PAGE);
    let found = match *kind {
        Kind::Munmap { start, pages } | Kind::Mmap { start, pages, .. } => Some((start, pages)),
        Kind::Madvise { start, pages, advice } => {
            let gives = [libc::MADV_DONTNEED, DONTNEED_LOCKED, libc::MADV_REMOVE];
            gives.contains(&i32::from(advice)).then_some((start, pages))
        }
        Kind::Brk { .. } => ranges[0].filter(|range| range.end < u64::MAX).map(pages),
        Kind::Mremap { from, old_pages, to, new_pages, .. } if from == to => {
            Some((from.saturating_add(new_pages), old_pages.saturating_sub(new_pages)))
        }
        Kind::Mremap { to, new_pages, .. } => Some((to, new_pages)),
        _ => None,
    };
    found.filter(|(_, pages)| *pages > 0)
}
