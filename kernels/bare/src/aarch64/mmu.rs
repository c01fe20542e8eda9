//! The root of the kernel's tree, and the instructions of address translation.

use core::arch::asm;

use ptarmigan::arch::aarch64::{Barrier, Cpu, Instructions, Op};
use ptarmigan::cpu::Pinned;
use ptarmigan_kernel_base::direct::{direct, physical};

use super::negative_controls::{NegativeControl, leaves_out};

/// Returns entry `index` of the root that the kernel boots on.
pub fn boot_entry(index: usize) -> u64 {
    unsafe extern "C" {
        /// Defined by `boot_tables.s`.
        static boot_root: [u64; 512];
    }
    let root: *const u64 = direct(physical(&raw const boot_root));
    // SAFETY: the table is a static of 512 entries, which is not written to; the index is cut to
    // size.
    unsafe { root.add(index % 512).read() }
}

/// Has this CPU find addresses of the kernel's half by the tree at `root`.
///
/// # Safety
///
/// 1. The tree must stay for good, and map all that the kernel uses to where it is mapped now.
pub unsafe fn load_kernel_root(root: u64) {
    // SAFETY: point 1 of the caller's. What the CPU knows of the tree before is forgotten.
    unsafe {
        asm!("dsb ishst", "msr ttbr1_el1, {}", "isb", "tlbi vmalle1", "dsb nsh", "isb", in(reg) root,
            options(nostack, preserves_flags));
    }
}

/// Has this CPU fetch the instructions that are in memory now.
pub fn instructions_changed() {
    // SAFETY: it changes no memory.
    unsafe { asm!("ic iallu", "dsb nsh", "isb", options(nostack, preserves_flags)) };
}

/// The instructions of a CPU; in runs that do so on purpose, some are left out.
pub struct Leaving;

/// The instruction that does the same on the calling CPU alone, or more.
fn alone(op: Op) -> Op {
    match op {
        Op::Vale1is => Op::Vale1,
        Op::Aside1is => Op::Aside1,
        _ => Op::Vmalle1,
    }
}

// SAFETY: Each function has the CPU execute the instruction. A run that leaves it out, or has
// another executed, does so on purpose, to show that the checks detect stale entries.
unsafe impl Instructions for Leaving {
    fn tlbi(&self, pin: &Pinned<'_>, op: Op, operand: u64) {
        let (part, is_shared) = match op {
            Op::Vae1is | Op::Vale1is | Op::Rvae1is | Op::Rvale1is | Op::Aside1is => {
                (NegativeControl::Flush, true)
            }
            Op::Vaae1is | Op::Rvaae1is | Op::Vmalle1is => (NegativeControl::KernelFlush, true),
            Op::Vale1 | Op::Vaale1 | Op::Aside1 | Op::Vmalle1 => (NegativeControl::Load, false),
        };
        if leaves_out(part) {
            return;
        }
        Cpu.tlbi(pin, if is_shared && leaves_out(NegativeControl::Remote) { alone(op) } else { op }, operand);
    }

    fn barrier(&self, pin: &Pinned<'_>, barrier: Barrier) {
        Cpu.barrier(pin, barrier);
    }

    fn ttbr0(&self, pin: &Pinned<'_>) -> u64 {
        Cpu.ttbr0(pin)
    }

    unsafe fn load_ttbr0(&self, pin: &Pinned<'_>, value: u64) {
        // SAFETY: 1. of the caller's.
        unsafe { Cpu.load_ttbr0(pin, value) };
    }

    fn ctr(&self, pin: &Pinned<'_>) -> u64 {
        Cpu.ctr(pin)
    }

    unsafe fn dc_cvau(&self, pin: &Pinned<'_>, at: *const u8) {
        // SAFETY: 1. of the caller's.
        unsafe { Cpu.dc_cvau(pin, at) };
    }

    fn ic_ialluis(&self, pin: &Pinned<'_>) {
        Cpu.ic_ialluis(pin);
    }
}
