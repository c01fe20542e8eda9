//! The MMUs of the harts: instructions that are counted, and left out in runs that do so on
//! purpose.

use ptarmigan::arch::NoIpi;
use ptarmigan::arch::riscv64::{Cpu, Instructions, SfenceVma};
use ptarmigan::cpu::Pinned;
use ptarmigan::setup::Setup;
use ptarmigan::tlb::{CostModel, Costs};
use ptarmigan::window::DirectMap;
use ptarmigan_kernel::counts::Count;
use ptarmigan_kernel_base::direct::physical;
use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::riscv::sbi;

use crate::KERNEL;
use crate::arch::Format;
use crate::virt::Interrupts;

/// TLBs, and interrupts between harts.
pub type Hardware = SfenceVma<Format, Interrupts, Counted>;

/// Forgetting one page is one instruction. No instruction covers a range, so a run of pages has no
/// cost of its own. Above 64 pages the whole space is cheaper, as Linux has it on RISC-V.
pub const COSTS: CostModel = CostModel::Costs(Costs::new(1, 64));

/// Makes them.
pub fn hardware() -> Hardware {
    // SAFETY: 1. All harts are alike.
    unsafe { SfenceVma::with_asids(Interrupts, Counted, asids()) }
}

/// Returns the highest ASID of the harts.
pub fn asids() -> u16 {
    SfenceVma::<Format, _>::detect(NoIpi).asids()
}

/// Gives trees of spaces the kernel's half of the root that the harts booted on, whose one table is
/// a static.
pub fn kernel_half(setup: Setup<'_, DirectMap, Hardware>) -> Setup<'_, DirectMap, Hardware> {
    unsafe extern "C" {
        /// Defined by the assembly.
        static kernel_root: [u64; 512];
    }
    setup.kernel_root(physical(&raw const kernel_root))
}

/// The instructions of a hart.
pub struct Counted;

// SAFETY: Each function has the hart execute the instruction, or the firmware have all harts
// execute it, unless the run leaves flushes out: then no instruction forgets, and such a run shows
// the effect.
unsafe impl Instructions for Counted {
    fn sfence_vma(&self, pin: &Pinned<'_>, at: Option<u64>, asid: Option<u16>) {
        if !KERNEL.forgets() {
            return;
        }
        if at.is_some() {
            KERNEL.count(Count::PageInvalidations);
        }
        Cpu.sfence_vma(pin, at, asid);
    }

    #[inline]
    fn satp(&self, pin: &Pinned<'_>) -> u64 {
        Cpu.satp(pin)
    }

    #[inline]
    unsafe fn load_satp(&self, pin: &Pinned<'_>, value: u64) {
        KERNEL.count(Count::RootLoads);
        // SAFETY: 1. of the caller's.
        unsafe { Cpu.load_satp(pin, value) };
    }

    fn can_load(&self, pin: &Pinned<'_>, at: *const u8) -> bool {
        Cpu.can_load(pin, at)
    }

    fn fence_i_everywhere(&self, _: &Pinned<'_>) {
        if let Err(e) = sbi::fence_instructions() {
            fail(format_args!("no fence of instructions on other harts: {e:?}"));
        }
    }
}
