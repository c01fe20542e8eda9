//! Leaves of all sizes, as callers see them.
use crate::addr::{Pfn, VirtAddr, VirtRange};
use crate::format::{Attr, Format};
use crate::page::Level;

/// A leaf of a tree: a page, or a large page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its first address.
    pub at: VirtAddr,
    /// The first of its frames, which are consecutive.
    pub frame: Pfn,
    /// Its attributes.
    pub attr: Attr,
    /// The level of its table: 0 for a page.
    pub level: Level,
    /// Binary logarithm of its bytes.
    pub shift: u32,
}

impl Mapped {
    /// The leaf `raw` of a table of `level` that maps addresses from `va` on.
    #[inline]
    pub(super) fn of<F: Format>(level: Level, va: u64, raw: u64) -> Self {
        let (frame, attr) = (F::frame(level, raw), F::attr(level, raw));
        Mapped { at: VirtAddr(va), frame, attr, level, shift: F::shift(level) }
    }

    /// Returns the addresses that it maps.
    pub fn range(&self) -> VirtRange {
        VirtRange { start: self.at.0, end: self.at.0 + (1 << self.shift) }
    }
}

/// Calls `visit(address, frame, attributes)` for each page of the leaf `raw` of a table of `level`.
#[inline]
pub(super) fn each_page<F: Format>(
    level: Level,
    va: u64,
    raw: u64,
    mut visit: impl FnMut(VirtAddr, Pfn, Attr),
) {
    let attr = F::attr(level, raw);
    let Pfn(first) = F::frame(level, raw);
    if level == Level::PTE {
        return visit(VirtAddr(va), Pfn(first), attr);
    }
    for page in 0..1u64 << (F::shift(level) - F::PAGE_SHIFT) {
        visit(VirtAddr(va + (page << F::PAGE_SHIFT)), Pfn(first + ((page as u32) << F::PAGE_ORDER)), attr);
    }
}
