//! Names the formats that AArch64 CPUs walk.
use super::features::Granule;
use crate::format::{
    Aarch64, Aarch64K16, Aarch64K16Upper, Aarch64K64, Aarch64K64Upper, Aarch64Upper, Format,
};

/// A format that the MMUs of AArch64 CPUs walk at EL1 and EL0, below `TTBR0_EL1`.
///
/// # Safety
///
/// 1. CPUs whose `TCR_EL1` names the [granule](Self::GRANULE) for both roots, and whose other
///    registers are as the format's documentation says, walk its trees from `TTBR0_EL1` on, and
///    trees of [`Upper`](Self::Upper) from `TTBR1_EL1` on.
pub unsafe trait Tables: Format {
    /// The format of the kernel's tree.
    type Upper: Format;
    /// The size of pages.
    const GRANULE: Granule;
}

// SAFETY: 1. as said there.
unsafe impl Tables for Aarch64 {
    type Upper = Aarch64Upper;
    const GRANULE: Granule = Granule::K4;
}
// SAFETY: 1. as said there.
unsafe impl Tables for Aarch64K16 {
    type Upper = Aarch64K16Upper;
    const GRANULE: Granule = Granule::K16;
}
// SAFETY: 1. as said there.
unsafe impl Tables for Aarch64K64 {
    type Upper = Aarch64K64Upper;
    const GRANULE: Granule = Granule::K64;
}
