//! The features of a CPU that decide about instructions.

/// The features that decide which instructions are executed. They are the same on all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// The highest ASID: 255, or 65535 where CPUs have 16 bits and `TCR_EL1.AS` says so.
    pub asids: u16,
    /// `FEAT_TLBIRANGE`: `TLBI` takes ranges.
    pub ranges: bool,
}

impl Features {
    /// The features that every AArch64 CPU has: 8 bits of ASIDs.
    pub const ARMV8_0: Features = Features { asids: 0xff, ranges: false };

    /// Reads the ID registers of the calling CPU, and `TCR_EL1`.
    #[cfg(target_arch = "aarch64")]
    pub fn read() -> Self {
        read::features()
    }
}

#[cfg(target_arch = "aarch64")]
mod read {
    use super::Features;
    use core::arch::asm;

    /// Reads the ID registers and `TCR_EL1`.
    pub fn features() -> Features {
        let (memory, isa, tcr): (u64, u64, u64);
        // SAFETY: Reading the registers has no effect.
        unsafe {
            asm!("mrs {}, id_aa64mmfr0_el1", "mrs {}, id_aa64isar0_el1", "mrs {}, tcr_el1",
                out(reg) memory, out(reg) isa, out(reg) tcr, options(nomem, nostack, preserves_flags));
        }
        // ASIDBits and TCR_EL1.AS; TLB: 2 says ranges.
        let wide = memory >> 4 & 0xf == 2 && tcr >> 36 & 1 != 0;
        Features { asids: if wide { u16::MAX } else { 0xff }, ranges: isa >> 56 & 0xf >= 2 }
    }
}
