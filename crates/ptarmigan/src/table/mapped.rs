//! Leaves of all sizes, as callers see them.
use super::group::{is_hinted, leaf_shift, own};
use crate::addr::{Pfn, VirtAddr, VirtRange};
use crate::format::{Attr, Format};
use crate::page::Level;

/// A leaf of a tree: a page, a large page, or a [group](Format::GROUP_BITS) of either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its first address.
    pub at: VirtAddr,
    /// The first of its frames, which are consecutive.
    pub frame: Pfn,
    /// Its attributes: of a group, bits that MMUs have set in any of its entries.
    pub attr: Attr,
    /// The level of its table: 0 for a page.
    pub level: Level,
    /// Binary logarithm of its bytes; a group counts the bytes of all its entries.
    pub shift: u32,
}

impl Mapped {
    /// The leaf `raw` of a table of `level` that maps addresses from `va` on, the first entry of a
    /// group if it has the hint.
    #[inline]
    pub(super) fn of<F: Format>(level: Level, va: u64, raw: u64) -> Self {
        let (frame, attr) = (F::frame(level, own::<F>(level, va, raw)), F::attr(level, raw));
        Mapped { at: VirtAddr(va), frame, attr, level, shift: leaf_shift::<F>(level, raw) }
    }

    /// Returns the addresses that it maps. No [`VirtRange`] has the last byte of the address space,
    /// so the range of a leaf that maps it ends before.
    pub fn range(&self) -> VirtRange {
        VirtRange::ordered(self.at.0, self.at.0.saturating_add(1 << self.shift))
    }
}

/// Calls `visit(address, frame, attributes)` for each page of the leaf `raw` of a table of `level`,
/// the first entry of a group if it has the hint.
#[inline]
pub(super) fn each_page<F: Format>(
    level: Level,
    va: u64,
    raw: u64,
    mut visit: impl FnMut(VirtAddr, Pfn, Attr),
) {
    let attr = F::attr(level, raw);
    let Pfn(first) = F::frame(level, own::<F>(level, va, raw));
    if level == Level::PTE && !is_hinted::<F>(level, raw) {
        return visit(VirtAddr(va), Pfn(first), attr);
    }
    for page in 0..1u64 << (leaf_shift::<F>(level, raw) - F::PAGE_SHIFT) {
        visit(VirtAddr(va + (page << F::PAGE_SHIFT)), Pfn(first + ((page as u32) << F::PAGE_ORDER)), attr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::X86_64;

    #[test]
    fn the_last_leaf_of_the_address_space_has_a_range() {
        let raw = X86_64::leaf(Level(1), Pfn(0x200), Attr::READ);
        let last = Mapped::of::<X86_64>(Level(1), 0xffff_ffff_ffe0_0000, raw);
        assert_eq!(last.range(), VirtRange::fixed::<0xffff_ffff_ffe0_0000, { u64::MAX }>());
    }
}
