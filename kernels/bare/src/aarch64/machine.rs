//! The library's view of this machine: CPUs whose invalidations reach all others, and the kernel's
//! tree below `TTBR1`.

use ptarmigan::arch::aarch64::{Features, Tlbi};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::Aarch64Upper;
use ptarmigan::frames::{AllocFlags, End, Request, ZoneClass};
use ptarmigan::machine::Machine as _;
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::Failed;
use ptarmigan_kernel_base::once_cell::OnceCell;

use super::mmu::{self, Leaving};
use super::negative_controls::{NegativeControl, leaves_out};
use crate::cpus::{ASIDS, BoardCpus, Interrupts};
use crate::machine::{Board, BoardMachine, Parts, Plan};

pub use ptarmigan::format::Aarch64 as Format;

/// The MMUs of the CPUs.
pub type Mmus = Tlbi<Format, Interrupts, Leaving>;
/// The kernel's tree.
pub type KernelTree = KernelMap<Aarch64Upper, DirectMap>;

/// The frame of the kernel's root.
const ROOT: Request = Request {
    node: NodeId(0),
    order: 0,
    zero: true,
    class: ZoneClass::Low,
    end: End::Low,
    flags: AllocFlags::NORMAL,
};

static TREE: OnceCell<KernelTree> = OnceCell::new();

/// The kernel's tree.
pub fn tree() -> &'static KernelTree {
    TREE.get()
}

impl BoardMachine for Board {
    fn mmus() -> Mmus {
        // SAFETY: 1. All CPUs are alike.
        unsafe { Tlbi::with_features(Interrupts, Leaving, Features::read()) }
    }

    fn asids() -> u16 {
        if leaves_out(NegativeControl::Asids) { 0 } else { ASIDS.min(Self::highest_asid()) }
    }

    fn with_kernel_half(plan: Plan<'_>) -> Plan<'_> {
        plan.without_kernel_half()
    }

    unsafe fn make_trees(parts: &'static Parts) -> Result<(), Failed> {
        // SAFETY: 1. The direct map reaches all memory.
        let tree = unsafe { KernelTree::new(parts.frames(), *parts.window(), ROOT)? };
        // SAFETY: 1. The entry is the kernel's own, and its one table a static. 2. There are no
        // ranges. 3. They are.
        unsafe { tree.set(parts.frames(), 0, mmu::boot_entry(0)) };
        // SAFETY: 1. Point 1 of the caller's.
        unsafe { TREE.set(tree) };
        Ok(())
    }

    /// The root of the kernel's tree was taken before all were counted.
    fn kept() -> usize {
        tree().tables() - 1
    }
}

/// Has this CPU go on with the kernel's tree.
pub fn load_tree() {
    // SAFETY: 1. It is in a static; entry 0, which maps memory and devices, is that of the root
    // that CPUs boot on, and the kernel uses no more than that yet.
    unsafe { mmu::load_kernel_root(tree().root().0) };
}
