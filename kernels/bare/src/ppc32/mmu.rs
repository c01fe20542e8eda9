//! The 604's MMU: segment registers, the hash table's place, and the instruction that forgets a
//! page.

use core::arch::asm;

use ptarmigan::addr::FRAME_SIZE;

/// Where the kernel's half shows the devices' registers.
pub const DEVICES: usize = 0xd000_0000;
/// Segments.
pub const SEGMENTS: u32 = 16;
/// The first segment of the kernel's half.
pub const KERNEL_SEGMENT: u32 = 12;

/// In a segment register: user mode needs the page's permission.
const USER_KEY: u32 = 0x2000_0000;
/// Pages from one that `tlbie` takes for the same on: it looks at 6 bits of the number.
const CLASSES: u32 = 64;

/// Loads a segment register. The user needs permissions in all of them.
///
/// # Safety
///
/// 1. The segment is not among those that the kernel runs in, or gets the number that it has there
///    for good.
pub unsafe fn set_segment(segment: u32, vsid: u32) {
    // SAFETY: point 1 of the caller's; the effect is that of addresses in the segment.
    unsafe {
        asm!("mtsrin {value}, {at}", value = in(reg) USER_KEY | vsid, at = in(reg_nonzero) segment << 28,
            options(nostack, preserves_flags));
    }
}

/// Makes the segment registers loaded before take effect.
pub fn segments_changed() {
    // SAFETY: it orders this CPU's own accesses.
    unsafe { asm!("isync", options(nostack, preserves_flags)) };
}

/// Tells the MMU where the hash table is: 64 KiB from a physical address on.
///
/// # Safety
///
/// 1. The memory is a hash table for good, and aligned to its size.
pub unsafe fn set_hash_table(at: u64) {
    // SAFETY: point 1 of the caller's. A mask of 0 stands for 64 KiB.
    unsafe {
        asm!("sync", "mtspr 25, {at}", "isync", at = in(reg) at as u32, options(nostack, preserves_flags));
    }
}

/// Has all CPUs forget the page at an address, whatever segment it was found in.
pub fn forget(at: u32) {
    // SAFETY: it only drops translations that the hash table has as well.
    unsafe {
        asm!("sync", "tlbie {at}", "eieio", "tlbsync", "sync", "isync",
            at = in(reg) at, options(nostack, preserves_flags));
    }
}

/// Has all CPUs forget everything.
pub fn forget_all() {
    for class in 0..CLASSES {
        forget(class * FRAME_SIZE as u32);
    }
}
