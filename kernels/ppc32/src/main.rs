//! A kernel for PowerPC's hashed page table (604) on the library: user programs in several spaces,
//! fork and copy-on-write, pages of the kernel's own, and a hash table of 64 KiB that handlers of
//! faults fill from the library's tables. QEMU keeps stale translations as hardware does, and never
//! looks at the tables, so the programs notice stale entries in the hash table or in the TLB.
//!
//! Every address space has the user in segments 0 to 11 and the kernel in the others: physical
//! memory at [`mmu::DIRECT_MAP`] and devices at [`mmu::DEVICES`], both by block translation, and
//! pages from 0xe0000000 on.
#![no_std]
#![no_main]

#[allow(dead_code, reason = "an image has some of the calls")]
mod abi;
mod hashed;
mod kernel_half;
mod machine;
mod mmu;
mod negative_controls;
mod port;
mod rt;
mod serial;
mod trap;

use core::arch::global_asm;

use port::TASKS;
use ptarmigan_kernel_base::raw::Raw;
use ptarmigan_kernel_base::{board, fail_if, pass, say};

global_asm!(include_str!("boot.s"));

/// Memory that the board has.
const MEMORY: u64 = 128 << 20;
const PAGE: u64 = 4096;
const STACK_END: u64 = 0xb000_0000;
const STACK: u64 = 16 * PAGE;

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
    board::use_board(&serial::BOARD);
    let arguments = negative_controls::arguments();
    fail_if(!negative_controls::read_all(arguments), format_args!("unknown boot argument: {arguments}"));
    let start = mmu::physical(&raw const image_end).next_multiple_of(PAGE);
    say!("PowerPC, memory from {start:#x} to {MEMORY:#x}");
    // SAFETY: 1. The board has that memory; it is behind the image, and there is no firmware. 2. It
    // is called here alone.
    let Ok(()) = unsafe { machine::set_up(start, MEMORY) };

    kernel_half::check();
    machine::drain();
    machine::check_balance();

    // One program; then several at once, each with children of its own.
    run_programs(&[30]);
    run_programs(&[8, 8, 8]);

    machine::drain();
    machine::check_balance();
    say!("all frames are back, and no page is hashed");
    machine::report();
    pass()
}

/// Starts programs, each with its rounds, and runs tasks until all have ended.
fn run_programs(programs: &[u64]) {
    for (seed, rounds) in programs.iter().enumerate() {
        let program = (abi::PROGRAM.into(), machine::program().bytes());
        TASKS.start_program(program, (STACK_END, STACK), [*rounds, seed as u64 + 1, 0]);
    }
    // The kernel's half is the same in all spaces, and not the user's.
    kernel_half::with_page(|| TASKS.run());
}
