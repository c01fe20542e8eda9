//! The hooks of data frames, and of moments at which everything must have been flushed.
use crate::handles::{Ptsan, hook};

/// Tells that a page was just mapped at `va` in a space. Each CPU that has the space loaded then
/// walks for it, as hardware may at any time. Not needed where stores are told or watched.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_frame_mapped(san: *mut Ptsan, space: u64, va: u64) -> i32 {
    hook("ptsan_frame_mapped", san, |machine| {
        machine.check_at(va, |s, memory| s.frame_mapped(memory, space, va));
        Ok(())
    })
}

/// Tells that the `size` bytes of data at `phys` were freed: given to an allocator, or to any list
/// from which they may be handed out again. Call it when the last user is gone; no references are
/// counted. By then no CPU may translate to them in a space that it runs in, and no entry of such a
/// space may map them to user mode.
///
/// With stores told or watched, this holds for each CPU that could have cached a translation.
/// Otherwise only for those that did.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_frame_freed(san: *mut Ptsan, phys: u64, size: u64) -> i32 {
    hook("ptsan_frame_freed", san, |machine| {
        machine.tell(|s, memory| s.frame_freed(memory, phys, size));
        Ok(())
    })
}

/// Tells that a data frame is handed out again, for kernels whose frees are not told. The same is
/// checked. A frame that is announced as a table (`ptsan_table_allocated`) is checked without it.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_frame_reused(san: *mut Ptsan, phys: u64, size: u64) -> i32 {
    hook("ptsan_frame_reused", san, |machine| {
        machine.tell(|s, memory| s.frame_reused(memory, phys, size));
        Ok(())
    })
}

/// Tells that everything that was unmapped, remapped or restricted so far has been flushed, as far
/// as it belongs to no operation under way, and that no handler of a fault is running. A CPU that
/// may still hold any of it is a finding, for which stores must be told or watched; and so is one
/// that has faulted on an entry which it keeps from before it was valid, and has not flushed since.
/// `ptsan_finish` does the same, and `ptsan_operation_ends` the first.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_flushes_done(san: *mut Ptsan) -> i32 {
    hook("ptsan_flushes_done", san, |machine| {
        machine.tell(|s, memory| s.flushes_done(memory));
        Ok(())
    })
}
