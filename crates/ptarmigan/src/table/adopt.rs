//! Pages that become tables, and tables that go back before anybody knew them.
use crate::addr::PhysAddr;
use crate::frames::{FrameMeta, Frames, Use};
use crate::machine::{Machine, On};
use crate::page::{Clean, Level};

/// Writes the record of a table that is about to be linked.
#[inline(always)]
pub(super) fn adopt(frames: &Frames, level: Level, page: Clean) -> (PhysAddr, &FrameMeta) {
    let record = frames.meta(page.addr().pfn());
    (adopt_as(record, level, page), record)
}

/// As [`adopt`], for a page whose record the caller has looked up.
#[inline(always)]
fn adopt_as(record: &FrameMeta, level: Level, page: Clean) -> PhysAddr {
    let at = adopt_clean(record, page);
    if level == Level::PTE {
        record.set_leaf_table();
    } else {
        record.set_order(level.0);
    }
    at
}

/// As [`adopt_as`], for a leaf table whose record its [first
/// entry](super::node::Node::put_first) completes.
#[inline(always)]
pub(super) fn adopt_clean(record: &FrameMeta, page: Clean) -> PhysAddr {
    let at = page.into_raw();
    debug_assert!(record.live_above() == 0 && record.lines(0) == 0, "clean page {at} has a record of use");
    record.set_usage(Use::Table);
    at
}

/// Gives a table back that no walker ever knew.
///
/// # Safety
///
/// 1. The caller must own the table of `level` at `at`, which came from the policy of `on`'s
///    machine, and give it away.
/// 2. It must be in the state of its level: no live entries.
/// 3. It must never have been linked to a tree.
#[cfg_attr(feature = "small", inline(never))]
pub(super) unsafe fn free_unlinked<M: Machine>(on: On<'_, M>, level: Level, at: PhysAddr) {
    on.frames().meta(at.pfn()).set_usage(Use::Taken);
    // SAFETY: points 1 to 3 are passed on.
    let page = unsafe { Clean::from_raw(at, level) };
    // SAFETY: 1. by the caller.
    unsafe { on.free_unlinked(page) };
}
