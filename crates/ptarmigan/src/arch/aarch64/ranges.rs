//! Splits runs of pages into the ranges that one instruction can name.
//!
//! An operand names `(NUM + 1) << (5 * SCALE + 1)` granules (Arm ARM, "TLB range maintenance
//! instructions").

/// Binary logarithm of the granule.
const GRANULE: u32 = 12;
/// The granule, as operands name it: 4 KiB.
const TG_4K: u64 = 1 << 46;
/// The address bits of an operand.
const BASE: u64 = (1 << 37) - 1;
/// The highest scale.
const MOST_SCALE: u32 = 3;

/// Part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// One granule, at its address.
    One(u64),
    /// A range: its operand, but for the ASID.
    Range(u64),
}

/// Calls `f` with parts that cover the granules from `at` on, and no others.
pub(super) fn split(mut at: u64, mut granules: u64, mut f: impl FnMut(Part)) {
    let mut scale = 0;
    while granules > 0 {
        if granules & 1 != 0 && scale == 0 {
            f(Part::One(at));
            (at, granules) = (at.wrapping_add(1 << GRANULE), granules - 1);
            continue;
        }
        let shift = 5 * scale + 1;
        // At the highest scale there may be more than one instruction names.
        let units = if scale == MOST_SCALE { (granules >> shift).min(32) } else { granules >> shift & 31 };
        if units > 0 {
            f(Part::Range(TG_4K | u64::from(scale) << 44 | (units - 1) << 39 | at >> GRANULE & BASE));
            (at, granules) = (at.wrapping_add(units << (shift + GRANULE)), granules - (units << shift));
        }
        if scale < MOST_SCALE {
            scale += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address and granules that a part names.
    fn named(part: Part) -> (u64, u64) {
        match part {
            Part::One(at) => (at, 1),
            Part::Range(operand) => {
                assert_eq!(operand >> 46 & 3, 1, "the granule is 4 KiB");
                let (scale, num) = (operand >> 44 & 3, operand >> 39 & 31);
                ((operand & BASE) << GRANULE, (num + 1) << (5 * scale + 1))
            }
        }
    }

    #[test]
    fn parts_cover_exactly_the_run() {
        let most = 1u64 << 22;
        let sizes = (1..200).chain((0..23).flat_map(|n| [(1 << n) - 1, 1 << n, (1 << n) + 1]));
        for granules in sizes.filter(|n| *n > 0 && *n <= most + 1) {
            let (start, mut next, mut parts) = (0x40_0000, 0x40_0000, 0);
            split(start, granules, |part| {
                let (at, n) = named(part);
                assert_eq!(at, next, "{granules} granules");
                next = at + (n << GRANULE);
                parts += 1;
            });
            assert_eq!(next, start + (granules << GRANULE), "{granules} granules");
            assert!(parts <= 5 + (granules >> 21), "{granules} granules in {parts} parts");
        }
    }
}
