//! A kernel for AArch64 (4 KiB granule, 48-bit addresses, EL1) on the library: a user program on
//! two CPUs, with page faults, fork and copy-on-write, ASIDs, break-before-make and broadcast
//! invalidations. QEMU keeps stale translations as hardware does, so the program notices an
//! invalidation that is missing.
//!
//! The user has the tree below `TTBR0`, the kernel that below `TTBR1`: physical memory from 0 to
//! 4 GiB at [`DIRECT_MAP`](ptarmigan_kernel_base::direct::DIRECT_MAP), the image among it.
#![no_std]
#![no_main]

mod device;
mod kernel_half;
mod machine;
mod mmu;
mod negative_controls;
mod port;
mod trap;

use core::arch::global_asm;

use negative_controls::{NegativeControl, leaves_out};
use port::TASKS;
use ptarmigan::arch::aarch64::Features;
use ptarmigan::format::Aarch64;
use ptarmigan_kernel_base::aarch64::{irq, memory, psci, virt};
use ptarmigan_kernel_base::direct::{DIRECT_MAP_LIMIT, direct, physical};
use ptarmigan_kernel_base::smp::groups::{self, Mistake};
use ptarmigan_kernel_base::smp::{self, measure, stack};
use ptarmigan_kernel_base::{board, fail, fail_if, fdt, pass, say};

ptarmigan_kernel_base::panic_handler!();

global_asm!(include_str!("../../base/src/aarch64/boot.s"), mair = const Aarch64::MAIR);

const PAGE: u64 = 4096;

/// Where the first CPU comes from the assembly. The board starts CPU 0.
#[unsafe(no_mangle)]
extern "C" fn kernel_main() -> ! {
    board::use_board(&virt::VIRT);
    // SAFETY: 1. The board has put it there, below the image; that memory is not used for anything
    // else.
    let Some(board) = (unsafe { fdt::read(direct(virt::DEVICE_TREE)) }) else {
        fail(format_args!("the board has no device tree"));
    };
    fail_if(
        !negative_controls::read(board.arguments),
        format_args!("unknown boot argument: {}", board.arguments),
    );
    let end = (board.memory + board.bytes).min(DIRECT_MAP_LIMIT);
    let start = physical(&raw const image_end).next_multiple_of(PAGE);
    let Features { asids, ranges, .. } = Features::read();
    say!(
        "{} CPUs, memory to {end:#x}, {} ASID bits, invalidation of {}",
        board.cpus,
        asids.count_ones(),
        if ranges { "ranges" } else { "pages" }
    );

    // SAFETY: 1. The board says that it is memory; it is behind the image. 2. No other CPU runs
    // yet.
    let (stack, made) = stack::used(|| unsafe { machine::set_up(start, end, board.cpus) });
    let Ok(()) = made;
    machine::load_tree();
    irq::allow();
    mmu::instructions_changed();
    measure::calls(&TASKS, machine::program().bytes(), stack);
    // Not in an image as a kernel would be shipped.
    if cfg!(debug_assertions) {
        memory::check();
        groups::check::<Aarch64, _>(machine::on(&machine::pin()), |mistake| {
            mistake == Mistake::Unfold && leaves_out(NegativeControl::Unfold)
        });
    }
    machine::drain(true);
    machine::check_balance();
    device::check();
    let range = kernel_half::Range::claim();

    for (cpu, id) in board.cpu_ids.iter().enumerate().take(board.cpus).skip(1) {
        // SAFETY: 1. The code at `start_other` is for that, and CPU numbers are below the number of
        // CPUs.
        if let Err(e) = unsafe { psci::start_cpu(*id, physical(&raw const start_other), cpu as u64) } {
            fail(format_args!("CPU {cpu} does not start: {e:?}"));
        }
    }
    smp::wait_until_up(board.cpus);

    smp::run_programs(&TASKS, machine::program().bytes());

    // The others come back from their tasks, and look on while the kernel's half changes.
    TASKS.stop(|| range.check());
    machine::drain(true);
    machine::check_balance();
    say!("all frames are back");
    machine::report(trap::software_in_calls(), start, end);
    pass()
}

/// Where the other CPUs come from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_other() -> ! {
    machine::load_tree();
    irq::allow();
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
