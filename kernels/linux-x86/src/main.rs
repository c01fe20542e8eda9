//! The kernel on PCs: static Linux programs on one or more CPUs. On x86-64 it is booted through
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
mod frame;
mod mmu;
mod pc;
mod registers;
mod rt;
mod trampoline;

use core::sync::atomic::Ordering;

use ptarmigan::machine::Machine as _;
use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel::memory::setup::{Board, set_up};
use ptarmigan_kernel::report::refuse;
use ptarmigan_kernel::{Kernel, params, say};
use ptarmigan_kernel_x86::{clock, hardware, lapic, port, serial, smp};

use crate::pc::Pc;

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
    port::mask_old_controllers();
    serial::init();
    // SAFETY: 1. This is the loader's own pointer, and no memory has been written outside the
    // image.
    let info = unsafe { boot::read(information as u64) };
    clock::init();
    let text = info.command_line.text();
    let params = params::library(text, |e| say!(Pc, "kernel: command line: {e}; it is left out"));
    let windows = arch::Windows::read(text).or_else(|e| {
        say!(Pc, "kernel: command line: {e}; it is left out");
        arch::Windows::read("")
    });
    let Ok(windows) = windows else { refuse::<Pc>(format_args!("no windows on high memory")) };
    let found = smp::count();
    let cpus = found.min(CPUS);
    if found > cpus {
        say!(Pc, "kernel: {found} CPUs, of which {cpus} are used: the image is built for no more");
    }
    let board = Board {
        runs: &info.runs[..info.run_count],
        cpus,
        // SAFETY: 1. The other CPUs have not been started, and this is the only call.
        window: unsafe { arch::window() },
        hardware: hardware::hardware(),
        kernel_root: arch::tables::kernel_root().physical(arch::tables::DIRECT_MAP),
        extra: windows.bytes(cpus),
        params,
    };
    // SAFETY: 1. The loader says that it is memory; image, archive and command line are left out,
    // and the window reaches it. 2. The other CPUs have not been started. 3. They are statics.
    let mut left = match unsafe { set_up(&KERNEL, board) } {
        Ok(left) => left,
        Err(e) => refuse::<Pc>(format_args!("{e}")),
    };
    // SAFETY: 1. The other CPUs have not been started, and this is the only call.
    if let Err(e) = unsafe { windows.init(&mut left) } {
        refuse::<Pc>(format_args!("{e}"));
    }
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
        Pc,
        "kernel: {cpus} CPUs, {nodes} nodes, {high} MiB of high memory, page tables of {} on the library",
        arch::TABLES
    );
    KERNEL.start(info.archive, &info.command_line);
    trampoline::start_cpus(cpus);
    clock::start_timer();
    // All CPUs answer from here on.
    match windows.test() {
        Some((name, Ok(results))) => say!(Pc, "kernel: kmap={name}: {results}"),
        Some((name, Err(e))) => refuse::<Pc>(format_args!("kmap={name}: {e}")),
        None => {}
    }
    KERNEL.run()
}
