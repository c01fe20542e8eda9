//! Time: the time-stamp counter and the local timer, measured against the interval timer.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{lapic, port};

/// Ticks of the interval timer in a second.
const INTERVAL_HZ: u64 = 1_193_182;
/// The time that is measured: 10 ms.
const MEASURED: u64 = 100;
/// Timer interrupts in a second.
pub const HZ: u64 = 250;

/// The counter at boot.
static START: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds of a count, times 2^32.
static SCALE: AtomicU64 = AtomicU64::new(1 << 32);
/// Ticks of the local timer between two interrupts.
static TICKS: AtomicU32 = AtomicU32::new(1);

/// Returns the time-stamp counter.
pub fn counter() -> u64 {
    #[cfg(target_arch = "x86")]
    use core::arch::x86::_rdtsc;
    #[cfg(target_arch = "x86_64")]
    use core::arch::x86_64::_rdtsc;
    // SAFETY: 1. Reading the counter has no effect; every CPU here has it.
    unsafe { _rdtsc() }
}

/// Waits `1 / parts` seconds by the interval timer.
fn wait(parts: u64) {
    let count = INTERVAL_HZ / parts;
    // SAFETY: 1. Channel 2 of the interval timer and its gate, which drive the speaker: its output
    // stays off. One shot of `count` ticks; bit 5 of the port is set when they have passed.
    unsafe {
        port::write(0x61, port::read(0x61) & !3);
        port::write(0x43, 0xb0);
        port::write(0x42, count as u8);
        port::write(0x42, (count >> 8) as u8);
        port::write(0x61, port::read(0x61) & !3 | 1);
        while port::read(0x61) & 0x20 == 0 {}
    }
}

/// Measures both, on the first CPU.
pub fn init() {
    let mut counts = 0;
    let ticks = lapic::measure(|| {
        let before = counter();
        wait(MEASURED);
        counts = counter().wrapping_sub(before);
    });
    START.store(counter(), Ordering::Relaxed);
    SCALE.store(((1_000_000_000 / MEASURED) << 32) / counts.max(1), Ordering::Relaxed);
    TICKS.store((u64::from(ticks) * MEASURED / HZ) as u32, Ordering::Relaxed);
}

/// Has the local timer interrupt this CPU [`HZ`] times a second.
pub fn start_timer() {
    lapic::start_timer(TICKS.load(Ordering::Relaxed));
}

/// Waits for some microseconds.
pub fn pause(microseconds: u64) {
    let begin = now();
    while now().wrapping_sub(begin) < microseconds * 1000 {
        core::hint::spin_loop();
    }
}

/// Returns the nanoseconds since boot.
pub fn now() -> u64 {
    let counts = counter().wrapping_sub(START.load(Ordering::Relaxed));
    ((u128::from(counts) * u128::from(SCALE.load(Ordering::Relaxed))) >> 32) as u64
}
