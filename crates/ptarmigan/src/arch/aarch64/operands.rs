//! Makes the operands of `TLBI` from the addresses to forget.
use super::features::{Features, Granule};
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
/// Operands for one page and for a range: the first bit of the level's field.
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

/// Returns the number of the level whose leaves have 2^`shift` bytes, as operands name it behind
/// the number of the granule (Arm ARM, "TLBI", the field TTL). `None` if there is no such leaf, or
/// none that every CPU with the granule knows: operands then say nothing, and CPUs look at every
/// level.
const fn level(granule: Granule, shift: u32) -> Option<u64> {
    // Entries of 8 bytes fill a granule.
    let (last, bits) = (granule.shift(), granule.shift() - 3);
    match shift.checked_sub(last) {
        Some(0) => Some(LAST_LEVEL),
        Some(above) if above == bits => Some(LAST_LEVEL - 1),
        Some(above) if above == 2 * bits && matches!(granule, Granule::K4) => Some(LAST_LEVEL - 2),
        _ => None,
    }
}

/// Calls `f` with operands for the pages of a scope, all of them if it is full. `pages` says that
/// no table has gone, only entries of pages: operands name their level then, if all have one size.
/// Otherwise they say nothing, and CPUs look at every level.
pub(super) fn of(features: &Features, scope: &Scope, pages: bool, mut f: impl FnMut(Operand)) {
    let Some(runs) = scope.runs() else { return f(Operand::All) };
    let Features { ranges, ttl, granule, .. } = *features;
    let named = scope.page_shift().filter(|_| ttl && pages);
    let (ttl, range_ttl) = match named.and_then(|shift| level(granule, shift)) {
        Some(level) => ((granule.tg() << 2 | level) << TTL_SHIFT, level << RANGE_TTL_SHIFT),
        None => (0, 0),
    };
    for (start, end, stride) in runs {
        let granules = end.wrapping_sub(start) >> granule.shift();
        if end.wrapping_sub(start) >> stride == 1 {
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
