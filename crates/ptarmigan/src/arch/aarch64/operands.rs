//! Makes the operands of `TLBI` from the addresses to forget.
use super::features::Features;
use super::ranges::{Part, split};
use crate::addr::FRAME_SHIFT;
use crate::tlb::Scope;

/// `TTBR0_EL1`, `VTTBR_EL2` and operands: the first bit of the ASID or VMID.
pub(super) const ASID_SHIFT: u32 = 48;
/// Entries: valid.
pub(super) const VALID: u64 = 1;
/// Pages that became valid at once and are forgotten one by one.
pub(super) const MOST_NEW: u64 = 64;
/// Operands: the page.
const PAGE: u64 = (1 << 44) - 1;
/// Granules of one run beyond which everything is forgotten instead: 16 GiB in pages of 4 KiB.
const MOST_GRANULES: u64 = 1 << 22;
/// Operands for one page and for a range: the first bit of the level's field. With the granule's
/// number before it, 3 is the last level.
const TTL_SHIFT: u32 = 44;
const RANGE_TTL_SHIFT: u32 = 37;
const LAST_LEVEL: u64 = 3;

/// An operand, without an ASID.
pub(super) enum Operand {
    /// Of an instruction for one page.
    Page(u64),
    /// Of one for a range.
    Range(u64),
    /// Everything is forgotten.
    All,
}

/// The operand for an ASID or a VMID.
pub(super) const fn tag(asid: u16) -> u64 {
    (asid as u64) << ASID_SHIFT
}

/// The operand for a page.
pub(super) const fn page(at: u64) -> u64 {
    at >> FRAME_SHIFT & PAGE
}

/// Calls `f` with operands for the pages of a scope, all of them if it is full. `pages` says that
/// no table has gone, only entries of pages: operands name their level then, the last one, if the
/// pages have the size of a granule. Otherwise they say nothing, and CPUs look at every level.
pub(super) fn of(features: &Features, scope: &Scope, pages: bool, mut f: impl FnMut(Operand)) {
    let Some(runs) = scope.runs() else { return f(Operand::All) };
    for (start, end, stride) in runs {
        let Features { ranges, ttl, granule, .. } = *features;
        let (ttl, range_ttl) = match ttl && pages && stride <= granule.shift() {
            true => ((granule.tg() << 2 | LAST_LEVEL) << TTL_SHIFT, LAST_LEVEL << RANGE_TTL_SHIFT),
            false => (0, 0),
        };
        let granules = end.wrapping_sub(start) >> granule.shift();
        if end == start.wrapping_add(1) {
            f(Operand::Page(ttl | page(start)));
        } else if granules > MOST_GRANULES {
            f(Operand::All);
        } else if ranges && stride <= granule.shift() {
            split(granule, start, granules, |part| match part {
                Part::One(at) => f(Operand::Page(ttl | page(at))),
                Part::Range(operand) => f(Operand::Range(range_ttl | operand)),
            });
        } else {
            for i in 0..end.wrapping_sub(start) >> stride {
                f(Operand::Page(ttl | page(start.wrapping_add(i << stride))));
            }
        }
    }
}
