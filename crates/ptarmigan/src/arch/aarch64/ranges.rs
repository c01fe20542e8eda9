//! Splits runs of pages into the ranges that one instruction can name.
//!
//! An operand names `(NUM + 1) << (5 * SCALE + 1)` granules (Arm ARM, "TLB range maintenance
//! instructions").

use super::features::Granule;

/// Operands: the first bit of the granule's number.
const TG_SHIFT: u32 = 46;
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

/// Calls `f` with parts that cover so many granules from `at` on, and no others.
pub(super) fn split(granule: Granule, mut at: u64, mut granules: u64, mut f: impl FnMut(Part)) {
    let (tg, bits) = (granule.tg() << TG_SHIFT, granule.shift());
    let mut scale = 0;
    while granules > 0 {
        if granules & 1 != 0 && scale == 0 {
            f(Part::One(at));
            (at, granules) = (at.wrapping_add(1 << bits), granules - 1);
            continue;
        }
        let shift = 5 * scale + 1;
        // At the highest scale there may be more than one instruction names.
        let units = if scale == MOST_SCALE { (granules >> shift).min(32) } else { granules >> shift & 31 };
        if units > 0 {
            f(Part::Range(tg | u64::from(scale) << 44 | (units - 1) << 39 | at >> bits & BASE));
            (at, granules) = (at.wrapping_add(units << (shift + bits)), granules - (units << shift));
        }
        if scale < MOST_SCALE {
            scale += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Granule; 3] = [Granule::K4, Granule::K16, Granule::K64];

    /// The address and granules that a part names.
    fn named(part: Part, granule: Granule) -> (u64, u64) {
        match part {
            Part::One(at) => (at, 1),
            Part::Range(operand) => {
                // Arm ARM: 01 is 4 KiB, 10 is 16 KiB, 11 is 64 KiB.
                let number = match granule {
                    Granule::K4 => 1,
                    Granule::K16 => 2,
                    Granule::K64 => 3,
                };
                assert_eq!(operand >> 46 & 3, number, "{granule:?}");
                let (scale, num) = (operand >> 44 & 3, operand >> 39 & 31);
                ((operand & BASE) << granule.shift(), (num + 1) << (5 * scale + 1))
            }
        }
    }

    #[test]
    fn parts_cover_exactly_the_run() {
        let most = 1u64 << 22;
        let sizes = (1..200).chain((0..23).flat_map(|n| [(1 << n) - 1, 1 << n, (1 << n) + 1]));
        for (granule, granules) in
            sizes.filter(|n| *n > 0 && *n <= most + 1).flat_map(|n| ALL.map(|granule| (granule, n)))
        {
            let (start, mut next, mut parts) = (0x40_0000, 0x40_0000, 0);
            split(granule, start, granules, |part| {
                let (at, n) = named(part, granule);
                assert_eq!(at, next, "{granules} granules");
                next = at + (n << granule.shift());
                parts += 1;
            });
            assert_eq!(next, start + (granules << granule.shift()), "{granules} granules");
            assert!(parts <= 5 + (granules >> 21), "{granules} granules in {parts} parts");
        }
    }
}
