//! The local interrupt controller of each CPU.

use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Where its registers are in physical memory.
pub const PHYSICAL: u64 = 0xfee0_0000;
/// The vector of spurious interrupts.
pub const SPURIOUS: u8 = 0xff;
/// The vector of the timer.
pub const TIMER: u8 = 0x20;
/// The vector of interrupts from other CPUs.
pub const IPI: u8 = 0xf0;

const ID: usize = 0x20;
const END: usize = 0xb0;
const SPURIOUS_VECTOR: usize = 0xf0;
const COMMAND: usize = 0x300;
const COMMAND_HIGH: usize = 0x310;
const TIMER_VECTOR: usize = 0x320;
const TIMER_START: usize = 0x380;
const TIMER_NOW: usize = 0x390;
const TIMER_DIVIDE: usize = 0x3e0;
const SENDING: u32 = 1 << 12;
const PERIODIC: u32 = 1 << 17;
const MASKED: u32 = 1 << 16;

static BASE: AtomicUsize = AtomicUsize::new(0);

/// Says where the registers are mapped.
///
/// # Safety
///
/// 1. `base` is where [`PHYSICAL`] is mapped, in every space, for good.
pub unsafe fn set_base(base: usize) {
    BASE.store(base, Ordering::Relaxed);
}

fn register(offset: usize) -> *mut u32 {
    ptr::with_exposed_provenance_mut(BASE.load(Ordering::Relaxed) + offset)
}

fn read(offset: usize) -> u32 {
    // SAFETY: 1. A register of the controller (`set_base`); the offsets of this file can be read
    // without an effect.
    unsafe { register(offset).read_volatile() }
}

fn write(offset: usize, value: u32) {
    // SAFETY: 1. A register of the controller (`set_base`), which changes no memory.
    unsafe { register(offset).write_volatile(value) };
}

/// Turns this CPU's controller on.
pub fn enable() {
    write(SPURIOUS_VECTOR, 0x100 | u32::from(SPURIOUS));
}

/// Returns the number of this CPU's controller.
pub fn id() -> u8 {
    (read(ID) >> 24) as u8
}

/// Says that an interrupt has been served.
#[inline]
pub fn end() {
    write(END, 0);
}

fn command(to: u8, command: u32) {
    write(COMMAND_HIGH, u32::from(to) << 24);
    write(COMMAND, command);
    while read(COMMAND) & SENDING != 0 {
        core::hint::spin_loop();
    }
}

/// Interrupts the CPU whose controller has number `to`, with vector [`IPI`].
pub fn interrupt(to: u8) {
    command(to, 0x4000 | u32::from(IPI));
}

/// Resets another CPU.
pub fn reset(to: u8) {
    command(to, 0x4500);
}

/// Starts another CPU, which was reset, at a page below 1 MiB.
pub fn start(to: u8, page: u8) {
    command(to, 0x4600 | u32::from(page));
}

/// Returns the ticks of the timer that pass while `wait` runs.
pub fn measure(wait: impl FnOnce()) -> u32 {
    write(TIMER_DIVIDE, 0b0011);
    write(TIMER_VECTOR, MASKED | u32::from(TIMER));
    write(TIMER_START, u32::MAX);
    wait();
    let left = read(TIMER_NOW);
    write(TIMER_START, 0);
    u32::MAX - left
}

/// Has the timer interrupt this CPU every `ticks`.
pub fn start_timer(ticks: u32) {
    write(TIMER_DIVIDE, 0b0011);
    write(TIMER_VECTOR, PERIODIC | u32::from(TIMER));
    write(TIMER_START, ticks.max(1));
}
