//! The library's view of a machine: memory in the direct map, the program as an object, and the
//! order in which the parts are set up.

use ptarmigan::cpu::{CpuId, NodeId, Pinned};
use ptarmigan::frames::MemoryRun;
use ptarmigan::machine::{Machine as _, On};
use ptarmigan::setup::{Kernel, Setup};
use ptarmigan::tlb::{CostModel, Costs};
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::direct::{DIRECT_MAP_LIMIT, direct};
use ptarmigan_kernel_base::once_cell::OnceCell;
use ptarmigan_kernel_base::program::Program;
use ptarmigan_kernel_base::tasks::Port;
use ptarmigan_kernel_base::{Failed, fail, machine};

use crate::arch::machine::{Format, Mmus};
use crate::cpus::{TableLayer, table_layer};

/// All parts together.
pub type Machine = machine::Machine<Format, Mmus, Program, TableLayer>;
/// The parts that the library makes.
pub type Parts = machine::Parts<Format, Mmus, Program>;
/// The settings by which it makes them.
pub type Plan<'a> = Setup<'a, DirectMap, Mmus, Program>;

/// The board of the architecture.
pub struct Board;

/// Parts of the machine that an architecture brings.
pub trait BoardMachine {
    /// The prices of invalidations. Here one instruction forgets one page, and above 64 pages the
    /// whole space is cheaper, as Linux has it on RISC-V.
    const COSTS: CostModel = CostModel::Costs(Costs::new(1, 64));

    /// Makes the MMUs.
    fn mmus() -> Mmus;
    /// Returns the number of ASIDs that are used, beside the kernel's number 0.
    fn asids() -> u16;
    /// Says where the kernel's half of roots comes from. Here it is empty.
    fn with_kernel_half(plan: Plan<'_>) -> Plan<'_> {
        plan
    }
    /// Makes trees of the kernel's own, before all frames are counted.
    ///
    /// # Safety
    ///
    /// 1. It is called once, while one CPU runs.
    unsafe fn make_trees(_: &'static Parts) -> Result<(), Failed> {
        Ok(())
    }
    /// Returns the number of tables of the kernel's half that stay.
    fn kept() -> usize {
        0
    }
}

static KERNEL: Kernel<Format, DirectMap, Mmus, Program> = Kernel::new();
static MACHINE: OnceCell<Machine> = OnceCell::new();

/// The machine.
pub fn machine() -> &'static Machine {
    MACHINE.get()
}

/// Proof of being on this CPU.
pub fn pin() -> Pinned<'static> {
    // SAFETY: 1. The kernel is not preempted: a task gives its CPU up only by returning to the loop
    // of that CPU, and interrupted code goes on only after the handler has returned. 2. The machine
    // has one node, and no more CPUs are started than everything is made for.
    unsafe { Pinned::assume(machine().id(), CpuId(Board::cpu() as u16), NodeId(0)) }
}

/// The machine, seen from where the pin says that code runs.
pub fn on<'a>(pin: &'a Pinned<'a>) -> On<'a, Machine> {
    machine().here(pin)
}

/// Returns the user program, which the image carries, as an object that spaces map.
#[cfg(not(target_arch = "loongarch64"))]
pub fn program() -> Program {
    use ptarmigan_kernel_base::{direct::DIRECT_MAP, program::Pages};
    static PROGRAM: &Pages<[u8]> = &Pages(*include_bytes!(concat!(env!("OUT_DIR"), "/user.bin")));
    // SAFETY: 1. The direct map has the image.
    unsafe { PROGRAM.object(DIRECT_MAP) }
}

#[cfg(target_arch = "loongarch64")]
pub use crate::arch::machine::program;

/// Sets the library up on the memory from `start` to `end`.
///
/// # Safety
///
/// 1. Nobody else uses that memory, now or later, and it is in the direct map.
/// 2. It is called once, while one CPU runs.
pub unsafe fn set_up(start: u64, end: u64, cpus: usize) -> Result<(), Failed> {
    let memory = [MemoryRun::new(start..end)];
    let setup = Setup::direct_map(&memory, direct(0), DIRECT_MAP_LIMIT, Board::mmus())?
        .objects(program())
        .cpus(cpus)
        .asids(Board::asids())
        .costs(Board::COSTS);
    // SAFETY: 1. and 2. Point 1 of the caller's; every space has the direct map for good. 3. Roots
    // have no kernel's half, or that of a root of the kernel's own with tables that are statics.
    unsafe { KERNEL.set_up(Board::with_kernel_half(setup))? };
    let Some(parts) = KERNEL.parts() else { fail(format_args!("used before it was set up")) };
    // SAFETY: 1. Point 2 of the caller's.
    unsafe { Board::make_trees(parts)? };
    // SAFETY: 1. Point 2 of the caller's.
    unsafe { MACHINE.set(Machine::new(parts, table_layer(parts))) };
    Ok(())
}

/// Gives back the pages on this CPU's lists, and with `all` also those on the node's.
pub fn drain(all: bool) {
    Machine::drain(on(&pin()), all);
}

/// Checks, after every CPU has drained its lists, that every frame is back.
pub fn check_balance() {
    machine().check_balance(Board::kept());
}
