//! Executes the instructions.

/// The CPU itself. On x86 it implements [`Instructions`](super::Instructions).
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu;

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
mod native {
    use super::super::instructions::{Instructions, Invpcid};
    use super::Cpu;
    #[cfg(target_arch = "x86_64")]
    use crate::arch::x86_64::Invept;
    use crate::cpu::Pinned;
    use core::arch::asm;

    /// CR4: global pages.
    const PGE: usize = 1 << 7;

    impl Cpu {
        /// Executes `INVEPT`.
        ///
        /// # Safety
        ///
        /// 1. The CPU is in VMX operation, and has the instruction with types 1 and 2.
        #[cfg(target_arch = "x86_64")]
        pub unsafe fn invept(&self, _: &Pinned<'_>, what: Invept) {
            let (kind, operand) = match what {
                Invept::Context(pointer) => (1usize, [pointer, 0]),
                Invept::All => (2, [0, 0]),
            };
            // SAFETY: 1. of the caller's: it does not fault. It changes no memory, and reads its
            // operand.
            unsafe { asm!("invept {}, [{}]", in(reg) kind, in(reg) &operand, options(nostack)) };
        }
    }

    // SAFETY: Each function executes the instruction of its name on the calling CPU, which the pin
    // says is its own.
    unsafe impl Instructions for Cpu {
        #[inline]
        fn invlpg(&self, _: &Pinned<'_>, at: u64) {
            // SAFETY: It changes no memory; the walk that follows reads the current tables.
            unsafe { asm!("invlpg [{}]", in(reg) at as usize, options(nostack, preserves_flags)) };
        }

        #[inline]
        fn invpcid(&self, _: &Pinned<'_>, what: Invpcid) {
            let (kind, operand) = match what {
                Invpcid::Page { pcid, at } => (0usize, [u64::from(pcid), at]),
                Invpcid::Context(pcid) => (1, [u64::from(pcid), 0]),
                Invpcid::All => (2, [0, 0]),
                Invpcid::AllButGlobal => (3, [0, 0]),
            };
            // SAFETY: As above; it reads its operand.
            unsafe { asm!("invpcid {}, [{}]", in(reg) kind, in(reg) &operand, options(nostack)) };
        }

        #[inline]
        fn cr3(&self, _: &Pinned<'_>) -> u64 {
            let value: usize;
            // SAFETY: Reading the register has no effect.
            unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) };
            value as u64
        }

        #[inline]
        unsafe fn load_cr3(&self, _: &Pinned<'_>, value: u64) {
            // SAFETY: 1. of the caller's: code and stack stay mapped.
            unsafe { asm!("mov cr3, {}", in(reg) value as usize, options(nostack, preserves_flags)) };
        }

        fn cr4(&self, _: &Pinned<'_>) -> u64 {
            let value: usize;
            // SAFETY: Reading the register has no effect.
            unsafe { asm!("mov {}, cr4", out(reg) value, options(nomem, nostack, preserves_flags)) };
            value as u64
        }

        fn toggle_pge(&self, _: &Pinned<'_>) {
            // SAFETY: The bit decides whether translations outlive loads of CR3, and changes no
            // mapping. It is as before at the end. An interrupt in between that reads CR4 finds it
            // turned over, and leaves it so.
            unsafe {
                asm!(
                    "mov {before}, cr4",
                    "mov {other}, {before}",
                    "xor {other}, {pge}",
                    "mov cr4, {other}",
                    "mov cr4, {before}",
                    before = out(reg) _,
                    other = out(reg) _,
                    pge = const PGE,
                    options(nostack)
                );
            }
        }
    }
}
