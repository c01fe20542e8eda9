//! The features of a CPU that decide about instructions.

/// The features that decide which instructions are executed. They are the same on all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// CR4.PGE: the kernel's half may have global pages.
    pub global: bool,
    /// CR4.PCIDE: TLBs tell spaces apart by numbers.
    pub pcid: bool,
    /// The CPUs have `INVPCID`.
    pub invpcid: bool,
    /// Every page of the kernel's half that is ever changed or taken away is global
    /// ([`Attr::GLOBAL`](crate::format::Attr::GLOBAL)), so that it is known under no PCID.
    pub global_kernel: bool,
}

impl Features {
    /// No feature: an 80486, or a kernel that turns none on.
    pub const NONE: Features = Features { global: false, pcid: false, invpcid: false, global_kernel: false };
    /// The features that every x86-64 CPU has. A kernel that has set CR4.PCIDE works with them as
    /// well; it uses one PCID then.
    pub const X86_64: Features = Features { global: true, ..Features::NONE };

    /// Reads CPUID and CR4 of the calling CPU. [`global_kernel`](Self::global_kernel) is not known
    /// from them, and false.
    #[cfg(target_arch = "x86_64")]
    pub fn read() -> Self {
        read::features()
    }
}

#[cfg(target_arch = "x86_64")]
mod read {
    use super::Features;
    use core::arch::asm;
    use core::arch::x86_64::__cpuid_count;

    /// CR4: global pages, PCIDs.
    const PGE: u64 = 1 << 7;
    const PCIDE: u64 = 1 << 17;
    /// CPUID leaf 7, EBX: `INVPCID`.
    const INVPCID: u32 = 1 << 10;

    /// Reads CPUID and CR4.
    pub fn features() -> Features {
        let cr4: u64;
        // SAFETY: Reading the register has no effect.
        unsafe { asm!("mov {}, cr4", out(reg) cr4, options(nomem, nostack, preserves_flags)) };
        // Older compilers declare it unsafe.
        #[allow(unused_unsafe)]
        let cpuid = |leaf| {
            // SAFETY: Every CPU with 64 bits has CPUID.
            unsafe { __cpuid_count(leaf, 0) }
        };
        let invpcid = cpuid(0).eax >= 7 && cpuid(7).ebx & INVPCID != 0;
        Features { global: cr4 & PGE != 0, pcid: cr4 & PCIDE != 0, invpcid, global_kernel: false }
    }
}
