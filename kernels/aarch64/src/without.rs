//! Negative controls: parts that the kernel leaves out on purpose, by boot argument
//! (`without=flush`). A run in which something is left out must fail, but for ASIDs: a kernel works
//! without, as long as CPUs forget the space before when they load another one.
//!
//! QEMU walks tables as they are in memory, keeps no entry that denies an access, and has no caches
//! of links: what is wrong without barriers, without breaks, or without forgetting these, the
//! sanitizer finds (`crates/ptarmigan-ptsan/tests`).

use ptarmigan_kernel_base::{machine, without};

/// A part that can be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Part {
    /// CPUs keep pages of spaces.
    Flush = 2,
    /// CPUs keep pages of the kernel's half.
    KernelFlush,
    /// Invalidations stay on the CPU that makes them.
    Remote,
    /// Interrupts are not sent.
    Ipi,
    /// All spaces have the kernel's number, 0.
    Asids,
    /// CPUs keep what they know of the space before when they load another one.
    Load,
}

/// Names of parts, in the order of their numbers: first those of the machine.
const PARTS: [&str; 8] = ["clear", "copy", "flush", "kernel-flush", "remote", "ipi", "asids", "load"];
const _: () = assert!(machine::CLEAR == 0 && machine::COPY == 1);

/// Reads the boot arguments; false if they name something that is not known.
pub fn read(arguments: &str) -> bool {
    without::read(arguments, &PARTS)
}

/// Whether `part` is left out.
#[inline]
pub fn leaves_out(part: Part) -> bool {
    without::leaves_out(part as u32)
}
