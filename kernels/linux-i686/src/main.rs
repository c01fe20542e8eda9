//! The kernel on 32-bit x86 with PAE, booted through multiboot: static Linux programs whose data
//! may lie in high memory.
//!
//! Layout of every address space: the low 3 GiB are the user's. At 3 GiB begins the direct map of
//! the low 768 MiB, with the image; above it are windows on high memory and the registers of the
//! interrupt controller. Tables and files lie in low memory, data frames in high memory first.
#![no_std]
#![no_main]

mod boot;
mod context;
mod cpu;
mod frame;
mod kmap;
mod mmu;
mod pc;
mod registers;
mod rt;
mod trampoline;
mod windows;

use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel::memory::setup::{Board, set_up};
use ptarmigan_kernel::report::refuse;
use ptarmigan_kernel::{Kernel, params, say};
use ptarmigan_kernel_x86::{clock, hardware, lapic, port, serial, smp};
use ptarmigan_linux::FlushRule::{EveryRound, Stale};

use crate::pc::Pc;

/// Values of `kmap=`.
const KMAP: &str = "local, linux-6.1, linux-2.4";

/// The kernel.
static KERNEL: Kernel<Pc> = Kernel::new();

/// Where the assembly goes once paging is on.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(information: u32, cpu: u32) -> ! {
    // SAFETY: 1. The assembly passes each CPU its own number, once.
    unsafe { cpu::init(cpu as usize) };
    // SAFETY: 1. The kernel's half maps the controller's registers where they are.
    unsafe { lapic::set_base(lapic::PHYSICAL as usize) };
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
    let info = unsafe { boot::read(information) };
    clock::init();
    let text = info.command_line.text();
    let params = params::library(text, |e| say!(Pc, "kernel: command line: {e}; it is left out"));
    let (kmap, linux) = params::choice(text, "kmap", KMAP, &[None, Some(Stale), Some(EveryRound)])
        .unwrap_or_else(|e| {
            say!(Pc, "kernel: command line: {e}; it is left out");
            None
        })
        .unwrap_or(("local", None));
    let found = smp::count();
    let cpus = found.min(CPUS);
    if found > cpus {
        say!(Pc, "kernel: {found} CPUs, of which {cpus} are used: the image is built for no more");
    }
    let mut runs = info.runs;
    let runs = &mut runs[..info.run_count];
    let window = mmu::direct_map();
    let board = Board {
        runs,
        cpus,
        window,
        hardware: hardware::hardware(),
        extra: windows::bytes(cpus, linux),
        params,
    };
    // SAFETY: 1. The loader says that it is memory; image, archive and command line are left out,
    // and the direct map reaches low memory. 2. The other CPUs have not been started.
    let mut left = match unsafe { set_up(&KERNEL, board) } {
        Ok(left) => left,
        Err(e) => refuse::<Pc>(format_args!(
            "{e}: give the machine more low memory (low=), or less memory above it"
        )),
    };
    // SAFETY: 1. The other CPUs have not been started, and this is the only call.
    if let Err(e) = unsafe { windows::init(&mut left, linux) } {
        refuse::<Pc>(format_args!("no windows on high memory: {e}"));
    }
    let memory = KERNEL.machine.get().lists().memory();
    let high = (memory.total - memory.low_total) >> 20;
    say!(Pc, "kernel: {cpus} CPUs, {high} MiB of high memory, page tables of x86 PAE on the library");
    KERNEL.start(info.archive, &info.command_line);
    trampoline::start_cpus(cpus);
    clock::start_timer();
    // All CPUs answer from here on.
    if linux.is_some()
        && let Err(e) = kmap::test(kmap)
    {
        refuse::<Pc>(format_args!("kmap={kmap}: {e}"));
    }
    KERNEL.run()
}
