//! Boards with several CPUs: the order of the run, and CPUs as
//! [`tasks`](ptarmigan_kernel_base::tasks) use them.

use core::fmt::Debug;
use core::sync::atomic::{AtomicU64, Ordering};

use ptarmigan::cpu::{CpuSet, Pinned};
use ptarmigan::machine::{Machine as _, On};
use ptarmigan::tlb::{FlushCounts, Ipi};
use ptarmigan_kernel_base::direct::{DIRECT_MAP_LIMIT, direct, physical};
use ptarmigan_kernel_base::fdt::DeviceTree;
use ptarmigan_kernel_base::smp::{self, kernel_half, measure, stack};
use ptarmigan_kernel_base::tasks::{self, Port, Trap};
use ptarmigan_kernel_base::{board, fail, fail_if, fdt, pass, say};
use ptarmigan_kernel_mailbox::{self as mailbox, Announced, Operation};

use crate::arch::machine::Format;
use crate::arch::negative_controls::{self, NegativeControl, leaves_out};
use crate::arch::trap::{self, Registers};
use crate::arch::{self, clock, irq};
use crate::machine::{self, Board, Machine, Parts, machine, on, pin};

/// ASIDs that are used at most, of those that each CPU has.
pub const ASIDS: u16 = 64;
const PAGE: u64 = 4096;

unsafe extern "C" {
    /// Set by the link script; only its address means anything.
    static image_end: u8;
    /// Defined by the assembly.
    static start_other: u8;
}

/// Parts of the CPUs that an architecture brings.
pub trait BoardCpus {
    /// Returns the highest ASID.
    fn highest_asid() -> u16;
    /// Prepares the kernel's half. `first` is the firmware's number of the calling CPU.
    ///
    /// # Safety
    ///
    /// 1. No other CPU runs, and the library has not been set up yet.
    unsafe fn before_set_up(first: u64);
    /// The library has been set up. `announces`: a recorder is to be told of tables.
    fn after_set_up(_announces: bool) {}
    /// Has this CPU take interrupts, by the kernel's own tree if it has one.
    fn begin_cpu();
    /// Runs the checks of images with the library's own checks.
    fn check_assertions(board: &DeviceTree);
    /// Prepares the check of the kernel's half, and returns it. It is made while other CPUs look
    /// on.
    fn kernel_half_check() -> impl FnOnce();
    /// Starts a CPU by the firmware's number at physical address `start`.
    ///
    /// # Safety
    ///
    /// 1. The code at `start` may be run by that CPU, which is CPU `cpu`.
    unsafe fn start_cpu(cpu: usize, id: u64, start: u64) -> Result<(), impl Debug>;
    /// Interrupts another CPU.
    fn send_interrupt(cpu: usize);
    /// Serves the requests of other CPUs.
    fn serve(pin: &Pinned<'_>) {
        machine().tlb().serve(pin);
    }
    /// This CPU has left a space.
    fn left_space() {}
}

/// Runs all checks on the board of the device tree at physical address `tree`. `first` is the
/// firmware's number of the calling CPU, which alone runs.
///
/// # Safety
///
/// 1. The firmware must have put a device tree there.
pub unsafe fn run(first: u64, tree: u64) -> ! {
    board::use_board(&arch::VIRT);
    // SAFETY: 1. Point 1 of the caller's. If it lies in memory that the library gets below, it is
    // not read any more then; the boot arguments are read before.
    let Some(board) = (unsafe { fdt::read(direct(tree)) }) else {
        fail(format_args!("the board has no device tree"));
    };
    fail_if(
        !negative_controls::read(board.arguments),
        format_args!("unknown boot argument: {}", board.arguments),
    );
    let end = (board.memory + board.bytes).min(DIRECT_MAP_LIMIT);
    let start = physical(&raw const image_end).next_multiple_of(PAGE);
    say!(
        "CPU {first} of {}, memory to {end:#x}, {} ASID bits",
        board.cpus,
        Board::highest_asid().count_ones()
    );
    let announces = board.arguments.split_ascii_whitespace().any(|word| word == mailbox::WORD);
    // SAFETY: 1. No other CPU runs yet, and the library is set up below.
    unsafe { Board::before_set_up(first) };
    // SAFETY: 1. The board says that it is memory; it is behind the image, and the firmware is
    // before it. 2. No other CPU runs yet.
    let (stack, made) = stack::used(|| unsafe { machine::set_up(start, end, board.cpus) });
    let Ok(()) = made;
    Board::after_set_up(announces);
    begin();
    measure::calls(&TASKS, machine::program().bytes(), stack);
    // Not in an image as a kernel would be shipped.
    if cfg!(debug_assertions) {
        Board::check_assertions(&board);
    }
    machine::drain(true);
    machine::check_balance();
    let check_kernel_half = Board::kernel_half_check();

    let others = board.cpu_ids.iter().take(board.cpus).filter(|id| **id != first);
    for (cpu, id) in others.enumerate().map(|(n, id)| (n + 1, *id)) {
        // SAFETY: 1. The code at `start_other` is for that, and CPU numbers are below the number of
        // CPUs.
        if let Err(e) = unsafe { Board::start_cpu(cpu, id, physical(&raw const start_other)) } {
            fail(format_args!("CPU {cpu}, which is {id} to the firmware, does not start: {e:?}"));
        }
    }
    smp::wait_until_up(board.cpus);

    smp::run_programs(&TASKS, machine::program().bytes());

    // The others come back from their tasks, and look on while the kernel's half changes.
    TASKS.stop(check_kernel_half);
    machine::drain(true);
    machine::check_balance();
    mailbox::send(irq::cpu(), mailbox::code::END, [0; 4]);
    say!("all frames are back");
    let FlushCounts { asked, skipped, .. } = machine().tlb().counts();
    let interrupts = IN_CALLS.load(Ordering::Relaxed);
    machine().report(format_args!(
        "{asked} requests to other CPUs, {skipped} too late; {interrupts} interrupts in calls"
    ));
    machine().report_bytes(start, end);
    pass()
}

/// Has this CPU take interrupts, and fetch the instructions that are in memory now.
fn begin() {
    Board::begin_cpu();
    arch::mmu::instructions_changed();
}

/// Runs one of the other CPUs. The assembly calls it.
#[unsafe(no_mangle)]
extern "C" fn kernel_other() -> ! {
    begin();
    smp::up();
    TASKS.run();
    kernel_half::look();
    machine::drain(false);
    TASKS.stopped();
    loop {
        irq::sleep();
    }
}

/// A recorder is told of tables.
pub type TableLayer = Announced<'static, Format, irq::Masked>;

/// Makes the layer around the lists of tables.
pub fn table_layer(parts: &'static Parts) -> TableLayer {
    Announced::new(parts.frames(), irq::Masked::new)
}

/// The interrupts between CPUs.
pub struct Interrupts;

impl Ipi for Interrupts {
    fn send(&self, _pin: &Pinned<'_>, cpus: &CpuSet, _serve: &dyn Fn(&Pinned<'_>)) {
        if !leaves_out(NegativeControl::Ipi) {
            cpus.iter().for_each(|cpu| Board::send_interrupt(cpu.0.into()));
        }
    }

    fn wait(&self, pin: &Pinned<'_>, turn: u32) {
        smp::wait(pin, turn);
    }
}

/// Interrupts from other CPUs that came while the library was at work for a task.
static IN_CALLS: AtomicU64 = AtomicU64::new(0);

/// Serves an interrupt of another CPU that came while the kernel ran.
pub fn interrupted() {
    IN_CALLS.fetch_add(1, Ordering::Relaxed);
    Board::answer();
}

/// The tasks.
pub static TASKS: tasks::Tasks<Board> = tasks::Tasks::new();

impl Port for Board {
    type Format = Format;
    type Machine = Machine;
    type Registers = Registers;
    type Masked = irq::Masked;

    fn cpu() -> usize {
        irq::cpu()
    }

    fn cpus() -> usize {
        machine().tlb().config().cpus
    }

    fn mask() -> irq::Masked {
        irq::Masked::new()
    }

    fn enabled<R>(f: impl FnOnce() -> R) -> R {
        irq::enabled(f)
    }

    fn here<R>(f: impl FnOnce(On<'_, Machine>) -> R) -> R {
        let pin = pin();
        f(on(&pin))
    }

    /// A recorder learns when such calls begin and end.
    fn change<R>(f: impl FnOnce(On<'_, Machine>) -> R) -> R {
        let _operation = Operation::begin(irq::cpu());
        Self::here(f)
    }

    fn left() {
        Board::left_space();
    }

    fn begin_turn() {
        clock::set_timer(clock::time() + clock::ticks_per_ms());
    }

    fn enter(registers: &mut Registers) -> Trap {
        trap::enter(registers)
    }

    fn interrupt(cpu: usize) {
        Board::send_interrupt(cpu);
    }

    fn answer() {
        if irq::take_software() {
            Board::serve(&pin());
        }
    }

    fn sleep() {
        irq::sleep();
    }
}
