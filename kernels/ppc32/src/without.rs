//! Negative controls: what the kernel leaves out on purpose, as the boot arguments say
//! (`without=tlbie`). A run in which something is left out must fail.

use core::str;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::mmu;

/// What can be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// Pages of spaces are taken out of the hash table, and TLBs forget nothing.
    Tlbie = 1 << 0,
    /// TLBs forget pages of spaces, and the hash table keeps them.
    Remove = 1 << 1,
    /// As `Tlbie`, for pages of the kernel's half.
    KernelTlbie = 1 << 5,
    /// As `Remove`, for pages of the kernel's half.
    KernelRemove = 1 << 6,
    /// Pages are put into the hash table without noting it in the software's entry.
    Bit = 1 << 2,
    /// Copy-on-write copies nothing.
    Copy = 1 << 3,
    /// Fresh pages are not cleared.
    Clear = 1 << 4,
}

const PARTS: [(&str, Part); 7] = [
    ("tlbie", Part::Tlbie),
    ("remove", Part::Remove),
    ("kernel-tlbie", Part::KernelTlbie),
    ("kernel-remove", Part::KernelRemove),
    ("bit", Part::Bit),
    ("copy", Part::Copy),
    ("clear", Part::Clear),
];

static LEFT_OUT: AtomicU8 = AtomicU8::new(0);

/// Where the boot arguments are put, and how long they are at most. There is no firmware to hand
/// them over.
const ARGUMENTS: u64 = 0x8000;
const ARGUMENTS_LEN: usize = 256;

/// The boot arguments, up to the first zero.
pub fn arguments() -> &'static str {
    // SAFETY: memory between the vectors and the image, which nothing writes to.
    let bytes = unsafe { core::slice::from_raw_parts(mmu::direct::<u8>(ARGUMENTS), ARGUMENTS_LEN) };
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    str::from_utf8(&bytes[..len]).unwrap_or("(not text)").trim()
}

/// Reads the boot arguments; false if they name something that is not known.
pub fn read(arguments: &str) -> bool {
    arguments.split_ascii_whitespace().all(|word| {
        let name = word.strip_prefix("without=");
        let part = PARTS.iter().find(|(known, _)| Some(*known) == name);
        LEFT_OUT.fetch_or(part.map_or(0, |(_, part)| *part as u8), Ordering::Relaxed);
        part.is_some()
    })
}

/// Whether `part` is left out.
pub fn leaves_out(part: Part) -> bool {
    LEFT_OUT.load(Ordering::Relaxed) & part as u8 != 0
}
