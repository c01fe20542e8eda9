//! The kernel on x86-64, booted through PVH: static Linux programs on one or more CPUs.
//!
//! Layout of every address space: slots 0 to 255 of the root table are the user's; slot 256 is the
//! direct map of the low 4 GiB, and the image is linked into it.
#![no_std]
#![no_main]

mod boot;
mod context;
mod cpu;
mod frame;
mod mmu;
mod pc;
mod registers;
mod rt;
mod trampoline;

use core::sync::atomic::Ordering;

use ptarmigan_kernel::arch::{Arch, CPUS};
use ptarmigan_kernel::memory::setup::{Board, set_up};
use ptarmigan_kernel::report::refuse;
use ptarmigan_kernel::{Kernel, params, say};
use ptarmigan_kernel_x86::{clock, hardware, lapic, port, serial, smp};

use crate::pc::Pc;

/// The kernel.
static KERNEL: Kernel<Pc> = Kernel::new();

/// Where the assembly goes once long mode is on.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64, cpu: u64) -> ! {
    // SAFETY: 1. The assembly passes each CPU its own number, once.
    unsafe { cpu::init(cpu as usize) };
    // SAFETY: 1. The direct map has the controller's registers, in every space.
    unsafe { lapic::set_base(mmu::direct::<u8>(lapic::PHYSICAL).addr()) };
    lapic::enable();
    if cpu > 0 {
        smp::arrived();
        clock::start_timer();
        KERNEL.run();
    }
    port::mask_old_controllers();
    serial::init();
    // SAFETY: 1. This is the loader's own pointer, and no memory has been written outside the
    // image.
    let info = unsafe { boot::read(start_info) };
    clock::init();
    let text = info.command_line.text();
    let params = params::library(text, |e| say!(Pc, "kernel: command line: {e}; it is left out"));
    let found = smp::count();
    let cpus = found.min(CPUS);
    if found > cpus {
        say!(Pc, "kernel: {found} CPUs, of which {cpus} are used: the image is built for no more");
    }
    let mut runs = info.runs;
    let runs = &mut runs[..info.run_count];
    let board =
        Board { runs, cpus, window: mmu::direct_map(), hardware: hardware::hardware(), extra: 0, params };
    // SAFETY: 1. The loader says that it is memory; image, archive and command line are left out.
    // The direct map reaches it. 2. The other CPUs have not been started.
    match unsafe { set_up(&KERNEL, board) } {
        Ok(_) => {}
        Err(e) => refuse::<Pc>(format_args!("{e}: give the machine more memory, or fewer CPUs")),
    }
    let nodes = KERNEL.frames.get().nodes();
    for (number, cpu) in KERNEL.cpus.iter().enumerate().take(cpus) {
        // QEMU numbers controllers as it does CPUs.
        let node = info.numbers.of(info.nodes.of_cpu(number as u8));
        cpu.node.store(node, Ordering::Relaxed);
    }
    say!(Pc, "kernel: {cpus} CPUs, {nodes} nodes, page tables of x86-64 on the library");
    KERNEL.start(info.archive, &info.command_line);
    trampoline::start_cpus(cpus);
    clock::start_timer();
    debug_assert_eq!(Pc::cpu(), 0);
    KERNEL.run()
}
