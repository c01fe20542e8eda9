//! The library's view of this machine: memory in the direct map, harts that invalidate for
//! themselves and interrupt each other, and the order in which the parts are set up.

use ptarmigan::addr::VirtAddr;
use ptarmigan::arch::riscv64::SfenceVma;
use ptarmigan::cpu::{CpuId, CpuSet, NodeId, Pinned};
use ptarmigan::format::Access;
use ptarmigan::frames::MemoryRun;
use ptarmigan::machine::{Machine as _, On};
use ptarmigan::setup::{Kernel, Setup};
use ptarmigan::tlb::{CostModel, Costs, FlushCounts, Ipi, Runs, TlbRefusal};
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::once_cell::OnceCell;
use ptarmigan_kernel_base::program::{Pages, Program};
use ptarmigan_kernel_base::riscv::{harts, irq};
use ptarmigan_kernel_base::{Failed, fail, machine, smp};
use ptarmigan_kernel_mailbox::Announced;

use crate::mmu::{self, Announcing, DIRECT_MAP, DIRECT_MAP_LIMIT, Format};
use crate::negative_controls::{NegativeControl, leaves_out};

/// All parts together.
pub type Machine = machine::Machine<Format, Harts, Program, Announced<'static, Format, irq::Masked>>;

/// ASIDs that each hart uses at most, of those that it has.
const ASIDS: u16 = 64;
/// Forgetting one page is one instruction. No instruction covers a range, so a run of pages has no
/// cost of its own. Above 64 pages the whole space is cheaper, as Linux has it on RISC-V.
const COSTS: CostModel = CostModel::Costs(Costs::new(1, 64));

/// Proof of being on this CPU.
pub fn pin() -> Pinned<'static> {
    // SAFETY: 1. The kernel is not preempted: a task gives its hart up only by returning to the
    // loop in `task`, and interrupted code goes on only after the handler has returned. 2. CPU
    // numbers are below the number of harts that everything is made for: `main` starts no others.
    unsafe { Pinned::assume(machine().id(), CpuId(irq::cpu() as u16), NodeId(0)) }
}

/// The machine, seen from where the pin says that code runs.
pub fn on<'a>(pin: &'a Pinned<'a>) -> On<'a, Machine> {
    machine().here(pin)
}

/// The MMUs of the harts.
pub type Harts = SfenceVma<Format, Interrupts, Announcing>;

/// Makes them.
fn harts() -> Harts {
    // SAFETY: 1. All harts are alike.
    unsafe { SfenceVma::with_asids(Interrupts, Announcing, mmu::highest_asid()) }
}

/// The interrupts between harts.
pub struct Interrupts;

impl Ipi for Interrupts {
    fn send(&self, _pin: &Pinned<'_>, cpus: &CpuSet, _serve: &dyn Fn(&Pinned<'_>)) {
        if leaves_out(NegativeControl::Ipi) {
            return;
        }
        cpus.iter().for_each(|cpu| harts::interrupt(cpu.0 as usize));
    }

    fn wait(&self, pin: &Pinned<'_>, turn: u32) {
        smp::wait(pin, turn);
    }
}

static KERNEL: Kernel<Format, DirectMap, Harts, Program> = Kernel::new();
static MACHINE: OnceCell<Machine> = OnceCell::new();

/// The machine.
pub fn machine() -> &'static Machine {
    MACHINE.get()
}

/// Returns the user program, which the image carries, as an object that spaces map.
pub fn program() -> Program {
    static PROGRAM: &Pages<[u8]> = &Pages(*include_bytes!(concat!(env!("OUT_DIR"), "/user.bin")));
    // SAFETY: 1. The direct map has the image.
    unsafe { PROGRAM.object(DIRECT_MAP) }
}

/// CPUs that everything is made for.
pub fn cpus() -> usize {
    machine().tlb().config().cpus
}

/// Sets the library up on the memory from `start` to `end`.
///
/// # Safety
///
/// 1. Nobody else uses that memory, now or later, and it is in the direct map.
/// 2. It is called once, while one hart runs.
pub unsafe fn set_up(start: u64, end: u64, cpus: usize) -> Result<(), Failed> {
    // ASID 0 is the kernel's.
    let asids = if leaves_out(NegativeControl::Asids) { 0 } else { ASIDS.min(mmu::highest_asid()) };
    let memory = [MemoryRun::new(start..end)];
    let setup = Setup::direct_map(&memory, mmu::direct(0), DIRECT_MAP_LIMIT, harts())?
        .objects(program())
        .cpus(cpus)
        .kernel_root(mmu::kernel_root())
        .asids(asids)
        .costs(COSTS);
    // SAFETY: 1. and 2. Point 1 of the caller's. 3. The root is the kernel's own; its one table is
    // a static, and `kernel_half` changes pages, not tables.
    unsafe { KERNEL.set_up(setup)? };
    let Some(parts) = KERNEL.parts() else { fail(format_args!("used before it was set up")) };
    let machine = Machine::new(parts, Announced::new(parts.frames(), irq::Masked::new));
    mmu::set_kernel_root(machine.kernel_map().root().0);
    // SAFETY: 1. Point 2 of the caller's.
    unsafe { MACHINE.set(machine) };
    Ok(())
}

/// Serves the requests of other harts. The handler of software interrupts calls it.
pub fn answer() {
    let pin = pin();
    mmu::set_answering(&pin, true);
    machine().tlb().serve(&pin);
    mmu::set_answering(&pin, false);
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

/// Gives back the pages on this CPU's lists, and with `all` also those on the node's.
pub fn drain(all: bool) {
    Machine::drain(on(&pin()), all);
}

/// Prints the counts, the number of interrupts from other harts that came while the library was at
/// work for a task, and the bytes of the library's own arrays for the memory from `start` to `end`.
pub fn report(interrupts: u64, start: u64, end: u64) {
    let machine = machine();
    let FlushCounts { asked, skipped, .. } = machine.tlb().counts();
    machine.report(format_args!(
        "{asked} requests to other harts, {skipped} too late; {interrupts} interrupts in calls"
    ));
    machine.report_bytes(start, end);
}
