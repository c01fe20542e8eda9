//! Masks interrupts, sends and takes them (GICv2), and returns the number of this CPU.

use core::arch::asm;

use super::clock;
use crate::direct::direct;

/// Registers of the distributor and of the CPU's interface.
const DISTRIBUTOR: u64 = 0x0800_0000;
const ENABLE: u64 = DISTRIBUTOR + 0x100;
const SEND: u64 = DISTRIBUTOR + 0xf00;
const INTERFACE: u64 = 0x0801_0000;
const PRIORITY: u64 = INTERFACE + 4;
const TAKE: u64 = INTERFACE + 0xc;
const END: u64 = INTERFACE + 0x10;
/// Interrupts between CPUs, of which the kernel sends 0.
const SOFTWARE: u32 = 0xffff;
/// The virtual timer's.
const TIMER: u32 = 27;
/// The part of [`TAKE`] that is the interrupt's number.
const NUMBER: u32 = 0x3ff;

/// Interrupts are masked while it exists, and afterwards as they were before.
pub struct Masked(u64);

impl Masked {
    /// Masks them.
    pub fn new() -> Self {
        let before;
        // SAFETY: masking interrupts is always allowed to the kernel.
        unsafe { asm!("mrs {}, daif", "msr daifset, #2", out(reg) before, options(nostack)) };
        Masked(before)
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: as they were.
        unsafe { asm!("msr daif, {}", in(reg) self.0, options(nostack)) };
    }
}

/// Runs `f`, which works for a task, with interrupts enabled. The library leaves a request that
/// comes in the middle of a flush or a switch to the code that it interrupts.
pub fn enabled<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the kernel's handler only serves requests and puts the timer off.
    unsafe { asm!("msr daifclr, #2", options(nostack)) };
    let result = f();
    // SAFETY: masking interrupts is always allowed to the kernel.
    unsafe { asm!("msr daifset, #2", options(nostack)) };
    result
}

/// Lets interrupts of other CPUs and of the timer come to this one.
pub fn allow() {
    // SAFETY: registers of the interrupt controller; those that several CPUs set, they set alike.
    unsafe {
        direct::<u32>(DISTRIBUTOR).write_volatile(1);
        direct::<u32>(ENABLE).write_volatile(SOFTWARE | 1 << TIMER);
        direct::<u32>(PRIORITY).write_volatile(0xff);
        direct::<u32>(INTERFACE).write_volatile(1);
    }
}

/// Interrupts a CPU. Earlier stores of this one are visible to it when it takes the interrupt.
pub fn send(cpu: usize) {
    // SAFETY: the register sends an interrupt, which the kernel's own handlers take.
    unsafe {
        asm!("dsb ishst", options(nostack, preserves_flags));
        direct::<u32>(SEND).write_volatile(1 << (16 + cpu));
    }
}

/// Takes a pending interrupt of another CPU; returns whether there was one. Earlier stores of its
/// sender are visible. The timer is left to the one that has set it.
pub fn take_software() -> bool {
    // SAFETY: registers of the interrupt controller. The one that takes it looks for mail
    // afterwards.
    unsafe {
        let taken = direct::<u32>(TAKE).read_volatile();
        if taken & NUMBER > TIMER {
            return false;
        }
        direct::<u32>(END).write_volatile(taken);
        asm!("dsb ish", options(nostack, preserves_flags));
        taken & NUMBER != TIMER
    }
}

/// Sleeps until an interrupt is pending, whether it is masked or not; not the timer's.
pub fn sleep() {
    clock::stop();
    // SAFETY: waiting has no effect on memory.
    unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) };
}

/// The number of this CPU: `tpidr_el1` holds it, from the first instructions.
pub fn cpu() -> usize {
    let cpu;
    // SAFETY: reading a register has no effect.
    unsafe { asm!("mrs {}, tpidr_el1", out(reg) cpu, options(nomem, nostack, preserves_flags)) };
    cpu
}
