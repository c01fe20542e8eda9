//! Boards with one CPU and no firmware: the order of the run, and the CPU as
//! [`tasks`](ptarmigan_kernel_base::tasks) use it, without interrupts.

use ptarmigan::addr::VirtAddr;
use ptarmigan::format::Access;
use ptarmigan::machine::On;
use ptarmigan::space::SharedSpace;
use ptarmigan_kernel_base::direct::{direct, physical};
use ptarmigan_kernel_base::raw::Raw;
use ptarmigan_kernel_base::tasks::{self, Port, Trap};
use ptarmigan_kernel_base::{board, fail_if, negative_controls as parts, pass, say};

use crate::arch::machine::{Format, PAGE};
use crate::arch::negative_controls;
use crate::arch::trap::{self, Registers};
use crate::machine::{self, Board, Machine, Parts, on, pin};
use crate::serial::BOARD;

/// First address behind the memory that is used.
const MEMORY: u64 = 128 << 20;
/// Where the loader puts the boot arguments.
const ARGUMENTS: u64 = 0x8000;
/// Where a program is mapped.
const PROGRAM: u64 = 0x1000_0000;
const STACK: u64 = 0x1_0000;

/// The kernel's stack. The assembly knows its size.
#[unsafe(no_mangle)]
static kernel_stack: Raw<[u8; 0x1_0000]> = Raw::new([0; 0x1_0000]);

unsafe extern "C" {
    /// Set by the link script; only its address means anything.
    static image_end: u8;
}

/// Parts of the CPU that an architecture brings.
pub trait BoardCpu {
    /// The name of the architecture.
    const NAME: &str;
    /// Where the stacks of programs end.
    const STACK_END: u64;

    /// Prepares the MMU, with tables of its own on the memory from `start` on. Returns the end of
    /// these.
    ///
    /// # Safety
    ///
    /// 1. Nobody else uses that memory, now or later, and it is in the direct map.
    /// 2. It is called once, before the library is set up.
    unsafe fn before_set_up(start: u64) -> u64;
    /// Checks pages of the kernel's own.
    fn check_kernel_half() {}
    /// Checks, when all frames are back, that no page is left in tables of the MMU's own.
    fn check_balance() {}
    /// Runs `f`, which runs programs.
    fn around_programs(f: impl FnOnce()) {
        f();
    }
    /// A program is about to run.
    fn before_turn() {}
    /// Prints the counts, and checks that the run was meaningful.
    fn report();
    /// Returns whether a page that was missed is there: see [`Port::refills`].
    fn refill(
        space: &SharedSpace<Format>,
        on: On<'_, Machine>,
        va: VirtAddr,
        access: Access,
        protected: bool,
    ) -> bool;
}

/// Runs all checks. The assembly calls it.
#[unsafe(no_mangle)]
extern "C" fn kernel_main() -> ! {
    board::use_board(&BOARD);
    // SAFETY: 1. The loader has put them into memory below the image, which is never written to.
    let arguments = unsafe { parts::arguments(direct(ARGUMENTS)) };
    let names_parts = arguments.split_ascii_whitespace().all(|word| word.starts_with("without="));
    fail_if(
        !names_parts || !negative_controls::read(arguments),
        format_args!("unknown boot argument: {arguments}"),
    );
    let start = physical(&raw const image_end).next_multiple_of(PAGE);
    say!("{}, memory from {start:#x} to {MEMORY:#x}", Board::NAME);
    // SAFETY: 1. The board has that memory; it is behind the image, and there is no firmware. 2. It
    // is called here alone.
    let start = unsafe { Board::before_set_up(start) };
    // SAFETY: 1. and 2. As above: the architecture's own memory is before `start`.
    let Ok(()) = unsafe { machine::set_up(start, MEMORY, 1) };

    Board::check_kernel_half();
    check_balance();

    // One program; then several at once, each with children of its own.
    run_programs(&[30]);
    run_programs(&[8, 8, 8]);

    check_balance();
    say!("all frames are back");
    Board::report();
    pass()
}

fn check_balance() {
    machine::drain(true);
    machine::check_balance();
    Board::check_balance();
}

/// Starts programs, each with its rounds, and runs tasks until all have ended.
fn run_programs(programs: &[u64]) {
    for (seed, rounds) in programs.iter().enumerate() {
        let program = (PROGRAM, machine::program().bytes());
        TASKS.start_program(program, (Board::STACK_END, STACK), [*rounds, seed as u64 + 1, 0]);
    }
    Board::around_programs(|| TASKS.run());
}

/// Nobody is told of tables.
pub use ptarmigan_kernel_base::machine::NoLayer as TableLayer;

/// Makes the layer around the lists of tables.
pub fn table_layer(_: &Parts) -> TableLayer {
    TableLayer
}

/// The tasks.
pub static TASKS: tasks::Tasks<Board> = tasks::Tasks::new();

impl Port for Board {
    type Format = Format;
    type Machine = Machine;
    type Registers = Registers;
    type Masked = ();

    fn mask() {}

    fn here<R>(f: impl FnOnce(On<'_, Machine>) -> R) -> R {
        let pin = pin();
        f(on(&pin))
    }

    fn refills(
        space: &SharedSpace<Format>,
        on: On<'_, Machine>,
        va: VirtAddr,
        access: Access,
        protected: bool,
    ) -> bool {
        Board::refill(space, on, va, access, protected)
    }

    fn enter(registers: &mut Registers) -> Trap {
        Board::before_turn();
        trap::enter(registers)
    }
}
