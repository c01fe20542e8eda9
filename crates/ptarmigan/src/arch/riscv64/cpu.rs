//! Executes the instructions.

/// The hart itself. On RISC-V it implements [`Instructions`](super::Instructions), in supervisor
/// mode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu;

#[cfg(target_arch = "riscv64")]
mod native {
    use super::super::instructions::Instructions;
    use super::Cpu;
    use crate::cpu::Pinned;
    use core::arch::asm;

    /// SBI: the extension for fences on other harts, and the call of SBI 0.1 in its place.
    const REMOTE_FENCE: u64 = 0x5246_4e43;
    const LEGACY_REMOTE_FENCE_I: u64 = 5;

    // SAFETY: Each function executes the instruction of its name on the calling hart, which the pin
    // says is its own; `fence_i_everywhere` asks the firmware for the other harts, which waits for
    // them.
    unsafe impl Instructions for Cpu {
        #[inline]
        fn sfence_vma(&self, _: &Pinned<'_>, at: Option<u64>, asid: Option<u16>) {
            let number = asid.map(u64::from).unwrap_or(0);
            // SAFETY: A fence changes no memory; the walks that follow read the current tables. A
            // register that holds 0 stands for number 0, `zero` for all.
            unsafe {
                match (at, asid) {
                    (Some(at), Some(_)) => {
                        asm!("sfence.vma {}, {}", in(reg) at, in(reg) number, options(nostack, preserves_flags));
                    }
                    (Some(at), None) => {
                        asm!("sfence.vma {}, zero", in(reg) at, options(nostack, preserves_flags));
                    }
                    (None, Some(_)) => {
                        asm!("sfence.vma zero, {}", in(reg) number, options(nostack, preserves_flags));
                    }
                    (None, None) => asm!("sfence.vma", options(nostack, preserves_flags)),
                }
            }
        }

        #[inline]
        fn satp(&self, _: &Pinned<'_>) -> u64 {
            let value: u64;
            // SAFETY: Reading the register has no effect.
            unsafe { asm!("csrr {}, satp", out(reg) value, options(nomem, nostack, preserves_flags)) };
            value
        }

        #[inline]
        unsafe fn load_satp(&self, _: &Pinned<'_>, value: u64) {
            // SAFETY: 1. of the caller's: code and stack stay mapped.
            unsafe { asm!("csrw satp, {}", in(reg) value, options(nostack, preserves_flags)) };
        }

        fn can_load(&self, _: &Pinned<'_>, at: *const u8) -> bool {
            let failed: u64;
            // SAFETY: A load changes nothing, and its result is dropped. `stvec` leads behind it
            // for that time alone, with interrupts off: an exception of it, taken in supervisor
            // mode, changes `sstatus`, which is restored, and registers that only a trap reads.
            unsafe {
                asm!(
                    "csrrci {status}, sstatus, 2",
                    "lla {ours}, 2f",
                    "csrrw {theirs}, stvec, {ours}",
                    "li {failed}, 1",
                    "lbu {ours}, 0({at})",
                    "li {failed}, 0",
                    ".balign 4",
                    "2:",
                    "csrw stvec, {theirs}",
                    "csrw sstatus, {status}",
                    status = out(reg) _,
                    ours = out(reg) _,
                    theirs = out(reg) _,
                    failed = out(reg) failed,
                    at = in(reg) at,
                    options(readonly, nostack)
                );
            }
            failed == 0
        }

        /// # Panics
        ///
        /// If the firmware cannot do it: harts would go on to execute old instructions.
        fn fence_i_everywhere(&self, _: &Pinned<'_>) {
            let (mut error, mut all): (i64, u64);
            // SAFETY: Fences change no memory. The data fence has this hart's stores seen by the
            // other harts before the firmware reaches them. A mask base of -1 stands for all harts,
            // and so does an address of a mask that is 0 in the older call. The firmware keeps all
            // registers but a0 and a1.
            unsafe {
                asm!("fence rw, rw", "fence.i", options(nostack, preserves_flags));
                asm!("ecall", inlateout("a0") 0u64 => error, inlateout("a1") u64::MAX => all,
                    in("a2") 0, in("a6") 0, in("a7") REMOTE_FENCE, options(nostack));
                if error != 0 {
                    asm!("ecall", inlateout("a0") 0u64 => error, inlateout("a1") 0u64 => all,
                        in("a6") 0, in("a7") LEGACY_REMOTE_FENCE_I, options(nostack));
                }
            }
            let _ = all;
            assert!(error == 0, "the firmware has no FENCE.I for other harts: error {error}");
        }
    }
}

#[cfg(target_arch = "riscv64")]
pub(super) use numbers::highest_asid;

#[cfg(target_arch = "riscv64")]
mod numbers {
    use core::arch::asm;

    /// The bits of the ASID in `satp`.
    const ASID: u64 = 0xffff << 44;

    /// Finds the highest ASID of the calling hart.
    ///
    /// It writes all ones to the field and reads back the ones that stay.
    pub fn highest_asid() -> u16 {
        let tried: u64;
        // SAFETY: The root stays the one that is loaded, and the first instructions are fetched by
        // it under either number. The last one drops whatever was cached under the number that was
        // tried.
        unsafe {
            asm!(
                "csrr {before}, satp",
                "or {tried}, {before}, {mask}",
                "csrw satp, {tried}",
                "csrr {tried}, satp",
                "csrw satp, {before}",
                "sfence.vma",
                before = out(reg) _,
                tried = out(reg) tried,
                mask = in(reg) ASID,
                options(nostack, preserves_flags)
            );
        }
        ((tried & ASID) >> 44) as u16
    }
}
