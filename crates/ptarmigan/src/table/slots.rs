//! The entries of one table, behind a window.
use crate::addr::PhysAddr;
use crate::format::Format;
use crate::frames::FrameMeta;
use crate::quicklist::Level;
use crate::window::{Window, WindowGuard};
use core::marker::PhantomData;

/// An open table.
pub(super) struct Slots<'w, F: Format, W: Window + 'w> {
    guard: W::Guard<'w>,
    _format: PhantomData<F>,
}

impl<'w, F: Format, W: Window> Slots<'w, F, W> {
    /// Opens the table at `at`, which belongs to a tree that the caller holds.
    #[inline(always)]
    pub fn open(window: &'w W, at: PhysAddr) -> Self {
        Slots { guard: window.map(at), _format: PhantomData }
    }

    /// Entry `index` of a table of `level`.
    #[inline(always)]
    pub fn at(&self, level: Level, index: usize) -> &F::Slot {
        let index = index & (F::entries(level) - 1);
        // SAFETY: the guard is valid for the whole table (contract of `Window`, point 1), `index` was reduced to
        // the table's size (entries are a power of two), and `Slot` accepts any bit pattern and shared access.
        unsafe { self.guard.base().cast::<F::Slot>().add(index).as_ref() }
    }
}

/// Binary logarithm of the entries that one bit of the record's bitmap stands for.
#[inline(always)]
pub(super) fn line_shift<F: Format>(level: Level) -> u32 {
    (F::entries(level) / 64).trailing_zeros()
}

/// Whether tables of the level have a record of their own: all but tops smaller than a frame.
#[inline(always)]
pub(super) fn has_record<F: Format>(level: Level) -> bool {
    !F::LAYOUT.is_small(level)
}

/// Calls `visit` for every index from `first` to `last` (inclusive) whose line has been touched, in order.
///
/// Of tops that are split between user and kernel only the first word of the bitmap is the user's.
#[inline(always)]
pub(super) fn each_touched<F: Format>(
    meta: Option<&FrameMeta>,
    level: Level,
    first: usize,
    last: usize,
    mut visit: impl FnMut(usize),
) {
    let Some(meta) = meta else {
        (first..=last).for_each(visit);
        return;
    };
    let shift = line_shift::<F>(level);
    let (line0, line1) = ((first >> shift) as u32, (last >> shift) as u32);
    for word in line0 / 32..=line1 / 32 {
        let mut bits = meta.lines(word as usize);
        if word == line0 / 32 {
            bits &= u32::MAX << (line0 % 32);
        }
        if word == line1 / 32 {
            bits &= u32::MAX >> (31 - line1 % 32);
        }
        while bits != 0 {
            let line = word * 32 + bits.trailing_zeros();
            bits &= bits - 1;
            let from = ((line as usize) << shift).max(first);
            let to = (((line as usize + 1) << shift) - 1).min(last);
            for index in from..=to {
                visit(index);
            }
        }
    }
}

/// `n` entries more are live in the table of `meta`, the last of them at `index`.
#[inline(always)]
pub(super) fn born<F: Format>(meta: &FrameMeta, level: Level, index: usize) {
    meta.set_live(meta.live() + 1);
    meta.touch((index >> line_shift::<F>(level)) as u32);
}

/// `n` entries of the table of `meta` have been cleared.
#[inline(always)]
pub(super) fn died(meta: &FrameMeta, n: u16, top: bool) {
    let left = meta.live() - n;
    meta.set_live(left);
    if left == 0 {
        meta.set_lines(0, 0);
        if !top {
            // The second word of a top is not the bitmap's.
            meta.set_lines(1, 0);
        }
    }
}
