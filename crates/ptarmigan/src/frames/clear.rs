//! Clearing a frame, through the caches or past them.
//!
//! An ordinary store brings the line into the cache, which is right for a frame that is used next.
//! One that is cleared ahead and rests until it is wanted would drive out 64 lines that are in use;
//! its zeros go to memory directly (non-temporal stores) where the processor has them:
//!
//! * x86-64: `movnti`, which is part of the architecture and needs no vector register, so that
//!   kernels compiled without SSE use it too;
//! * elsewhere, and in interpreters and models: ordinary stores. AArch64's `dc zva` allocates lines
//!   as stores do on most processors, so it has no advantage here.
use crate::addr::FRAME_SIZE;

/// Clears a frame with ordinary stores.
///
/// # Safety
///
/// 1. `base` must be valid for writes of [`FRAME_SIZE`] bytes, and no other code may use them.
#[inline]
pub(super) unsafe fn through_caches(base: *mut u8) {
    // SAFETY: point 1 is passed on; any alignment will do for bytes.
    unsafe { base.write_bytes(0, FRAME_SIZE) };
}

/// Clears a frame without bringing it into the caches, where the processor can do that.
///
/// # Safety
///
/// 1. `base` must be valid for writes of [`FRAME_SIZE`] bytes, and no other code may use them.
/// 2. It must be aligned to 8 bytes.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
pub(super) unsafe fn past_caches(base: *mut u8) {
    // A line a turn, so that the write-combining buffer is filled at once. The fence orders these
    // stores, which have no order by themselves, before all that comes after: the frame may be
    // handed to another CPU.
    //
    // SAFETY: it stores to `base` .. `base` + FRAME_SIZE only, a multiple of 64, which point 1
    // allows, and leaves registers and stack as the operands say. `movnti` and `sfence` belong to
    // every x86-64 processor, whatever the compiler may use.
    unsafe {
        core::arch::asm!(
            "2:",
            "movnti [{at}], {zero}",
            "movnti [{at} + 8], {zero}",
            "movnti [{at} + 16], {zero}",
            "movnti [{at} + 24], {zero}",
            "movnti [{at} + 32], {zero}",
            "movnti [{at} + 40], {zero}",
            "movnti [{at} + 48], {zero}",
            "movnti [{at} + 56], {zero}",
            "add {at}, 64",
            "cmp {at}, {end}",
            "jne 2b",
            "sfence",
            at = inout(reg) base => _,
            end = in(reg) base.wrapping_add(FRAME_SIZE),
            zero = in(reg) 0u64,
            options(nostack),
        );
    }
}

/// This target has ordinary stores only.
#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
pub(super) use self::through_caches as past_caches;
