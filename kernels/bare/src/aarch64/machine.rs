//! The library's view of this machine: CPUs whose invalidations reach all others, and the kernel's
//! tree below `TTBR1`.

use ptarmigan::arch::aarch64::{Features, Tlbi};
use ptarmigan::cpu::{NodeId, Pinned};
use ptarmigan::format::Aarch64Upper;
use ptarmigan::frames::{AllocFlags, End, Request, ZoneClass};
use ptarmigan::machine::Machine as _;
use ptarmigan::setup::Setup;
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::{CostModel, Costs};
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::Failed;
use ptarmigan_kernel_base::machine::NoLayer;
use ptarmigan_kernel_base::once_cell::OnceCell;
use ptarmigan_kernel_base::program::Program;

use super::mmu::{self, Leaving};
use crate::cpus::Interrupts;
use crate::machine::{Parts, machine};

pub use ptarmigan::format::Aarch64 as Format;

pub use crate::cpus::asids;

/// The MMUs of the CPUs.
pub type Mmus = Tlbi<Format, Interrupts, Leaving>;
/// Nobody listens to the lists of tables.
pub type Layer = NoLayer;
/// The kernel's tree.
pub type KernelTree = KernelMap<Aarch64Upper, DirectMap>;

/// Forgetting one page is one instruction, and so is a range where the CPU has it. Above 64 pages
/// the whole space is cheaper.
pub const COSTS: CostModel = CostModel::Costs(Costs::new(1, 64));
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

/// Returns the highest ASID.
pub fn highest_asid() -> u16 {
    Features::read().asids
}

/// Makes the MMUs.
pub fn mmus() -> Mmus {
    // SAFETY: 1. All CPUs are alike.
    unsafe { Tlbi::with_features(Interrupts, Leaving, Features::read()) }
}

/// Roots of spaces have no kernel's half.
pub fn with_kernel_half(setup: Setup<'_, DirectMap, Mmus, Program>) -> Setup<'_, DirectMap, Mmus, Program> {
    setup.without_kernel_half()
}

/// Makes the kernel's tree.
///
/// # Safety
///
/// 1. It is called once, while one CPU runs.
pub unsafe fn finish(parts: &Parts) -> Result<Layer, Failed> {
    // SAFETY: 1. The direct map reaches all memory.
    let tree = unsafe { KernelTree::new(parts.frames(), *parts.window(), ROOT)? };
    // SAFETY: 1. The entry is the kernel's own, and its one table a static. 2. There are no ranges.
    // 3. They are.
    unsafe { tree.set(parts.frames(), 0, mmu::boot_entry(0)) };
    // SAFETY: 1. Point 1 of the caller's.
    unsafe { TREE.set(tree) };
    Ok(NoLayer)
}

/// Returns the number of tables of the kernel's tree that stay; its root was taken before all were
/// counted.
pub fn kept() -> usize {
    tree().tables() - 1
}

/// Has this CPU go on with the kernel's tree.
pub fn load_tree() {
    // SAFETY: 1. It is in a static; entry 0, which maps memory and devices, is that of the root
    // that CPUs boot on, and the kernel uses no more than that yet.
    unsafe { mmu::load_kernel_root(tree().root().0) };
}

/// Serves the requests of other CPUs.
pub fn serve(pin: &Pinned<'_>) {
    machine().tlb().serve(pin);
}
