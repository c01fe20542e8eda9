//! A kernel for RISC-V (Sv39) on the library: a user program on two harts, with page faults, fork
//! and copy-on-write, and shootdowns. QEMU keeps stale translations as hardware does, so the
//! program notices a flush that is missing.
//!
//! Every address space has the user in its lower half and the kernel in the upper one: physical
//! memory from 0 to 4 GiB at [`mmu::DIRECT_MAP`], the image among it.
#![no_std]
#![no_main]

#[allow(dead_code, reason = "an image has some of the calls")]
mod abi;
mod irq;
mod kernel_half;
mod machine;
mod measure;
mod mmu;
mod port;
mod stack;
mod trap;
mod without;

use core::arch::global_asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use port::TASKS;
use ptarmigan_kernel_base::riscv::{fdt, sbi, virt};
use ptarmigan_kernel_base::{board, fail, fail_if, pass, say};
use ptarmigan_kernel_mailbox as mailbox;

ptarmigan_kernel_base::panic_handler!();

global_asm!(include_str!("boot.s"));

/// CPUs that run.
static UP: AtomicUsize = AtomicUsize::new(1);

const PAGE: u64 = 4096;
const STACK_END: u64 = 0x3f_0000_0000;
const STACK: u64 = 16 * PAGE;

/// Where the first hart comes from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(hart: u64, device_tree: u64) -> ! {
    board::use_board(&virt::VIRT);
    // SAFETY: 1. This is the firmware's own pointer. The tree lies in memory that the library gets
    // below, when it is not read any more; the boot arguments are read before.
    let Some(board) = (unsafe { fdt::read(device_tree) }) else {
        fail(format_args!("the firmware passed no device tree"));
    };
    fail_if(!without::read(board.arguments), format_args!("unknown boot argument: {}", board.arguments));
    let announces = board.arguments.split_ascii_whitespace().any(|word| word == mailbox::WORD);
    let end = (board.memory + board.bytes).min(mmu::DIRECT_MAP_LIMIT);
    let start = mmu::physical(&raw const image_end).next_multiple_of(PAGE);
    say!(
        "hart {hart} of {}, memory to {end:#x}, {} ASID bits",
        board.harts,
        mmu::highest_asid().count_ones()
    );

    machine::set_hart(0, hart);
    // SAFETY: 1. No other hart runs yet, and the library is set up below.
    unsafe { kernel_half::map() };
    // SAFETY: 1. The firmware says that it is memory; it is behind the image, and the firmware is
    // before it. 2. No other hart runs yet.
    let (stack, made) = stack::used(|| unsafe { machine::set_up(start, end, board.harts) });
    let Ok(()) = made;
    if announces {
        kernel_half::announce();
    }
    irq::allow(irq::SOFTWARE | irq::TIMER);
    mmu::instructions_changed();
    measure::calls(stack);
    machine::drain(true);
    machine::machine().check_balance(0);

    let others = board.hart_ids.iter().take(board.harts).filter(|id| **id != hart);
    for (cpu, id) in others.enumerate().map(|(n, id)| (n + 1, *id)) {
        machine::set_hart(cpu, id);
        // SAFETY: 1. The code at `start_other` is for that, and CPU numbers are below the number of
        // harts.
        if let Err(e) = unsafe { sbi::start_hart(id, mmu::physical(&raw const start_other), cpu as u64) } {
            fail(format_args!("hart {id}, CPU {cpu}, does not start: {e:?}"));
        }
    }
    while UP.load(Ordering::Acquire) < board.harts {
        core::hint::spin_loop();
    }

    // One space on two harts; then several programs at once, each in other pages than the next.
    let begin = sbi::time();
    run_programs(&[(abi::MODE_SHARED, 200, 0x10_0000_0000)]);
    say!("one space on two harts: {} ms", (sbi::time() - begin) / sbi::TICKS_PER_MS);
    let begin = sbi::time();
    run_programs(&[
        (abi::MODE_SPACES, 40, 0x11_0000_0000),
        (abi::MODE_SPACES, 40, 0x12_3456_7000),
        (abi::MODE_SHARED, 40, 0x13_0000_0000),
    ]);
    say!("several spaces on two harts: {} ms", (sbi::time() - begin) / sbi::TICKS_PER_MS);

    // The others come back from their tasks, and look on while the kernel's half changes.
    TASKS.stop(kernel_half::check);
    machine::drain(true);
    machine::machine().check_balance(0);
    mailbox::send(irq::cpu(), mailbox::code::END, [0; 4]);
    say!("all frames are back");
    machine::report(trap::software_in_calls(), start, end);
    pass()
}

/// Starts programs, each with its mode, its rounds and its place, and runs tasks until all have
/// ended.
fn run_programs(programs: &[(u64, u64, u64)]) {
    for (mode, rounds, at) in programs {
        let program = (*at, machine::program().bytes());
        TASKS.start_program(program, (STACK_END, STACK), [*mode, *rounds, *at >> 12]);
    }
    TASKS.run();
}

/// Where the other harts come from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_other(_hart: u64) -> ! {
    irq::allow(irq::SOFTWARE | irq::TIMER);
    mmu::instructions_changed();
    UP.fetch_add(1, Ordering::Release);
    TASKS.run();
    kernel_half::look();
    machine::drain(false);
    TASKS.stopped();
    loop {
        irq::sleep();
    }
}

unsafe extern "C" {
    /// Set by the link script; only its address means anything.
    static image_end: u8;
    /// Defined by `boot.s`.
    static start_other: u8;
}
