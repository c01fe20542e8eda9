//! Negative controls: parts that the kernel leaves out on purpose, by boot argument
//! (`without=flush`). A run in which something is left out must fail, but for ASIDs: a kernel works
//! without, as long as it fences when it changes roots.

use ptarmigan_kernel_base::{machine, without};

/// A part that can be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Part {
    /// Harts do not flush.
    Flush = 2,
    /// Software interrupts are not sent.
    Ipi,
    /// The interrupt's handler answers without a flush.
    Remote,
    /// All spaces have the kernel's number, 0.
    Asids,
    /// The fences when a space's root is loaded.
    LoadFence,
    /// The fence when the kernel's root is loaded.
    UnloadFence,
}

/// Names of parts, in the order of their numbers: first those of the machine.
const PARTS: [&str; 8] = ["clear", "copy", "flush", "ipi", "remote", "asids", "load-fence", "unload-fence"];
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
