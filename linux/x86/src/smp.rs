//! Starts the other CPUs.
//!
//! ```text
//!  CPU 0   page of 16-bit code ── number, stack ── reset, start, start ──> waits: ARRIVED > cpu
//!  CPU n                                             64-bit mode ── arrived: ARRIVED + 1
//!  CPU 0   5 s without it ──> fail: the reason, and the options of QEMU that help
//! ```
//!
//! # Why
//!
//! CPUs start one by one, because all use the same page of code, which holds the number of the one
//! that is starting. A second start is sent only if the first had no effect: a CPU that runs
//! already would ignore it. A CPU that never comes must end the boot with a line that names the
//! remedy.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_x86::{clock, lapic, port};

/// The page below 1 MiB that the trampoline is copied to.
pub const PAGE: u8 = 8;
/// Nanoseconds that a CPU has to start.
const PATIENCE: u64 = 5_000_000_000;
/// Numbers of interrupt controllers by CPU.
static CONTROLLERS: [AtomicU8; 256] = [const { AtomicU8::new(0) }; 256];
/// CPUs that run.
static ARRIVED: AtomicUsize = AtomicUsize::new(1);

/// Returns the number of CPUs that the machine has: QEMU's firmware interface keeps it in the
/// clock's memory.
pub fn count() -> usize {
    // SAFETY: 1. The index and data ports of the clock's memory; reading has no effect.
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

/// Starts the CPUs from 1 to `cpus - 1`, one by one.
///
/// # Safety
///
/// 1. [`PAGE`] is mapped at `target`, and no other code uses it.
pub unsafe fn start(cpus: usize, target: *mut u8) {
    unsafe extern "C" {
        /// The code that a CPU begins with, in real mode, and where in it its number has to stand.
        static trampoline: u8;
        static trampoline_end: u8;
        static trampoline_cpu: u8;
    }
    let code = &raw const trampoline;
    let len = (&raw const trampoline_end).addr() - code.addr();
    let cpu_at = (&raw const trampoline_cpu).addr() - code.addr();
    CONTROLLERS[0].store(lapic::id(), Ordering::Relaxed);
    for (cpu, place) in CONTROLLERS.iter().enumerate().take(cpus).skip(1) {
        // QEMU numbers controllers as it does CPUs.
        let controller = cpu as u8;
        place.store(controller, Ordering::Relaxed);
        // SAFETY: 1. The code, its end and the place of the number are symbols of one block of the
        // assembly, which is written for this page. 2. Point 1 of the caller's; CPUs are started
        // one after the other.
        unsafe {
            target.copy_from_nonoverlapping(code, len);
            target.add(cpu_at).cast::<u32>().write_unaligned(cpu as u32);
        }
        lapic::reset(controller);
        clock::pause(10_000);
        for _ in 0..2 {
            lapic::start(controller, PAGE);
            clock::pause(200);
            if ARRIVED.load(Ordering::SeqCst) > cpu {
                break;
            }
        }
        let begin = clock::now();
        while ARRIVED.load(Ordering::SeqCst) <= cpu {
            core::hint::spin_loop();
            if clock::now().wrapping_sub(begin) > PATIENCE {
                fail(format_args!(
                    "CPU {cpu} of {cpus} does not start: their controllers have to be numbered from 0 \
                     without gaps, in QEMU with one socket (-smp {cpus},sockets=1), or start with fewer CPUs"
                ));
            }
        }
    }
}
