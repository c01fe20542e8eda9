//! Negative controls: parts that the kernel leaves out on purpose, by boot argument
//! (`without=flush`). A run in which something is left out must fail, but for ASIDs: a kernel works
//! without, as long as the CPU forgets the space before when it loads another one.

use ptarmigan_kernel_base::{machine, without};

/// A part that can be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Part {
    /// The CPU keeps pages of spaces.
    Flush = 2,
    /// The TLB keeps entries that were not valid or not dirty when they became so.
    Valid,
    /// The refill goes on where a directory is empty.
    Test,
    /// All spaces have the kernel's number, 0.
    Asids,
    /// The CPU keeps what it knows of the space before when it loads another one.
    Load,
}

/// Names of parts, in the order of their numbers: first those of the machine.
pub const PARTS: [&str; 7] = ["clear", "copy", "flush", "valid", "test", "asids", "load"];
const _: () = assert!(machine::CLEAR == 0 && machine::COPY == 1);

/// Whether `part` is left out.
pub fn leaves_out(part: Part) -> bool {
    without::leaves_out(part as u32)
}
