//! A PC of one CPU without interrupts, booted through PVH into long mode: boot code, the loader's
//! map of memory, exceptions.
//!
//! Slots 0 to 255 of a root table are the user's; slot 256 is the direct map of the low 4 GiB, into
//! which `link.ld` links the image.

pub mod boot;
pub mod trap;

use ptarmigan_kernel_base::Board;

use crate::{port, serial};

/// Where the low 4 GiB of physical memory are mapped, the image among them: slot 256 of every root
/// table.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// First physical address that is not mapped there.
pub const DIRECT_MAP_LIMIT: u64 = 4 << 30;

/// Returns where a physical address below 4 GiB is reached for good, whatever the current space
/// maps.
pub fn direct<T>(physical: u64) -> *mut T {
    core::ptr::with_exposed_provenance_mut((DIRECT_MAP + physical) as usize)
}

/// The board of an image that runs so. QEMU's exit status is 33 or 35.
pub static PC: Board =
    Board { put: serial::put, exit: |passed| port::exit(if passed { 0x10 } else { 0x11 }) };
