//! The pages that an event may map or unmap.
use crate::linux::PAGE;
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
