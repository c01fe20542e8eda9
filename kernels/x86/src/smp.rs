//! The other CPUs.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::{clock, lapic, port};

/// Nanoseconds that a CPU has to start.
const PATIENCE: u64 = 5_000_000_000;
/// Numbers of interrupt controllers by CPU.
static CONTROLLERS: [AtomicU8; 256] = [const { AtomicU8::new(0) }; 256];
/// CPUs that run.
static ARRIVED: AtomicUsize = AtomicUsize::new(1);

/// The code that a CPU begins with, in real mode.
pub struct Trampoline {
    /// Its first byte.
    pub code: *const u8,
    /// Its length in bytes.
    pub len: usize,
    /// Where in it the number of the CPU has to stand, four bytes.
    pub cpu_at: usize,
    /// The number of the page below 1 MiB that it runs in.
    pub page: u8,
    /// Where that page is mapped.
    pub target: *mut u8,
}

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
/// # Errors
///
/// The number of a CPU that does not start.
///
/// # Safety
///
/// 1. `code` has `len` bytes, with room for four at `cpu_at`, and is code that a CPU can begin with
///    at the page's start.
/// 2. The page is memory that no other code uses, mapped at `target`.
pub unsafe fn start(cpus: usize, trampoline: &Trampoline) -> Result<(), usize> {
    let Trampoline { code, len, cpu_at, page, target } = *trampoline;
    CONTROLLERS[0].store(lapic::id(), Ordering::Relaxed);
    for (cpu, place) in CONTROLLERS.iter().enumerate().take(cpus).skip(1) {
        // QEMU numbers controllers as it does CPUs.
        let controller = cpu as u8;
        place.store(controller, Ordering::Relaxed);
        // SAFETY: 1. Points 1 and 2 are passed on; CPUs are started one after the other.
        unsafe {
            target.copy_from_nonoverlapping(code, len);
            target.add(cpu_at).cast::<u32>().write_unaligned(cpu as u32);
        }
        lapic::reset(controller);
        clock::pause(10_000);
        for _ in 0..2 {
            lapic::start(controller, page);
            clock::pause(200);
            if ARRIVED.load(Ordering::SeqCst) > cpu {
                break;
            }
        }
        let begin = clock::now();
        while ARRIVED.load(Ordering::SeqCst) <= cpu {
            core::hint::spin_loop();
            if clock::now().wrapping_sub(begin) > PATIENCE {
                return Err(cpu);
            }
        }
    }
    Ok(())
}
