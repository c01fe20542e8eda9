//! Parts that a run leaves out on purpose, to show that they are missed: `without=flush` on the
//! command line. Only images that are built with the feature `negative` do.

use core::sync::atomic::{AtomicU8, Ordering};

/// The parts that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
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
}

const NAMES: [&str; 6] = ["flush", "answer", "ipi", "clear", "copy", "wake"];
static LEFT_OUT: AtomicU8 = AtomicU8::new(0);

/// Reads the command line.
pub fn read(text: &str) {
    if cfg!(feature = "negative")
        && let Some(name) = crate::params::value(text, "without")
        && let Some(part) = NAMES.iter().position(|known| *known == name)
    {
        LEFT_OUT.store(1 << part, Ordering::Relaxed);
    }
}

/// Returns whether a part is left out; known while compiling in all images but those for this.
#[inline]
pub fn leaves_out(part: Part) -> bool {
    cfg!(feature = "negative") && LEFT_OUT.load(Ordering::Relaxed) & (1 << part as u8) != 0
}
