//! Implements [`Mmu`](crate::tlb::Mmu) for three architectures.
//!
//! | architecture | `Mmu` | made of |
//! |---|---|---|
//! | x86-64 (and 32-bit x86) | [`x86_64::X86Mmu`] | `INVLPG`, `INVPCID`, loads of CR3, CR4.PGE |
//! | RISC-V | [`riscv64::SfenceVma`] | `SFENCE.VMA`, `satp`, `FENCE.I` |
//! | AArch64 | [`aarch64::Tlbi`] | `TLBI`, `DSB`, `ISB`, `TTBR0_EL1`, `DC CVAU`, `IC IALLUIS` |
//! | AArch64, guests | [`aarch64::Stage2`] | `TLBI IPAS2E1IS` and its neighbours, `VTTBR_EL2` |
//! | Intel, guests | [`x86_64::EptMmu`] | `INVEPT`, the EPT pointer |
//! | AMD, guests | [`x86_64::NptMmu`] | `TLB_CONTROL` and `N_CR3` of a VMCB |
//!
//! # Layers
//!
//! Each has two layers. The logic turns requests into instructions; it compiles on every host. A
//! trait `Instructions` has the instructions themselves, and a unit type `Cpu` implements it on
//! that target alone. A kernel puts a type of its own in place of `Cpu` to count instructions, or
//! to leave some out for a test. A test puts in one that tells a sanitizer what each would have
//! done.
//!
//! # Interrupts
//!
//! Each of them passes [`Ipi`] on to a type of the kernel's, its board. A machine of one CPU has
//! [`NoIpi`].
//!
//! # Formats
//!
//! Each is of one [format](crate::tlb::Mmu::FORMATS), the one that its CPUs are set up for: a type
//! parameter where an architecture has several, one of [`x86_64::Tables`], [`riscv64::Tables`] or
//! [`aarch64::Tables`]. Trees and spaces of another format do not compile.
//!
//! # Roots of the kernel
//!
//! A CPU that leaves a space loads a root without entries of programs. The `Mmu` is told of it by
//! [`set_kernel_root`](crate::tlb::Mmu::set_kernel_root), or, by a kernel that puts its machine
//! together by hand, when it is made (`with_kernel_root`). It panics if a CPU leaves a space and
//! there is none.
/// Implements the parts that all MMUs share, for one with the fields `board`, `instructions` and
/// `kernel_root`. `$format` and `$tables` are the format of its tables and the trait of it, where
/// there are several. `$cpu` is the trait of the instructions, `$root` the condition of safety of
/// `with_kernel_root`.
macro_rules! on_a_board {
    ($mmu:ident $(<$format:ident: $tables:ident>)? of $cpu:ident, $($root:literal),+) => {
        impl<$($format,)? B, I> $mmu<$($format,)? B, I> {
            /// Says which root CPUs load when they leave a space, where no set-up does.
            ///
            /// # Safety
            ///
            $(#[doc = $root])+
            #[must_use]
            pub const unsafe fn with_kernel_root(mut self, at: $crate::addr::PhysAddr) -> Self {
                self.kernel_root = $crate::arch::kernel_root::KernelRootCell::holding(at);
                self
            }

            /// Returns the sender of interrupts.
            pub const fn board(&self) -> &B {
                &self.board
            }

            /// Returns the instructions.
            pub const fn instructions(&self) -> &I {
                &self.instructions
            }
        }

        impl<$($format: $tables,)? B: $crate::tlb::Ipi, I: $cpu> $crate::tlb::Ipi
            for $mmu<$($format,)? B, I>
        {
            const RESEND_AFTER: u32 = B::RESEND_AFTER;

            #[inline]
            fn send(&self, pin: &Pinned<'_>, cpus: &$crate::cpu::CpuSet, serve: &dyn Fn(&Pinned<'_>)) {
                self.board.send(pin, cpus, serve);
            }

            #[inline]
            fn wait(&self, pin: &Pinned<'_>, turn: u32) {
                self.board.wait(pin, turn);
            }
        }
    };
}
pub mod aarch64;
mod kernel_root;
pub mod riscv64;
pub mod x86_64;

use crate::cpu::{CpuSet, Pinned};
use crate::tlb::Ipi;

/// The interrupts of a machine of one CPU: there is no other to send one to.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoIpi;

impl Ipi for NoIpi {
    #[inline]
    fn send(&self, _: &Pinned<'_>, _: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {}
}
