//! Negative controls: what the kernel leaves out on purpose, as the boot arguments say
//! (`without=flush`). A run in which something is left out must fail, but for ASIDs: a kernel works
//! without, as long as it fences when it changes roots.

use core::sync::atomic::{AtomicU8, Ordering};

/// What can be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// Harts forget nothing.
    Flush = 1 << 0,
    /// Software interrupts are not sent.
    Ipi = 1 << 1,
    /// The interrupt's handler answers and forgets nothing.
    Remote = 1 << 2,
    /// Copy-on-write copies nothing.
    Copy = 1 << 3,
    /// Fresh pages are not cleared.
    Clear = 1 << 4,
    /// All spaces have the kernel's number, 0.
    Asids = 1 << 5,
    /// The fences when a space's root is loaded.
    LoadFence = 1 << 6,
    /// The fence when the kernel's root is loaded.
    UnloadFence = 1 << 7,
}

const PARTS: [(&str, Part); 8] = [
    ("flush", Part::Flush),
    ("ipi", Part::Ipi),
    ("remote", Part::Remote),
    ("copy", Part::Copy),
    ("clear", Part::Clear),
    ("asids", Part::Asids),
    ("load-fence", Part::LoadFence),
    ("unload-fence", Part::UnloadFence),
];

static LEFT_OUT: AtomicU8 = AtomicU8::new(0);

/// Reads the boot arguments; false if they name something that is not known.
pub fn read(arguments: &str) -> bool {
    arguments.split_ascii_whitespace().filter_map(|word| word.strip_prefix("without=")).all(|name| {
        let part = PARTS.iter().find(|(known, _)| *known == name);
        LEFT_OUT.fetch_or(part.map_or(0, |(_, part)| *part as u8), Ordering::Relaxed);
        part.is_some()
    })
}

/// Whether `part` is left out.
#[inline(always)]
pub fn leaves_out(part: Part) -> bool {
    LEFT_OUT.load(Ordering::Relaxed) & part as u8 != 0
}
