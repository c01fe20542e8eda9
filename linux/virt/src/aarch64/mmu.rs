//! The MMUs of the CPUs: instructions that are counted, and left out in runs that do so on purpose.

use ptarmigan::arch::aarch64::{Barrier, Cpu, Features, Instructions, Op, Tlbi};
use ptarmigan::cpu::Pinned;
use ptarmigan::setup::Setup;
use ptarmigan::tlb::{CostModel, Costs};
use ptarmigan::window::DirectMap;
use ptarmigan_kernel::counts::Count;

use crate::KERNEL;
use crate::arch::Format;
use crate::virt::Interrupts;

/// TLBs, and interrupts between CPUs.
pub type Hardware = Tlbi<Format, Interrupts, Counted>;

/// Forgetting one page is one instruction, and so is a range where the CPU has it. Above 64 pages
/// the whole space is cheaper.
pub const COSTS: CostModel = CostModel::Costs(Costs::new(1, 64));

/// Makes them.
pub fn hardware() -> Hardware {
    // SAFETY: 1. All CPUs are alike.
    unsafe { Tlbi::with_features(Interrupts, Counted, Features::read()) }
}

/// Returns the highest ASID of the CPUs.
pub fn asids() -> u16 {
    Features::read().asids
}

/// Says that trees of spaces have no kernel's half: the kernel has a tree of its own.
pub fn kernel_half(setup: Setup<'_, DirectMap, Hardware>) -> Setup<'_, DirectMap, Hardware> {
    setup.without_kernel_half()
}

/// The instructions of a CPU.
pub struct Counted;

// SAFETY: Each function has the CPU execute the instruction, unless the run leaves flushes out:
// then no instruction forgets, and such a run shows the effect.
unsafe impl Instructions for Counted {
    fn tlbi(&self, pin: &Pinned<'_>, op: Op, operand: u64) {
        if !KERNEL.forgets() {
            return;
        }
        if matches!(op, Op::Vae1is | Op::Vale1is | Op::Vaae1is | Op::Vale1 | Op::Vaale1) {
            KERNEL.count(Count::PageInvalidations);
        }
        Cpu.tlbi(pin, op, operand);
    }

    #[inline]
    fn barrier(&self, pin: &Pinned<'_>, barrier: Barrier) {
        Cpu.barrier(pin, barrier);
    }

    #[inline]
    fn ttbr0(&self, pin: &Pinned<'_>) -> u64 {
        Cpu.ttbr0(pin)
    }

    #[inline]
    unsafe fn load_ttbr0(&self, pin: &Pinned<'_>, value: u64) {
        KERNEL.count(Count::RootLoads);
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
