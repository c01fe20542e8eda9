//! The library's view of this machine: harts that invalidate for themselves and interrupt each
//! other.

use ptarmigan::addr::VirtAddr;
use ptarmigan::arch::riscv64::SfenceVma;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Access;
use ptarmigan::machine::Machine as _;
use ptarmigan::tlb::{Runs, TlbRefusal};

use super::mmu::{self, Announcing};
use super::negative_controls::{NegativeControl, leaves_out};
use crate::cpus::{ASIDS, BoardCpus, Interrupts};
use crate::machine::{Board, BoardMachine, Plan, machine, on, pin};

pub use Harts as Mmus;

pub use super::mmu::Format;

/// The MMUs of the harts.
pub type Harts = SfenceVma<Format, Interrupts, Announcing>;

impl BoardMachine for Board {
    fn mmus() -> Mmus {
        // SAFETY: 1. All harts are alike.
        unsafe { SfenceVma::with_asids(Interrupts, Announcing, Self::highest_asid()) }
    }

    fn asids() -> u16 {
        if leaves_out(NegativeControl::Asids) { 0 } else { ASIDS.min(Self::highest_asid()) }
    }

    /// The root that the kernel boots on has one table, a static: `kernel_half` changes pages, not
    /// tables.
    fn with_kernel_half(plan: Plan<'_>) -> Plan<'_> {
        plan.kernel_root(mmu::kernel_root())
    }
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
