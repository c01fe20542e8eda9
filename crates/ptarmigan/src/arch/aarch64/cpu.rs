//! Executes the instructions.

/// The CPU itself. On AArch64 it implements [`Instructions`](super::Instructions), at EL1, and
/// [`GuestInstructions`](super::GuestInstructions), at EL2.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu;

#[cfg(target_arch = "aarch64")]
mod native {
    use super::super::instructions::{Barrier, GuestInstructions, GuestOp, Instructions, Op};
    use super::Cpu;
    use crate::cpu::Pinned;
    use core::arch::asm;

    /// Executes one `TLBI` with an operand.
    macro_rules! tlbi {
        ($text:literal, $operand:expr) => {
            // SAFETY: It changes no memory; the walks that follow read the current tables.
            unsafe { asm!($text, in(reg) $operand, options(nostack, preserves_flags)) }
        };
    }

    /// Executes one instruction without operands.
    macro_rules! plain {
        ($text:literal) => {
            // SAFETY: It changes no memory and no register.
            unsafe { asm!($text, options(nostack, preserves_flags)) }
        };
    }

    // SAFETY: Each function executes the instruction of its name on the calling CPU, which the pin
    // says is its own. Those on ranges are written as `SYS`, their encoding, so that an assembler
    // for Armv8.0 takes them.
    unsafe impl Instructions for Cpu {
        #[inline]
        fn tlbi(&self, _: &Pinned<'_>, op: Op, operand: u64) {
            match op {
                Op::Vae1is => tlbi!("tlbi vae1is, {}", operand),
                Op::Vale1is => tlbi!("tlbi vale1is, {}", operand),
                Op::Vaae1is => tlbi!("tlbi vaae1is, {}", operand),
                Op::Rvae1is => tlbi!("sys #0, c8, c2, #1, {}", operand),
                Op::Rvale1is => tlbi!("sys #0, c8, c2, #5, {}", operand),
                Op::Rvaae1is => tlbi!("sys #0, c8, c2, #3, {}", operand),
                Op::Aside1is => tlbi!("tlbi aside1is, {}", operand),
                Op::Vmalle1is => plain!("tlbi vmalle1is"),
                Op::Vale1 => tlbi!("tlbi vale1, {}", operand),
                Op::Vaale1 => tlbi!("tlbi vaale1, {}", operand),
                Op::Aside1 => tlbi!("tlbi aside1, {}", operand),
                Op::Vmalle1 => plain!("tlbi vmalle1"),
            }
        }

        #[inline]
        fn barrier(&self, _: &Pinned<'_>, barrier: Barrier) {
            match barrier {
                Barrier::DsbIshst => plain!("dsb ishst"),
                Barrier::DsbIsh => plain!("dsb ish"),
                Barrier::DsbNsh => plain!("dsb nsh"),
                Barrier::Isb => plain!("isb"),
            }
        }

        #[inline]
        fn ttbr0(&self, _: &Pinned<'_>) -> u64 {
            let value: u64;
            // SAFETY: Reading the register has no effect.
            unsafe { asm!("mrs {}, ttbr0_el1", out(reg) value, options(nomem, nostack, preserves_flags)) };
            value
        }

        #[inline]
        unsafe fn load_ttbr0(&self, _: &Pinned<'_>, value: u64) {
            // SAFETY: 1. of the caller's. The kernel lies below TTBR1.
            unsafe { asm!("msr ttbr0_el1, {}", in(reg) value, options(nostack, preserves_flags)) };
        }

        #[inline]
        fn ctr(&self, _: &Pinned<'_>) -> u64 {
            let value: u64;
            // SAFETY: Reading the register has no effect.
            unsafe { asm!("mrs {}, ctr_el0", out(reg) value, options(nomem, nostack, preserves_flags)) };
            value
        }

        #[inline]
        unsafe fn dc_cvau(&self, _: &Pinned<'_>, at: *const u8) {
            // SAFETY: 1. of the caller's: it does not fault.
            unsafe { asm!("dc cvau, {}", in(reg) at, options(nostack, preserves_flags)) };
        }

        #[inline]
        fn ic_ialluis(&self, _: &Pinned<'_>) {
            plain!("ic ialluis");
        }
    }

    // SAFETY: As above.
    unsafe impl GuestInstructions for Cpu {
        #[inline]
        fn tlbi_guest(&self, _: &Pinned<'_>, op: GuestOp, operand: u64) {
            match op {
                GuestOp::Ipas2e1is => tlbi!("tlbi ipas2e1is, {}", operand),
                GuestOp::Ipas2le1is => tlbi!("tlbi ipas2le1is, {}", operand),
                GuestOp::Ripas2e1is => tlbi!("sys #4, c8, c0, #2, {}", operand),
                GuestOp::Ripas2le1is => tlbi!("sys #4, c8, c0, #6, {}", operand),
                GuestOp::Vmalle1is => plain!("tlbi vmalle1is"),
                GuestOp::Vmalls12e1is => plain!("tlbi vmalls12e1is"),
                GuestOp::Alle1is => plain!("tlbi alle1is"),
                GuestOp::Ipas2le1 => tlbi!("tlbi ipas2le1, {}", operand),
                GuestOp::Vmalle1 => plain!("tlbi vmalle1"),
                GuestOp::Vmalls12e1 => plain!("tlbi vmalls12e1"),
                GuestOp::Alle1 => plain!("tlbi alle1"),
            }
        }

        #[inline]
        fn vttbr(&self, _: &Pinned<'_>) -> u64 {
            let value: u64;
            // SAFETY: Reading the register has no effect.
            unsafe { asm!("mrs {}, vttbr_el2", out(reg) value, options(nomem, nostack, preserves_flags)) };
            value
        }

        #[inline]
        unsafe fn load_vttbr(&self, _: &Pinned<'_>, value: u64) {
            // SAFETY: 1. of the caller's. The hypervisor is translated by another register.
            unsafe { asm!("msr vttbr_el2, {}", in(reg) value, options(nostack, preserves_flags)) };
        }
    }
}
