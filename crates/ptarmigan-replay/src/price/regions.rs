//! The regions that a run of pages lies in, and their tables.
use crate::linux::PAGE;
use crate::pages::REGION;
use crate::workers::look::Look;
use ptarmigan::addr::VirtRange;
use std::ops::Range;

/// Cuts a run of pages at the borders of leaf tables. Returns the number of each region, and the
/// pages there.
pub fn regions(start: u64, pages: u64) -> impl Iterator<Item = (u64, Range<u64>)> {
    let end = start.saturating_add(pages);
    (start / REGION..end.div_ceil(REGION))
        .map(move |at| (at, start.max(at * REGION)..end.min((at + 1) * REGION)))
}

/// Returns the entries of the leaf table of a region, if it has one.
pub fn entries(view: &dyn Look, region: u64) -> Option<u32> {
    let mut entries = None;
    let range = VirtRange::saturating_pages(region * REGION, REGION, PAGE);
    view.leaf_tables(range, &mut |table| entries = Some(table.entries));
    entries
}
