//! A kernel for RISC-V (Sv39) on the library: a user program on two harts, with page faults, fork
//! and copy-on-write, and shootdowns. QEMU keeps stale translations as hardware does, so the
//! program notices a flush that is missing.
//!
//! Every address space has the user in its lower half and the kernel in the upper one: physical
//! memory from 0 to 4 GiB at [`mmu::DIRECT_MAP`], the image among it.
#![no_std]
#![no_main]

mod kernel_half;
mod machine;
mod mmu;
mod negative_controls;
mod port;
mod trap;

use core::arch::global_asm;

use negative_controls::{NegativeControl, leaves_out};
use port::TASKS;
use ptarmigan_kernel_base::riscv::{harts, irq, sbi, virt};
use ptarmigan_kernel_base::smp::groups::{self, Mistake};
use ptarmigan_kernel_base::smp::{self, measure, stack};
use ptarmigan_kernel_base::{board, fail, fail_if, fdt, pass, say};
use ptarmigan_kernel_mailbox as mailbox;

ptarmigan_kernel_base::panic_handler!();

global_asm!(include_str!("../../base/src/riscv/boot.s"));

const PAGE: u64 = 4096;

/// Where the first hart comes from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(hart: u64, device_tree: u64) -> ! {
    board::use_board(&virt::VIRT);
    // SAFETY: 1. This is the firmware's own pointer. The tree lies in memory that the library gets
    // below, when it is not read any more; the boot arguments are read before.
    let Some(board) = (unsafe { fdt::read(mmu::direct(device_tree)) }) else {
        fail(format_args!("the firmware passed no device tree"));
    };
    fail_if(
        !negative_controls::read(board.arguments),
        format_args!("unknown boot argument: {}", board.arguments),
    );
    let announces = board.arguments.split_ascii_whitespace().any(|word| word == mailbox::WORD);
    let end = (board.memory + board.bytes).min(mmu::DIRECT_MAP_LIMIT);
    let start = mmu::physical(&raw const image_end).next_multiple_of(PAGE);
    say!("hart {hart} of {}, memory to {end:#x}, {} ASID bits", board.cpus, mmu::highest_asid().count_ones());

    harts::set(0, hart);
    // SAFETY: 1. No other hart runs yet, and the library is set up below.
    unsafe { kernel_half::map() };
    // SAFETY: 1. The firmware says that it is memory; it is behind the image, and the firmware is
    // before it. 2. No other hart runs yet.
    let (stack, made) = stack::used(|| unsafe { machine::set_up(start, end, board.cpus) });
    let Ok(()) = made;
    if announces {
        kernel_half::announce();
    }
    irq::allow(irq::SOFTWARE | irq::TIMER);
    mmu::instructions_changed();
    measure::calls(&TASKS, machine::program().bytes(), stack);
    // Not in an image as a kernel would be shipped, which has no groups, nor where a recorder reads
    // tables as those of Sv39.
    if cfg!(debug_assertions) && board.napots == board.cpus && !announces {
        groups::check::<mmu::Format, _>(machine::on(&machine::pin()), |mistake| match mistake {
            Mistake::Size => leaves_out(NegativeControl::Size),
            Mistake::Unfold => leaves_out(NegativeControl::Unfold),
        });
    }
    machine::drain(true);
    machine::machine().check_balance(0);

    let others = board.cpu_ids.iter().take(board.cpus).filter(|id| **id != hart);
    for (cpu, id) in others.enumerate().map(|(n, id)| (n + 1, *id)) {
        harts::set(cpu, id);
        // SAFETY: 1. The code at `start_other` is for that, and CPU numbers are below the number of
        // harts.
        if let Err(e) = unsafe { sbi::start_hart(id, mmu::physical(&raw const start_other), cpu as u64) } {
            fail(format_args!("hart {id}, CPU {cpu}, does not start: {e:?}"));
        }
    }
    smp::wait_until_up(board.cpus);

    smp::run_programs(&TASKS, machine::program().bytes());

    // The others come back from their tasks, and look on while the kernel's half changes.
    TASKS.stop(kernel_half::check);
    machine::drain(true);
    machine::machine().check_balance(0);
    mailbox::send(irq::cpu(), mailbox::code::END, [0; 4]);
    say!("all frames are back");
    machine::report(trap::software_in_calls(), start, end);
    pass()
}

/// Where the other harts come from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_other(_hart: u64) -> ! {
    irq::allow(irq::SOFTWARE | irq::TIMER);
    mmu::instructions_changed();
    smp::up();
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
    /// Defined by the assembly.
    static start_other: u8;
}
