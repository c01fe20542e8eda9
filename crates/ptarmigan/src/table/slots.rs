//! The entries of one table, behind a window.
use crate::addr::PhysAddr;
use crate::format::{Format, Slot};
use crate::frames::FrameMeta;
use crate::page::Level;
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

/// Entries that [`each_line`] hands over together at most: as many as a word has bits.
const MOST: usize = u64::BITS as usize;

/// How many entries [`each_line`] hands over together in tables of `level`.
#[inline(always)]
pub(super) fn line_len<F: Format>(level: Level) -> usize {
    (1 << line_shift::<F>(level)).min(MOST)
}

/// Calls `visit(start, live)` for every line, or [`line_len`] entries of it, with entries from `first` to `last`
/// (inclusive) that are not none, in order: bit i of `live` says that entry `start` + i is one of them. Looks only
/// at lines that have been touched.
///
/// Where in its line an entry lies is as good as random, so the entries of a line are tested without branches.
///
/// Of tops that are split between user and kernel only the first word of the bitmap is the user's.
#[inline(always)]
pub(super) fn each_line<F: Format, W: Window>(
    slots: &Slots<'_, F, W>,
    meta: &FrameMeta,
    level: Level,
    first: usize,
    last: usize,
    mut visit: impl FnMut(usize, u64),
) {
    let shift = line_shift::<F>(level);
    let len = line_len::<F>(level);
    let mut lines = meta.touched() & u64::MAX << (first >> shift) & u64::MAX >> (63 - (last >> shift));
    while lines != 0 {
        let line = (lines.trailing_zeros() as usize) << shift;
        lines &= lines - 1;
        for start in (line..line + (1 << shift)).step_by(len) {
            let mut live = 0;
            for i in 0..len {
                live |= u64::from(slots.at(level, start + i).load() != 0) << i;
            }
            if start < first {
                live &= u64::MAX.checked_shl((first - start) as u32).unwrap_or(0);
            }
            if start + len - 1 > last {
                live &= u64::MAX.checked_shr((start + MOST - 1 - last) as u32).unwrap_or(0);
            }
            if live != 0 {
                visit(start, live);
            }
        }
    }
}

/// Calls `visit` with the number of each bit of `live`, lowest first.
#[inline(always)]
pub(super) fn each_bit(mut live: u64, mut visit: impl FnMut(usize)) {
    while live != 0 {
        visit(live.trailing_zeros() as usize);
        live &= live - 1;
    }
}

/// Calls `visit(index, entry)` for every entry from `first` to `last` (inclusive) that is not none, in order.
/// Without a record it looks at all of them.
#[inline(always)]
pub(super) fn each_live<F: Format, W: Window>(
    slots: &Slots<'_, F, W>,
    meta: Option<&FrameMeta>,
    level: Level,
    first: usize,
    last: usize,
    mut visit: impl FnMut(usize, u64),
) {
    match meta {
        Some(meta) => each_line(slots, meta, level, first, last, |start, live| {
            each_bit(live, |i| visit(start + i, slots.at(level, start + i).load()));
        }),
        None => {
            for index in first..=last {
                let raw = slots.at(level, index).load();
                if raw != 0 {
                    visit(index, raw);
                }
            }
        }
    }
}

/// One entry more is live in the table of `meta`, at `index`.
///
/// Those of a leaf table are counted only if they have been counted before: records of four frames share a cache line, so
/// a count that every fault writes would take the line from other CPUs that fault in tables of theirs.
#[inline(always)]
pub(super) fn born<F: Format>(meta: &FrameMeta, level: Level, index: usize) {
    if level != Level::PTE || meta.is_counted() {
        meta.set_live(meta.live() + 1);
    }
    meta.touch((index >> line_shift::<F>(level)) as u32);
}

/// As [`born`], in a leaf table in which other CPUs may be at the same: nothing is written to the record in most cases,
/// and whoever has the table for itself next counts.
#[inline(always)]
pub(super) fn born_shared<F: Format>(meta: &FrameMeta, index: usize) {
    meta.stop_counting();
    meta.touch_shared((index >> line_shift::<F>(Level::PTE)) as u32);
}

/// `n` entries of the leaf table of `meta` have been cleared; all of them if that leaves none.
#[inline(always)]
pub(super) fn died_leaf<F: Format, W: Window>(slots: &Slots<'_, F, W>, meta: &FrameMeta, n: u16) {
    if meta.is_counted() {
        died(meta, n, false);
    } else {
        count::<F, W>(slots, meta);
    }
}

/// Whether the leaf table of `meta` has no entries.
#[inline(always)]
pub(super) fn is_empty<F: Format, W: Window>(slots: &Slots<'_, F, W>, meta: &FrameMeta) -> bool {
    if !meta.is_counted() {
        count::<F, W>(slots, meta);
    }
    meta.live() == 0
}

/// Counts the entries of a leaf table.
#[inline(never)]
fn count<F: Format, W: Window>(slots: &Slots<'_, F, W>, meta: &FrameMeta) {
    let mut n = 0;
    each_line(slots, meta, Level::PTE, 0, F::entries(Level::PTE) - 1, |_, live| n += live.count_ones());
    meta.set_counted(n as u16);
    died(meta, 0, false);
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

/// All entries of the table of `meta`, which is no top, have been cleared.
#[inline(always)]
pub(super) fn emptied(meta: &FrameMeta) {
    meta.set_live(0);
    meta.set_lines(0, 0);
    meta.set_lines(1, 0);
}
