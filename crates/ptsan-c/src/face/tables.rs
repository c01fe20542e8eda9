//! The hooks of the allocator of table frames.
use crate::error::Refusal;
use crate::handles::{Ptsan, hook};
use ptsan::Content;
use std::cell::Cell;

/// In place of a table's level: not known.
pub const PTSAN_ANY_LEVEL: i32 = -1;

/// The content of a frame when it is announced as a table.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtsanContent {
    /// Zero, as the allocator promised. It is checked at once.
    Zero = 0,
    /// Anything. The kernel clears it before it links it, which is checked when the table becomes
    /// reachable.
    Unknown = 1,
    /// Not checked, at no cost.
    Unchecked = 2,
}

/// Tells that the `size` bytes at `phys` were allocated to hold a table. Call it when the allocator
/// returns the frame, before the kernel clears it.
///
/// `level` counts from 0, the level of the smallest pages; `PTSAN_ANY_LEVEL` if it is not known.
/// `content` is an `enum ptsan_content`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_table_allocated(
    san: *mut Ptsan,
    phys: u64,
    size: u64,
    level: i32,
    content: u32,
) -> i32 {
    hook("ptsan_table_allocated", san, |machine| {
        let content = match content {
            c if c == PtsanContent::Zero as u32 => Content::Zero,
            c if c == PtsanContent::Unknown as u32 => Content::Unknown,
            c if c == PtsanContent::Unchecked as u32 => Content::Unchecked,
            c => return Err(Refusal::argument(format!("content {c}; see enum ptsan_content"))),
        };
        let level = match u8::try_from(level) {
            Ok(level) => Some(level),
            Err(_) if level == PTSAN_ANY_LEVEL => None,
            Err(_) => {
                return Err(Refusal::argument(format!("level {level}; count from 0, or PTSAN_ANY_LEVEL")));
            }
        };
        // One finding for a frame that is not zero, in either tree.
        let is_first = Cell::new(true);
        machine.tell(|s, memory| {
            let is_checked = is_first.replace(false) || content != Content::Zero;
            let content = if is_checked { content } else { Content::Unchecked };
            s.table_allocated(memory, phys, size, level, content);
        });
        Ok(())
    })
}

/// Tells that the table at `phys` of `size` bytes was freed: given to an allocator, or to any list
/// from which it may be allocated again. By then no CPU may hold it, and no entry may point at it.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_table_freed(san: *mut Ptsan, phys: u64, size: u64) -> i32 {
    hook("ptsan_table_freed", san, |machine| {
        machine.tell(|s, memory| s.table_freed(memory, phys, size));
        Ok(())
    })
}

/// Tells that the table was given to a list from which frames are taken only after the next full
/// flush: the allocator promises the order, not the caller. The free is checked as by
/// `ptsan_table_freed`, but when the frame is allocated as a table or handed out
/// (`ptsan_frame_reused`).
///
/// A flush of everything or of a space, or a load of a root, makes it final without a finding if
/// after it no CPU can hold the table and no entry points at it. A free that is not final at the
/// end of the run is no leak.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_table_freed_at_flush(san: *mut Ptsan, phys: u64, size: u64) -> i32 {
    hook("ptsan_table_freed_at_flush", san, |machine| {
        machine.tell(|s, memory| s.table_freed_at_flush(memory, phys, size));
        Ok(())
    })
}
