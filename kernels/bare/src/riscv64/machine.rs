//! The library's view of this machine: harts that invalidate for themselves and interrupt each
//! other.

use ptarmigan::addr::VirtAddr;
use ptarmigan::arch::riscv64::SfenceVma;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Access;
use ptarmigan::machine::Machine as _;
use ptarmigan::setup::Setup;
use ptarmigan::tlb::{CostModel, Costs, Runs, TlbRefusal};
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::Failed;
use ptarmigan_kernel_base::program::Program;
use ptarmigan_kernel_base::riscv::irq;
use ptarmigan_kernel_mailbox::Announced;

use super::mmu::{self, Announcing};
use crate::cpus::Interrupts;
use crate::machine::{Parts, machine, on, pin};

pub use super::mmu::{Format, highest_asid};
pub use crate::cpus::asids;

/// The MMUs of the harts.
pub type Mmus = SfenceVma<Format, Interrupts, Announcing>;
/// A recorder is told of the tables.
pub type Layer = Announced<'static, Format, irq::Masked>;

/// Forgetting one page is one instruction. No instruction covers a range, so a run of pages has no
/// cost of its own. Above 64 pages the whole space is cheaper, as Linux has it on RISC-V.
pub const COSTS: CostModel = CostModel::Costs(Costs::new(1, 64));

/// Makes the MMUs.
pub fn mmus() -> Mmus {
    // SAFETY: 1. All harts are alike.
    unsafe { SfenceVma::with_asids(Interrupts, Announcing, highest_asid()) }
}

/// Roots of spaces have the kernel's half of the root that the kernel boots on. Its one table is a
/// static, and `kernel_half` changes pages, not tables.
pub fn with_kernel_half(setup: Setup<'_, DirectMap, Mmus, Program>) -> Setup<'_, DirectMap, Mmus, Program> {
    setup.kernel_root(mmu::kernel_root())
}

/// Makes the layer around the lists of tables.
///
/// # Safety
///
/// 1. It is called once, while one hart runs.
pub unsafe fn finish(parts: &'static Parts) -> Result<Layer, Failed> {
    Ok(Announced::new(parts.frames(), irq::Masked::new))
}

/// Returns the number of tables of the kernel's half that stay.
pub fn kept() -> usize {
    0
}

/// Serves the requests of other harts.
pub fn serve(pin: &Pinned<'_>) {
    mmu::set_answering(pin, true);
    machine().tlb().serve(pin);
    mmu::set_answering(pin, false);
}

/// Serves a fault of the kernel on its own half; returns whether the access is allowed.
pub fn serve_fault(at: u64, access: Access) -> bool {
    let pin = pin();
    machine().kernel_map().serve_fault(on(&pin), VirtAddr(at), access)
}

/// Has all harts forget pages of the kernel's half.
pub fn flush_kernel(pin: &Pinned<'_>, stale: &Runs) -> Result<(), TlbRefusal> {
    machine().tlb().flush_kernel(pin, stale)
}
