//! Parts that a run leaves out on purpose, to show that they are missed: `without=flush` on the
//! command line. Only images that are built with the feature `negative` do.

use ptarmigan_kernel_base::without;

/// The parts that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Part {
    /// A CPU forgets no translations when it should.
    Flush,
    /// A CPU that another one asks to forget translations says that it has, and has not.
    Answer,
    /// A CPU that is asked to forget translations is not interrupted for it.
    Ipi,
    /// Data pages are handed out as they are.
    Clear,
    /// Copies of pages are not made.
    Copy,
    /// Tasks that sleep for a slot are not woken.
    Wake,
    /// A CPU to which flushes were left says that it has made up for them, and has not.
    CatchUp,
}

const NAMES: [&str; 7] = ["flush", "answer", "ipi", "clear", "copy", "wake", "catch-up"];

/// Reads the command line.
pub fn read(text: &str) {
    if cfg!(feature = "negative") {
        without::read(text, &NAMES);
    }
}

/// Returns whether a part is left out; known while compiling in all images but those for this.
pub fn leaves_out(part: Part) -> bool {
    cfg!(feature = "negative") && without::leaves_out(part as u32)
}
