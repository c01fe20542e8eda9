//! Entries that go.
use super::lines::{Live, MOST, Span, each_bit};
use super::{Node, Use};
use crate::addr::PhysAddr;
use crate::format::{Format, Slot};
use crate::frames::FrameMeta;
use crate::page::Level;
use crate::window::OpenWindow;
use core::ops::Range;

impl<F: Format, W: OpenWindow> Node<'_, F, W> {
    /// Clears the entry of a slot; returns its former value.
    #[inline(always)]
    fn clear_slot(slot: &F::Slot, others: Use) -> u64 {
        if others == Use::Private || F::KEPT != 0 {
            let old = slot.load();
            if others == Use::Private {
                slot.store(F::cleared(old));
                return old;
            }
            let mut old = old;
            while let Err(now) = slot.exchange(old, F::cleared(old)) {
                old = now;
            }
            return old;
        }
        slot.swap(0)
    }

    /// Clears the entry at `index`; returns the former entry, `None` if it was empty.
    #[inline(always)]
    pub fn take(&self, index: usize, others: Use) -> Option<u64> {
        let slot = self.slot(index);
        let seen = slot.load();
        if F::is_none(seen) {
            return None;
        }
        let old = if others == Use::Private {
            slot.store(F::cleared(seen));
            seen
        } else {
            Self::clear_slot(slot, others)
        };
        self.removed(1);
        Some(old)
    }

    /// Clears all entries from `first` to `last` (inclusive) of a leaf table, and calls
    /// `gone(index, entry)` for each. Returns those that were cleared.
    #[inline(always)]
    pub fn clear(&self, first: usize, last: usize, others: Use, mut gone: impl FnMut(usize, u64)) -> Span {
        let mut cleared = Span::NONE;
        let Some(record) = self.record() else { return cleared };
        let uncounted = Uncounted { record, shift: self.entries().line_shift() };
        let mut n = 0;
        let len = self.entries().line_len();
        self.entries().each_line::<false>(record, first, last, |line, live| {
            if others == Use::Private && live == Live::MAX >> (MOST - len) {
                // A full line: no search.
                n += len as u32;
                cleared.add_all(line, len);
                for index in line..line + len {
                    gone(index, Self::clear_slot(self.slot(index), others));
                }
                return;
            }
            n += live.count_ones();
            cleared.add(line, live);
            each_bit(live, |i| {
                let index = line + i;
                gone(index, Self::clear_slot(self.slot(index), others));
            });
        });
        core::mem::forget(uncounted);
        if n == 0 {
            return cleared;
        }
        if self.entries().touched(record) & !self.entries().lines_inside(first, last) == 0 {
            // The memory outside of the cleared lines was never written.
            record.set_counted(0);
            self.entries().forget_lines(record);
        } else {
            self.removed(n as u16);
        }
        cleared
    }

    /// Clears the only entry of a leaf table that nobody else sees any more, if its record says
    /// which that is; returns its index and the former entry.
    #[inline(always)]
    pub fn take_sole(&self) -> Option<(usize, u64)> {
        let record = self.record()?;
        let index = record.sole()?;
        let old = Self::clear_slot(self.slot(index), Use::Private);
        record.set_leaf_table();
        record.set_live(0);
        Some((index, old))
    }

    /// Clears every entry of a leaf table that nobody else sees any more, and calls
    /// `gone(index, entry)` for each.
    #[inline]
    pub fn clear_all(&self, mut gone: impl FnMut(usize, u64)) {
        if let Some((index, old)) = self.take_sole() {
            return gone(index, old);
        }
        let Some(record) = self.record() else { return };
        let uncounted = Uncounted { record, shift: self.entries().line_shift() };
        let mut n = 0;
        self.entries().each_line::<false>(record, 0, F::entries(self.level) - 1, |line, live| {
            n += live.count_ones();
            each_bit(live, |i| {
                let index = line + i;
                gone(index, Self::clear_slot(self.slot(index), Use::Private));
            });
        });
        core::mem::forget(uncounted);
        debug_assert!(
            !record.is_counted() || u32::from(record.live_above()) == n,
            "live entries in lines that were never touched"
        );
        record.set_live(0);
        if const { F::KEPT == 0 } {
            record.set_lines(0, 0);
            record.set_lines(1, 0);
        }
    }

    /// Takes the bits that stay away from empty entries from `first` to `last` (inclusive). The
    /// machine has forgotten their pages. Of a leaf table; others may fill entries meanwhile.
    pub fn scrub(&self, first: usize, last: usize) {
        let Some(record) = self.record() else { return };
        let shift = self.entries().line_shift();
        for index in first..=last {
            if self.entries().touched(record) >> (index >> shift) & 1 == 0 {
                continue;
            }
            let slot = self.slot(index);
            let raw = slot.load();
            if raw != 0 && F::is_none(raw) {
                // If it has been filled in between, the bits stay with that entry, and cost it a
                // search.
                let _ = slot.exchange(raw, 0);
            }
        }
    }

    /// Calls `visit` for each link to a table from `first` to `last` (inclusive), and passes over
    /// large pages; returns how many links it has cut.
    #[inline]
    pub fn each_link(&self, first: usize, last: usize, mut visit: impl FnMut(Link<'_, F>)) -> usize {
        let mut cleared = Cleared { node: self, n: 0 };
        self.each(first, last, |index, raw| {
            if let Some(child) = F::linked(self.level, raw) {
                visit(Link { index, child, slot: self.slot(index), cut: &mut cleared.n });
            }
        });
        cleared.n
    }

    /// Clears the link at `index`, which [`unlinked`](Self::unlinked) counts off.
    #[inline(always)]
    pub fn unlink(&self, index: usize) {
        self.slot(index).store(0);
    }

    /// Counts `n` links off that have been cleared by [`unlink`](Self::unlink).
    #[inline(always)]
    pub fn unlinked(&self, n: usize) {
        self.removed(n as u16);
    }

    /// Calls `visit` for each entry from `first` to `last` (inclusive) of a table above the leaves.
    /// Large pages at indices that are `inside` have just been cleared; others are passed over.
    #[inline]
    pub(in crate::table) fn clear_large(
        &self,
        (first, last): (usize, usize),
        inside: Range<usize>,
        others: Use,
        mut visit: impl FnMut(usize, Above),
    ) {
        let mut cleared = Cleared { node: self, n: 0 };
        self.each(first, last, |index, raw| {
            if let Some(table) = F::linked(self.level, raw) {
                visit(index, Above::Table(table));
            } else if inside.contains(&index) {
                let old = Self::clear_slot(self.slot(index), others);
                cleared.n += 1;
                visit(index, Above::Cleared(old));
            }
        });
    }

    /// `n` entries have been cleared; all of them if the table is empty then.
    #[inline(always)]
    fn removed(&self, n: u16) {
        let Some(record) = self.record() else { return };
        if self.level == Level::PTE && !record.has_count() {
            self.entries().count(record);
            return;
        }
        let left = record.live_above() - n;
        record.set_live(left);
        if left == 0 {
            self.entries().forget_lines(record);
        }
    }
}

/// A link to a table, found by [`Node::each_link`].
pub(crate) struct Link<'a, F: Format> {
    /// The index of the entry.
    pub index: usize,
    /// The table that it links.
    pub child: PhysAddr,
    slot: &'a F::Slot,
    cut: &'a mut usize,
}

impl<F: Format> Link<'_, F> {
    /// Clears the entry.
    #[inline]
    pub fn cut(self) {
        self.slot.store(0);
        *self.cut += 1;
    }
}

/// An entry of a table above the leaves, while large pages are being cleared.
pub(in crate::table) enum Above {
    /// It links this table.
    Table(PhysAddr),
    /// A large page that has been cleared: the former entry.
    Cleared(u64),
}

/// Entries of one table that have been cleared. They are counted off when this is dropped, also if
/// a callback panics.
struct Cleared<'a, 'w, F: Format, W: OpenWindow> {
    node: &'a Node<'w, F, W>,
    n: usize,
}

impl<F: Format, W: OpenWindow> Drop for Cleared<'_, '_, F, W> {
    #[inline]
    fn drop(&mut self) {
        if self.n > 0 {
            self.node.removed(self.n as u16);
        }
    }
}

/// While it is there, `live` of a leaf table's record is not the count: dropped by a callback that
/// panics, it has the entries counted when their number is needed. Forgotten otherwise.
pub(super) struct Uncounted<'a> {
    pub(super) record: &'a FrameMeta,
    pub(super) shift: u32,
}

impl Drop for Uncounted<'_> {
    #[cold]
    fn drop(&mut self) {
        self.record.stop_counting(self.shift);
    }
}
