//! A kernel for LoongArch (16 KiB pages, 47-bit addresses) on the library: user programs in several
//! spaces, fork and copy-on-write, ASIDs, and a TLB that a handler of misses fills from the
//! library's tables. QEMU keeps entries of the TLB as hardware does, valid or not, so the programs
//! notice an invalidation that is missing.
//!
//! The user has the tree below `PGDL`. The kernel is in two windows that only it may use: physical
//! memory, the image among it, and devices.
#![no_std]
#![no_main]

mod board;
mod machine;
mod mmu;
mod negative_controls;
mod port;
mod trap;

use core::arch::global_asm;

use machine::{PAGE, machine};
use port::TASKS;
use ptarmigan::addr::PhysAddr;
use ptarmigan::format::{Attr, Format, LoongArch64};
use ptarmigan::machine::Machine as _;
use ptarmigan::page::Level;
use ptarmigan_kernel_base::direct::{direct, physical};
use ptarmigan_kernel_base::raw::Raw;
use ptarmigan_kernel_base::{board::use_board, fail_if, pass, say, without as parts};

ptarmigan_kernel_base::panic_handler!();

global_asm!(include_str!("boot.s"));

/// First address behind the memory that is used; the board has more.
const MEMORY: u64 = 128 << 20;
/// Where the loader puts the boot arguments.
const ARGUMENTS: u64 = 0x8000;
/// Where a program is mapped, and its stack.
const PROGRAM: u64 = 0x1000_0000;
const STACK_END: u64 = 0x40_0000_0000;
const STACK: u64 = 4 * PAGE;

/// The kernel's stack. The assembly knows its size.
#[unsafe(no_mangle)]
static kernel_stack: Raw<[u8; 0x1_0000]> = Raw::new([0; 0x1_0000]);

unsafe extern "C" {
    /// Set by the link script; only its address means anything.
    static image_end: u8;
}

/// Where the CPU comes from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_main() -> ! {
    use_board(&board::BOARD);
    // SAFETY: 1. The loader has put them into memory below the image, which is never written to.
    let arguments = unsafe { parts::arguments(direct(ARGUMENTS)) };
    fail_if(!negative_controls::read(arguments), format_args!("unknown boot argument: {arguments}"));
    lay_trap();
    mmu::set_refill();
    let start = physical(&raw const image_end).next_multiple_of(PAGE);
    say!("LoongArch, memory from {start:#x} to {MEMORY:#x}");
    // SAFETY: 1. The board has that memory; it is behind the image, and there is no firmware. 2. It
    // is called here alone.
    let Ok(()) = unsafe { machine::set_up(start, MEMORY) };

    // One program; then several at once, each with children of its own.
    run_programs(&[30]);
    run_programs(&[8, 8, 8]);

    machine::check_balance();
    say!("all frames are back");
    machine().report(format_args!("ASIDs {}", machine().tlb().config().asids));
    pass()
}

/// Fills the page at physical address 0, where a walk through an empty directory ends up, with
/// entries that show it to everybody.
fn lay_trap() {
    let at: *mut u64 = direct(0);
    let attr = Attr::READ | Attr::WRITE | Attr::DIRTY | Attr::USER | Attr::EXEC;
    let entry = LoongArch64::leaf(Level(0), PhysAddr(0).pfn(), attr);
    for index in 0..PAGE as usize / size_of::<u64>() {
        // SAFETY: memory of the board below everything that is used, in the window.
        unsafe { at.add(index).write_volatile(entry) };
    }
}

/// Starts programs, each with its rounds, and runs tasks until all have ended.
fn run_programs(programs: &[u64]) {
    for (seed, rounds) in programs.iter().enumerate() {
        let program = (PROGRAM, machine::program().bytes());
        TASKS.start_program(program, (STACK_END, STACK), [*rounds, seed as u64 + 1, 0]);
    }
    TASKS.run();
}
