//! Tables of trees that are not the library's.
//!
//! A page-table crate, or a kernel's own tree code, can take its tables from the lists and bring
//! them back known to be zero.
//!
//! # Protocol
//!
//! 1. [`Clean::into_table`] makes a page a table. It is zero when it comes: the tree does not clear
//!    it.
//! 2. The tree calls [`touched`](ForeignTable::touched) for each entry that it writes, or
//!    [`touched_range`](ForeignTable::touched_range) for a range of them, before the table comes
//!    back.
//! 3. The tree unlinks the table, and calls [`clear_touched`](ForeignTable::clear_touched). The
//!    table is zero when it goes.
//! 4. A table that no MMU can walk, or knows, becomes a page again at once:
//!    [`never_walked`](ClearedTable::never_walked). Every other table is
//!    [unhooked](ClearedTable::unhook) onto a chain, and only the flush makes pages of that.
//!
//! ```compile_fail,E0308
//! use ptarmigan::page::{ClearedTable, Clean};
//! fn skip_the_flush(table: ClearedTable<'_>) -> Clean {
//!     table // a table that may have been walked is not a page
//! }
//! ```
//!
//! # Why
//!
//! The gain does not come from the lists alone. A table that comes back full of old entries would
//! have to be cleared as a whole, and finding its entries takes a look at all of it. So the tree
//! must note which cache lines of a table it writes. Then only these lines are looked at when the
//! tree is taken apart, and only these are cleared.
use super::{Clean, Layout, Level, Unhooked};
use crate::addr::{FRAME_SHIFT, FRAME_SIZE, Pfn, PhysAddr};
use crate::frames::{FrameMeta, Frames, Use};
use crate::window::{OpenWindow, WindowGuard};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of a table for which one bit is kept: 64 bits for each frame.
pub const LINE: usize = FRAME_SIZE / 64;

/// A table of a tree that is not the library's, owned by that tree. Which of its cache lines were
/// written is noted in its frames' records.
///
/// The lines of a root are noted in pairs. Tables smaller than a frame share one, and have no
/// record of their own: all of such a table counts as touched.
#[must_use = "a dropped table is lost: link it, or hand it back"]
pub struct ForeignTable<'m> {
    frames: &'m Frames,
    at: PhysAddr,
    level: Level,
    is_root: bool,
    table_shift: u8,
}

impl Clean {
    /// Makes the page a table of a tree that is not the library's.
    ///
    /// # Safety
    ///
    /// 1. The page must have come from a policy that makes tables of `layout` of these `frames`.
    #[inline]
    pub unsafe fn into_table<'m>(self, frames: &'m Frames, layout: &Layout) -> ForeignTable<'m> {
        let level = self.level();
        // SAFETY: 1. and 2. the page owned it, and it is of these frames and this layout (point 1).
        let table = unsafe { ForeignTable::from_raw(frames, layout, level, self.into_raw()) };
        for record in table.records() {
            table.forget_touched(record);
            record.set_live(0);
            record.set_usage(Use::Table);
            record.set_order(level.0);
        }
        table
    }

    /// As [`into_table`](Self::into_table), for a table that is one frame and no root.
    ///
    /// # Safety
    ///
    /// 1. As there.
    /// 2. Tables of the page's level are one frame, and it is not the root's level.
    #[inline]
    pub unsafe fn into_frame<'m>(self, frames: &'m Frames) -> ForeignTable<'m> {
        let level = self.level();
        // SAFETY: 1. and 2. the page owned it (1.). 3. by the caller (2.).
        let table = unsafe { ForeignTable::from_frame(frames, level, self.into_raw()) };
        let record = frames.meta(table.at.pfn());
        table.forget_touched(record);
        record.set_live(0);
        record.set_usage(Use::Table);
        record.set_order(level.0);
        table
    }
}

impl<'m> ForeignTable<'m> {
    /// Returns the table's address.
    #[inline]
    pub fn addr(&self) -> PhysAddr {
        self.at
    }

    /// Returns the table's level.
    #[inline]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Gives up the type, to link the table into an entry.
    #[inline]
    pub fn into_raw(self) -> PhysAddr {
        self.at
    }

    /// Takes the table back, to record writes or to hand it back.
    ///
    /// # Safety
    ///
    /// 1. `at` must have come from [`into_raw`](Self::into_raw) of a table of this `level`,
    ///    `layout` and `frames`, and must not have been handed back.
    /// 2. While the result exists, no other code may hand the table back. Others may note entries
    ///    in it at the same time.
    #[inline]
    pub unsafe fn from_raw(frames: &'m Frames, layout: &Layout, level: Level, at: PhysAddr) -> Self {
        let (is_root, table_shift) = (level == layout.root(), layout.table_shift[level.at()]);
        ForeignTable { frames, at, level, is_root, table_shift }
    }

    /// As [`from_raw`](Self::from_raw), without a look at the layout.
    ///
    /// # Safety
    ///
    /// 1. and 2. As there.
    /// 3. The table must be one frame, and no root.
    #[inline]
    pub unsafe fn from_frame(frames: &'m Frames, level: Level, at: PhysAddr) -> Self {
        ForeignTable { frames, at, level, is_root: false, table_shift: FRAME_SHIFT as u8 }
    }

    #[inline]
    fn bytes(&self) -> usize {
        1 << self.table_shift
    }

    #[inline]
    fn is_small(&self) -> bool {
        u32::from(self.table_shift) < FRAME_SHIFT
    }

    /// Iterates over the records of its frames; empty if it shares one.
    #[inline]
    fn records(&self) -> impl Iterator<Item = &'m FrameMeta> + use<'m> {
        let (frames, first) = (self.frames, self.at.pfn().0);
        let n = if self.is_small() { 0 } else { 1 << (u32::from(self.table_shift) - FRAME_SHIFT) };
        (0..n).map(move |i| frames.meta(Pfn(first + i)))
    }

    /// Notes that the entry at byte `offset` is written. Any number of CPUs may do so at once;
    /// mostly a neighbour came before, and it is a load and a compare.
    #[inline]
    pub fn touched(&self, offset: usize) {
        let offset = offset & (self.bytes() - 1);
        if !self.is_small() {
            let record = self.frames.meta(Pfn(self.at.pfn().0 + (offset >> FRAME_SHIFT) as u32));
            let line = (offset % FRAME_SIZE / LINE) as u32;
            if self.is_root { record.touch_root(line / 2) } else { record.touch_shared(line) }
        }
    }

    /// Notes that entries at these bytes are written, as [`touched`](Self::touched) does for one.
    /// It costs the same for a line as for a whole frame. Bytes behind the table's end are left
    /// out.
    #[inline]
    pub fn touched_range(&self, bytes: Range<usize>) {
        let bytes = bytes.start..bytes.end.min(self.bytes());
        if bytes.is_empty() {
            return;
        }
        let (first, end) = (bytes.start / LINE, bytes.end.div_ceil(LINE));
        for (frame, record) in self.records().enumerate() {
            let lines = |line: usize| line.saturating_sub(frame * 64).min(64);
            let (first, end) = (lines(first), lines(end));
            if first < end {
                let mask = u64::MAX >> (64 - (end - first)) << first;
                if self.is_root {
                    (first / 2..end.div_ceil(2)).for_each(|pair| record.touch_root(pair as u32));
                } else {
                    record.touch_mask(mask);
                }
            }
        }
    }

    /// As [`touched`](Self::touched), for a caller that has the table alone, but for MMUs: a store,
    /// not a read-modify-write.
    ///
    /// # Safety
    ///
    /// 1. No other code notes lines of the table meanwhile: a line whose note is lost is not
    ///    cleared, and the table is handed out as a zero page all the same.
    #[inline]
    pub unsafe fn touched_alone(&self, offset: usize) {
        let offset = offset & (self.bytes() - 1);
        if self.is_root {
            self.touched(offset);
        } else if !self.is_small() {
            let record = self.frames.meta(Pfn(self.at.pfn().0 + (offset >> FRAME_SHIFT) as u32));
            record.touch((offset % FRAME_SIZE / LINE) as u32);
        }
    }

    /// Returns the noted lines of the first frame: a bit for each [`LINE`], or for two of a root.
    /// Returns all bits for a table that shares its frame.
    #[inline]
    pub fn lines(&self) -> u64 {
        if self.is_small() { u64::MAX } else { self.noted(self.frames.meta(self.at.pfn())) }
    }

    /// Returns the written lines of a record, a bit for each [`grain`](Self::grain).
    #[inline]
    fn noted(&self, record: &FrameMeta) -> u64 {
        if self.is_root { record.lines(0).into() } else { record.touched() }
    }

    /// Returns the bytes for which there is one bit.
    #[inline]
    fn grain(&self) -> usize {
        if self.is_root { 2 * LINE } else { LINE }
    }

    #[inline]
    fn forget_touched(&self, record: &FrameMeta) {
        record.set_lines(0, 0);
        // Of a root, it links the registry of roots.
        if !self.is_root {
            record.set_lines(1, 0);
        }
    }

    /// Iterates over the bytes in which entries were noted, a cache line at a time: an entry that
    /// is not there is not in the table.
    pub fn touched_lines(&self) -> impl Iterator<Item = Range<usize>> + use<'m> {
        let small = self.is_small().then_some(0..self.bytes());
        let (grain, is_root) = (self.grain(), self.is_root);
        let lines = self.records().enumerate().flat_map(move |(frame, record)| {
            let mut left = if is_root { record.lines(0).into() } else { record.touched() };
            core::iter::from_fn(move || {
                let line = left.trailing_zeros() as usize;
                left &= left.checked_sub(1)?;
                let start = frame * FRAME_SIZE + line * grain;
                Some(start..start + grain)
            })
        });
        small.into_iter().chain(lines)
    }

    /// Clears only the lines that were touched: the table is in its level's state again.
    ///
    /// Words are stored one by one, so a walker that still knows the table sees each entry as it
    /// was, or empty. In debug builds every byte is checked; release builds check a sample if the
    /// policy is [`Checked`](crate::quicklist::Checked).
    ///
    /// # Safety
    ///
    /// 1. The table must be unlinked: no entry leads to it, except entries of tables that are
    ///    handed back before the same flush.
    /// 2. Every byte that is not as it was when the table came lies in a line that was
    ///    [noted](Self::touched), and was zero then.
    /// 3. No code writes to the table any more.
    /// 4. `window` must show the table's frames.
    #[inline]
    pub unsafe fn clear_touched<W: OpenWindow>(self, window: &W) -> ClearedTable<'m> {
        if self.is_small() {
            // SAFETY: 1. the window shows it (4.), and it lies in one frame. 2. no code uses it any
            // more (1. and 3.).
            unsafe { clear(window, self.at, 0..self.bytes()) };
        }
        for (frame, record) in self.records().enumerate() {
            let at = PhysAddr(self.at.0 + (frame * FRAME_SIZE) as u64);
            let (mut left, grain) = (self.noted(record), self.grain());
            while left != 0 {
                let line = left.trailing_zeros() as usize;
                left &= left - 1;
                // SAFETY: as above.
                unsafe { clear(window, at, line * grain..(line + 1) * grain) };
            }
            self.forget_touched(record);
        }
        ClearedTable(self)
    }
}

/// Clears some bytes of the frame in which `at` lies, from `at` on, word by word.
///
/// # Safety
///
/// 1. `window` must show the frame, and the bytes must lie in it.
/// 2. They belong to the caller. Only MMUs use them at the same time.
#[inline]
unsafe fn clear<W: OpenWindow>(window: &W, at: PhysAddr, bytes: Range<usize>) {
    let guard = window.open(at);
    // SAFETY: the guard is valid for the frame (point 1), and frames are aligned to more than a
    // word. MMUs access words atomically, and so does this.
    let words = unsafe {
        let first = guard.base().add(bytes.start).cast::<AtomicUsize>();
        core::slice::from_raw_parts(first, bytes.len() / size_of::<usize>())
    };
    words.iter().for_each(|word| word.store(0, Relaxed));
}

/// A table of a tree that is not the library's, unlinked and in its level's state. TLBs may still
/// know it.
#[must_use = "a dropped table is lost: unhook it"]
pub struct ClearedTable<'m>(ForeignTable<'m>);

impl ClearedTable<'_> {
    /// Returns the table's level.
    pub fn level(&self) -> Level {
        self.0.level
    }

    /// Makes it a page again without a flush.
    ///
    /// # Safety
    ///
    /// 1. No MMU may reach the table. Either no CPU has loaded the root of a tree that it was
    ///    linked in, or each that has has loaded another root since, and has dropped its
    ///    translations of that tree, with its links of tables.
    #[inline]
    pub unsafe fn never_walked(self) -> Clean {
        if let Some(record) = self.0.records().next() {
            record.set_usage(Use::Taken);
        }
        // SAFETY: 1. and 2. the type owned it, in the state of its level (contract of
        // `clear_touched`). 3. by the caller.
        unsafe { Clean::from_raw(self.0.at, self.0.level) }
    }

    /// Puts it on a chain, of which the flush makes pages. A chain has room for one root.
    ///
    /// # Errors
    ///
    /// The table, if it is a root and the chain holds one already.
    #[inline]
    pub fn unhook(self, chain: &mut Unhooked) -> Result<(), Self> {
        let table = &self.0;
        if table.is_root {
            if chain.has_root() {
                return Err(self);
            }
            // SAFETY: 1. and 2. the type owned it, in the state of its level (contract of
            // `clear_touched`). 3. just seen.
            unsafe { chain.push_root(table.at, table.level) };
        } else {
            // SAFETY: 1. and 2. as above. 3. it is the record of the first of its frames, and
            // `into_table` has noted the level there.
            unsafe { chain.push(table.at.pfn(), table.frames.meta(table.at.pfn())) };
        }
        Ok(())
    }
}
