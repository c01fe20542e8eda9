//! The other CPUs.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel::report::refuse;
use ptarmigan_kernel_x86::{clock, lapic, port};

use crate::mmu;
use crate::pc::Pc;

/// Where the trampoline is copied to.
const TRAMPOLINE: u64 = 0x8000;
/// Nanoseconds that a CPU has to start.
const PATIENCE: u64 = 5_000_000_000;
/// Numbers of interrupt controllers by CPU.
static CONTROLLERS: [AtomicU8; CPUS] = [const { AtomicU8::new(0) }; CPUS];
/// CPUs that run.
static ARRIVED: AtomicUsize = AtomicUsize::new(1);

/// Returns the number of CPUs that the machine has: QEMU's firmware interface keeps it in the
/// clock's memory.
pub fn count() -> usize {
    // SAFETY: 1. The index and data ports of the clock's memory; reading changes nothing.
    let others = unsafe {
        port::write(0x70, 0x5f);
        port::read(0x71)
    };
    usize::from(others) + 1
}

/// Interrupts a CPU.
pub fn interrupt(cpu: usize) {
    if let Some(controller) = CONTROLLERS.get(cpu) {
        lapic::interrupt(controller.load(Ordering::Relaxed));
    }
}

/// Says that the calling CPU runs.
pub fn arrived() {
    ARRIVED.fetch_add(1, Ordering::SeqCst);
}

/// Starts the CPUs from 1 to `cpus - 1`, one by one; the boot root leads to the kernel alone then.
pub fn start(cpus: usize) {
    unsafe extern "C" {
        static trampoline: u8;
        static trampoline_end: u8;
        static trampoline_cpu: u8;
    }
    let code = &raw const trampoline;
    let len = (&raw const trampoline_end).addr() - code.addr();
    let cpu_at = (&raw const trampoline_cpu).addr() - code.addr();
    CONTROLLERS[0].store(lapic::id(), Ordering::Relaxed);
    let target = mmu::direct::<u8>(TRAMPOLINE);
    for (cpu, place) in CONTROLLERS.iter().enumerate().take(cpus).skip(1) {
        // QEMU numbers controllers as it does CPUs.
        let controller = cpu as u8;
        place.store(controller, Ordering::Relaxed);
        // SAFETY: 1. The page is memory below 1 MiB that nothing uses; CPUs are started one after
        // the other. 2. The code and its end are symbols of one block of the assembly.
        unsafe {
            target.copy_from_nonoverlapping(code, len);
            target.add(cpu_at).cast::<u32>().write_unaligned(cpu as u32);
        }
        lapic::reset(controller);
        clock::pause(10_000);
        for _ in 0..2 {
            lapic::start(controller, (TRAMPOLINE >> 12) as u8);
            clock::pause(200);
            if ARRIVED.load(Ordering::SeqCst) > cpu {
                break;
            }
        }
        let begin = clock::now();
        while ARRIVED.load(Ordering::SeqCst) <= cpu {
            core::hint::spin_loop();
            if clock::now().wrapping_sub(begin) > PATIENCE {
                refuse::<Pc>(format_args!(
                    "CPU {cpu} of {cpus} does not start: their controllers have to be numbered from 0 \
                     without gaps, in QEMU with one socket (-smp {cpus},sockets=1), or start with fewer CPUs"
                ));
            }
        }
    }
    mmu::drop_identity();
}
