//! The features of a CPU that decide about instructions.

/// The features that decide which instructions are executed. They are the same on all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// The highest ASID: 255, or 65535 where CPUs have 16 bits and `TCR_EL1.AS` says so.
    pub asids: u16,
    /// `FEAT_TLBIRANGE`: `TLBI` takes ranges.
    pub ranges: bool,
    /// `FEAT_TTL`: `TLBI` takes the level of the entry, and need not look for others.
    pub ttl: bool,
    /// The granule that `TCR_EL1.TG0` and `TG1` name. A range that names another one may be ignored
    /// (Arm ARM, "TLB range maintenance instructions").
    pub granule: Granule,
}

/// The size of pages and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granule {
    /// 4 KiB: [`Aarch64`](crate::format::Aarch64).
    K4,
    /// 16 KiB: [`Aarch64K16`](crate::format::Aarch64K16).
    K16,
    /// 64 KiB: [`Aarch64K64`](crate::format::Aarch64K64).
    K64,
}

impl Granule {
    /// Returns the binary logarithm of its bytes.
    pub const fn shift(self) -> u32 {
        match self {
            Granule::K4 => 12,
            Granule::K16 => 14,
            Granule::K64 => 16,
        }
    }

    /// Returns the number that operands of `TLBI` have for it.
    pub const fn tg(self) -> u64 {
        match self {
            Granule::K4 => 1,
            Granule::K16 => 2,
            Granule::K64 => 3,
        }
    }
}

impl Features {
    /// The features that every AArch64 CPU has: 8 bits of ASIDs. The granule is 4 KiB; without
    /// ranges and levels another one needs no other instructions.
    pub const ARMV8_0: Features = Features { asids: 0xff, ranges: false, ttl: false, granule: Granule::K4 };

    /// Reads the ID registers of the calling CPU, and `TCR_EL1`.
    #[cfg(target_arch = "aarch64")]
    pub fn read() -> Self {
        read::features()
    }
}

#[cfg(target_arch = "aarch64")]
mod read {
    use super::{Features, Granule};
    use core::arch::asm;

    /// Reads the ID registers and `TCR_EL1`.
    pub fn features() -> Features {
        let (memory, memory2, isa, tcr): (u64, u64, u64, u64);
        // SAFETY: Reading the registers has no effect.
        unsafe {
            asm!("mrs {}, id_aa64mmfr0_el1", "mrs {}, id_aa64mmfr2_el1", "mrs {}, id_aa64isar0_el1",
                "mrs {}, tcr_el1", out(reg) memory, out(reg) memory2, out(reg) isa, out(reg) tcr,
                options(nomem, nostack, preserves_flags));
        }
        // ASIDBits and TCR_EL1.AS; TLB: 2 says ranges; TTL; TCR_EL1.TG0.
        let wide = memory >> 4 & 0xf == 2 && tcr >> 36 & 1 != 0;
        Features {
            asids: if wide { u16::MAX } else { 0xff },
            ranges: isa >> 56 & 0xf >= 2,
            ttl: memory2 >> 48 & 0xf >= 1,
            granule: match tcr >> 14 & 3 {
                0 => Granule::K4,
                1 => Granule::K64,
                _ => Granule::K16,
            },
        }
    }
}
