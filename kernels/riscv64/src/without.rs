//! Negative controls: what the kernel leaves out on purpose, as the boot argument says
//! (`without=flush`). A run in which something is left out must fail.

use core::sync::atomic::{AtomicU8, Ordering};

/// What can be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// Harts forget nothing.
    Flush = 1,
    /// Software interrupts are not sent.
    Ipi = 2,
    /// The interrupt's handler answers and forgets nothing.
    Remote = 3,
    /// Copy-on-write copies nothing.
    Copy = 4,
    /// Fresh pages are not cleared.
    Clear = 5,
}

const PARTS: [(&str, Part); 5] = [
    ("flush", Part::Flush),
    ("ipi", Part::Ipi),
    ("remote", Part::Remote),
    ("copy", Part::Copy),
    ("clear", Part::Clear),
];

static LEFT_OUT: AtomicU8 = AtomicU8::new(0);

/// Reads the boot arguments; false if they name something that is not known.
pub fn read(arguments: &str) -> bool {
    arguments.split_ascii_whitespace().filter_map(|word| word.strip_prefix("without=")).all(|name| {
        let part = PARTS.iter().find(|(known, _)| *known == name);
        LEFT_OUT.store(part.map_or(0, |(_, part)| *part as u8), Ordering::Relaxed);
        part.is_some()
    })
}

/// Whether `part` is left out.
#[inline(always)]
pub fn leaves_out(part: Part) -> bool {
    LEFT_OUT.load(Ordering::Relaxed) == part as u8
}
