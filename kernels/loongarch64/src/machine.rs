//! The library's view of this machine: memory in the cached window, one CPU whose TLB is filled
//! from spaces' tables, a user program that the loader has put into memory.

use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::{CpuId, NodeId, Pinned};
use ptarmigan::format::LoongArch64;
use ptarmigan::frames::MemoryRun;
use ptarmigan::machine::{Machine as _, On};
use ptarmigan::setup::{Kernel, Setup};
use ptarmigan::tlb::{CostModel, Costs};
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::direct::{DIRECT_MAP_LIMIT, direct};
use ptarmigan_kernel_base::machine::{self, NoLayer};
use ptarmigan_kernel_base::once_cell::OnceCell;
use ptarmigan_kernel_base::program::Program;
use ptarmigan_kernel_base::{Failed, fail};

use crate::mmu::{ASIDS, OneCpuMmu};
use crate::negative_controls::{NegativeControl, leaves_out};

/// All parts together.
pub type Machine = machine::Machine<LoongArch64, OneCpuMmu, Program>;

/// Bytes of a page.
pub const PAGE: u64 = 1 << 14;
/// Where the loader puts the user program, and its bytes at the most.
const PROGRAM: PhysAddr = PhysAddr(0x20_0000);
const PROGRAM_LEN: u64 = 4 * PAGE;
/// Numbers of spaces: fewer than there are spaces, so that they are handed out anew.
const NUMBERS: u16 = 6;
const _: () = assert!(NUMBERS <= ASIDS);
/// Forgetting a page is one instruction. Above 64 pages the whole space is cheaper.
const COSTS: CostModel = CostModel::Costs(Costs::new(1, 64));

static KERNEL: Kernel<LoongArch64, DirectMap, OneCpuMmu, Program> = Kernel::new();
static MACHINE: OnceCell<Machine> = OnceCell::new();

/// The machine.
pub fn machine() -> &'static Machine {
    MACHINE.get()
}

/// Proof of being on the one CPU.
pub fn pin() -> Pinned<'static> {
    // SAFETY: 1. There is one CPU and one thread, which no interrupt preempts. 2. The machine has
    // one CPU and one node.
    unsafe { Pinned::assume(machine().id(), CpuId(0), NodeId(0)) }
}

/// The machine, seen from its CPU.
pub fn on<'a>(pin: &'a Pinned<'a>) -> On<'a, Machine> {
    machine().here(pin)
}

/// Returns the user program as an object that spaces map.
pub fn program() -> Program {
    // SAFETY: 1. The loader has put it there, below the image; nobody writes to it.
    unsafe { Program::in_memory(PROGRAM, PROGRAM_LEN, PAGE) }
}

/// Sets the library up on the memory from `start` to `end`.
///
/// # Safety
///
/// 1. Nobody else uses that memory, now or later, and it is in the window.
/// 2. It is called once.
pub unsafe fn set_up(start: u64, end: u64) -> Result<(), Failed> {
    let memory = [MemoryRun::new(start..end)];
    let setup = Setup::direct_map(&memory, direct(0), DIRECT_MAP_LIMIT, OneCpuMmu::new())?
        .objects(program())
        .asids(if leaves_out(NegativeControl::Asids) { 0 } else { NUMBERS })
        .costs(COSTS);
    // SAFETY: 1. and 2. Point 1 of the caller's. 3. Roots of spaces have no kernel's half.
    unsafe { KERNEL.set_up(setup)? };
    let Some(parts) = KERNEL.parts() else { fail(format_args!("used before it was set up")) };
    // SAFETY: 1. Point 2 of the caller's.
    unsafe { MACHINE.set(Machine::new(parts, NoLayer)) };
    Ok(())
}

/// Gives back the pages on lists, and checks that every frame is back.
pub fn check_balance() {
    Machine::drain(on(&pin()), true);
    machine().check_balance(0);
}
