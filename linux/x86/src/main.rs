//! The kernel on PCs: Linux programs on one or more CPUs. On x86-64 it is booted through
//! PVH; on 32-bit x86 with PAE through multiboot, and data of programs may lie in high memory.
//!
//! [`arch`] is the directory of the target: its entry and traps, the layout of its address spaces,
//! its registers.
#![no_std]
#![no_main]

#[cfg_attr(target_arch = "x86_64", path = "x86_64/mod.rs")]
#[cfg_attr(target_arch = "x86", path = "i686/mod.rs")]
mod arch;
mod boot;
mod context;
mod cpu;
mod mmu;
mod pc;
mod registers;
mod smp;

use core::sync::atomic::Ordering;

use ptarmigan::machine::Machine as _;
use ptarmigan::setup::Setup;
use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel::memory::setup::{costs, set_up};
use ptarmigan_kernel::{Kernel, params};
use ptarmigan_kernel_base::{Failed, board, say};
use ptarmigan_kernel_x86::{clock, hardware, lapic, port, serial};

use crate::pc::Pc;

ptarmigan_kernel_base::panic_handler!();

/// The kernel.
static KERNEL: Kernel<Pc> = Kernel::new();

/// Where the assembly goes once paging is on. `information` is the boot loader's.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(information: usize, cpu: usize) -> ! {
    // SAFETY: 1. The assembly passes each CPU its own number, once.
    unsafe { cpu::init(cpu) };
    // SAFETY: 1. The kernel's half maps the controller's registers there.
    unsafe { lapic::set_base(arch::LAPIC) };
    lapic::enable();
    if cpu > 0 {
        smp::arrived();
        clock::start_timer();
        KERNEL.run();
    }
    board::use_board(&serial::PC);
    let Ok(()) = start(information as u64);
    KERNEL.run()
}

/// Sets the machine up, and starts the other CPUs and process 1.
fn start(information: u64) -> Result<(), Failed> {
    port::mask_old_controllers();
    serial::init();
    // SAFETY: 1. This is the loader's own pointer, and no memory has been written outside the
    // image.
    let info = unsafe { boot::read(information)? };
    clock::init();
    let text = info.command_line.text();
    let params = params::library(text, |e| say!("kernel: command line: {e}; it is left out"));
    let windows = arch::Windows::read(text).or_else(|e| {
        say!("kernel: command line: {e}; it is left out");
        arch::Windows::read("")
    })?;
    let found = smp::count();
    let cpus = found.min(CPUS);
    if found > cpus {
        say!("kernel: {found} CPUs, of which {cpus} are used: the image is built for no more");
    }
    let runs = &info.runs[..info.run_count];
    // SAFETY: 1. The other CPUs have not been started, and this is the only call.
    let window = unsafe { arch::window() };
    let costs = costs::<Pc>(runs, &window);
    let setup = Setup::new(runs, window, hardware::hardware())
        .kernel_root(arch::tables::kernel_root().physical(arch::tables::DIRECT_MAP))
        .extra(windows.bytes(cpus))
        .parsed(&params);
    // SAFETY: 1. The window shows high frames, too.
    let setup = unsafe { setup.high_tables(costs) };
    // SAFETY: 1. The loader says that it is memory; image, archive and command line are left out,
    // and the window reaches it. 2. The other CPUs have not been started. 3. They are statics.
    let mut left = unsafe { set_up(&KERNEL, cpus, setup, text)? };
    // SAFETY: 1. The other CPUs have not been started, and this is the only call.
    unsafe { windows.init(&mut left)? };
    let machine = KERNEL.machine.get();
    let nodes = machine.frames().nodes();
    for (number, cpu) in KERNEL.cpus.iter().enumerate().take(cpus) {
        // QEMU numbers controllers as it does CPUs.
        let node = info.numbers.of(info.nodes.of_cpu(number as u8));
        cpu.node.store(node, Ordering::Relaxed);
    }
    let memory = machine.policy().memory();
    let high = (memory.total - memory.low_total) >> 20;
    say!(
        "kernel: {cpus} CPUs, {nodes} nodes, {high} MiB of high memory, page tables of {} on the library",
        arch::TABLES
    );
    KERNEL.start(info.archive, &info.command_line);
    // SAFETY: 1. The direct map has the page, and memory below 1 MiB is no frame of the library.
    unsafe { smp::start(cpus, mmu::direct(u64::from(smp::PAGE) << 12)) };
    mmu::drop_identity();
    clock::start_timer();
    // All CPUs answer from here on.
    windows.test();
    Ok(())
}
