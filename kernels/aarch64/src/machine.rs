//! The library's view of this machine: memory in the direct map, CPUs whose invalidations reach all
//! others, the kernel's tree below `TTBR1`, and the order in which the parts are set up.

use ptarmigan::arch::aarch64::{Features, Tlbi};
use ptarmigan::cpu::{CpuId, CpuSet, NodeId, Pinned};
use ptarmigan::format::{Aarch64, Aarch64Upper};
use ptarmigan::frames::{AllocFlags, End, MemoryRun, Request, ZoneClass};
use ptarmigan::machine::{Machine as _, On};
use ptarmigan::setup::{Kernel, Setup};
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::{CostModel, Costs, FlushCounts, Ipi};
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::aarch64::irq;
use ptarmigan_kernel_base::direct::{DIRECT_MAP, DIRECT_MAP_LIMIT, direct};
use ptarmigan_kernel_base::machine::{self, NoLayer};
use ptarmigan_kernel_base::once_cell::OnceCell;
use ptarmigan_kernel_base::program::{Pages, Program};
use ptarmigan_kernel_base::{Failed, fail, smp};

use crate::mmu::{self, Leaving};
use crate::negative_controls::{NegativeControl, leaves_out};

/// All parts together.
pub type Machine = machine::Machine<Aarch64, Mmus, Program>;
/// The MMUs of the CPUs.
pub type Mmus = Tlbi<Aarch64, Interrupts, Leaving>;
/// The kernel's tree.
pub type KernelTree = KernelMap<Aarch64Upper, DirectMap>;

/// ASIDs that are used at most.
const ASIDS: u16 = 64;
/// Forgetting one page is one instruction, and so is a range where the CPU has it. Above 64 pages
/// the whole space is cheaper.
const COSTS: CostModel = CostModel::Costs(Costs::new(1, 64));
/// The frame of the kernel's root.
const ROOT: Request = Request {
    node: NodeId(0),
    order: 0,
    zero: true,
    class: ZoneClass::Low,
    end: End::Low,
    flags: AllocFlags::NORMAL,
};

static KERNEL: Kernel<Aarch64, DirectMap, Mmus, Program> = Kernel::new();
static TREE: OnceCell<KernelTree> = OnceCell::new();
static MACHINE: OnceCell<Machine> = OnceCell::new();

/// The machine.
pub fn machine() -> &'static Machine {
    MACHINE.get()
}

/// CPUs that everything is made for.
pub fn cpus() -> usize {
    machine().tlb().config().cpus
}

/// The kernel's tree.
pub fn tree() -> &'static KernelTree {
    TREE.get()
}

/// Proof of being on this CPU.
pub fn pin() -> Pinned<'static> {
    // SAFETY: 1. The kernel is not preempted: a task gives its CPU up only by returning to the loop
    // in `task`, and interrupted code goes on only after the handler has returned. 2. `main` starts
    // no more CPUs than everything is made for.
    unsafe { Pinned::assume(machine().id(), CpuId(irq::cpu() as u16), NodeId(0)) }
}

/// The machine, seen from where the pin says that code runs.
pub fn on<'a>(pin: &'a Pinned<'a>) -> On<'a, Machine> {
    machine().here(pin)
}

/// The interrupts between CPUs.
pub struct Interrupts;

impl Ipi for Interrupts {
    fn send(&self, _pin: &Pinned<'_>, cpus: &CpuSet, _serve: &dyn Fn(&Pinned<'_>)) {
        if !leaves_out(NegativeControl::Ipi) {
            cpus.iter().for_each(|cpu| irq::send(cpu.0.into()));
        }
    }

    fn wait(&self, pin: &Pinned<'_>, turn: u32) {
        smp::wait(pin, turn);
    }
}

/// Returns the user program, which the image carries, as an object that spaces map.
pub fn program() -> Program {
    static PROGRAM: &Pages<[u8]> = &Pages(*include_bytes!(concat!(env!("OUT_DIR"), "/user.bin")));
    // SAFETY: 1. The direct map has the image.
    unsafe { PROGRAM.object(DIRECT_MAP) }
}

/// Sets the library up on the memory from `start` to `end`, and the kernel's tree.
///
/// # Safety
///
/// 1. Nobody else uses that memory, now or later, and it is in the direct map.
/// 2. It is called once, while one CPU runs.
pub unsafe fn set_up(start: u64, end: u64, cpus: usize) -> Result<(), Failed> {
    let features = Features::read();
    // SAFETY: 1. All CPUs are alike.
    let mmus = unsafe { Tlbi::with_features(Interrupts, Leaving, features) };
    let memory = [MemoryRun::new(start..end)];
    let setup = Setup::direct_map(&memory, direct(0), DIRECT_MAP_LIMIT, mmus)?
        .objects(program())
        .cpus(cpus)
        .without_kernel_half()
        .asids(if leaves_out(NegativeControl::Asids) { 0 } else { ASIDS.min(features.asids) })
        .costs(COSTS);
    // SAFETY: 1. and 2. Point 1 of the caller's. 3. Roots of spaces have no kernel's half.
    unsafe { KERNEL.set_up(setup)? };
    let Some(parts) = KERNEL.parts() else { fail(format_args!("used before it was set up")) };
    // SAFETY: 1. The direct map reaches all memory.
    let tree = unsafe { KernelTree::new(parts.frames(), *parts.window(), ROOT)? };
    // SAFETY: 1. The entry is the kernel's own, and its one table a static. 2. There are no ranges.
    // 3. They are.
    unsafe { tree.set(parts.frames(), 0, mmu::boot_entry(0)) };
    // SAFETY: 1. Point 2 of the caller's.
    unsafe { TREE.set(tree) };
    // SAFETY: 1. Point 2 of the caller's.
    unsafe { MACHINE.set(Machine::new(parts, NoLayer)) };
    Ok(())
}

/// Has this CPU go on with the kernel's tree.
pub fn load_tree() {
    // SAFETY: 1. It is in a static; entry 0, which maps memory and devices, is that of the root
    // that CPUs boot on, and the kernel uses no more than that yet.
    unsafe { mmu::load_kernel_root(tree().root().0) };
}

/// Serves the requests of other CPUs. The handler of their interrupts calls it.
pub fn answer() {
    machine().tlb().serve(&pin());
}

/// Gives back the pages on this CPU's lists, and with `all` also those on the node's.
pub fn drain(all: bool) {
    Machine::drain(on(&pin()), all);
}

/// Checks, after every CPU has drained its lists, that every frame is back. Tables of the kernel's
/// tree stay; its root was taken before all were counted.
pub fn check_balance() {
    machine().check_balance(tree().tables() - 1);
}

/// Prints the counts, the number of interrupts from other CPUs that came while the library was at
/// work for a task, and the bytes of the library's own arrays for the memory from `start` to `end`.
pub fn report(interrupts: u64, start: u64, end: u64) {
    let FlushCounts { asked, .. } = machine().tlb().counts();
    machine().report(format_args!("{asked} requests to other CPUs; {interrupts} interrupts in calls"));
    machine().report_bytes(start, end);
}
