//! Clears bits in entries of tables that no MMU walks.
use crate::addr::FRAME_SIZE;
use crate::machine::{Machine, On};
use crate::page::{Level, Unhooked};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::window::{OpenWindow, WindowGuard};

/// Clears the bits that formats have left in leaf tables of `tables`: lines that were touched, and
/// no others. All entries are empty, and no code fills them any more.
pub(crate) fn scrub_unhooked<M: Machine>(on: On<'_, M>, tables: &Unhooked) {
    tables.each(on.frames(), |level, at| {
        if level != Level::PTE {
            return;
        }
        let record = on.frames().meta(at.pfn());
        let guard = on.window().open(at);
        let mut lines = record.touched();
        while lines != 0 {
            let line = lines.trailing_zeros() as usize;
            lines &= lines - 1;
            // SAFETY: the guard is valid for the frame (contract of `Window`, point 1), of which
            // this is one of 64 lines; frames are aligned to more than a word. The chain owns the
            // table, and whatever still reads it does so by atomics.
            let words = unsafe {
                let first = guard.base().add(line * LINE).cast::<AtomicU32>();
                core::slice::from_raw_parts(first, LINE / size_of::<u32>())
            };
            words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        record.set_lines(0, 0);
        record.set_lines(1, 0);
    });
}

/// Bytes of a leaf table that one bit of its record stands for.
const LINE: usize = FRAME_SIZE / u64::BITS as usize;
