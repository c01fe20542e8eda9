//! The entries of an open table by the lines of its record's map.
use crate::addr::FRAME_SHIFT;
use crate::format::{Format, Slot};
use crate::frames::FrameMeta;
use crate::page::Level;
use crate::window::WindowGuard;
use core::marker::PhantomData;

/// Says which of some entries in a row are meant, by their bits.
pub(crate) type Live = usize;
/// Entries that [`Node::each_line`] hands over together at most: as many as [`Live`] has bits.
pub(super) const MOST: usize = Live::BITS as usize;

/// The first and the last of the entries of a table that have been noted.
pub(crate) struct Span {
    first: usize,
    last: usize,
}

impl Span {
    /// No entry.
    pub const NONE: Self = Span { first: usize::MAX, last: 0 };

    /// Notes entry `line` + i for each bit i of `entries`, above those before.
    #[inline]
    pub fn add(&mut self, line: usize, entries: Live) {
        if entries != 0 {
            self.first = self.first.min(line + entries.trailing_zeros() as usize);
            self.last = line + entries.ilog2() as usize;
        }
    }

    /// As [`add`](Self::add), for `n` entries from `line` on.
    #[inline]
    pub(super) fn add_all(&mut self, line: usize, n: usize) {
        self.first = self.first.min(line);
        self.last = line + n - 1;
    }

    /// Returns their indices; `None` if no entry was noted.
    #[inline]
    pub fn ends(&self) -> Option<(usize, usize)> {
        (self.first <= self.last).then_some((self.first, self.last))
    }
}

/// Entries of 8 bytes in a cache line.
const LINE_ENTRIES: usize = 8;
/// Lines of a table: bits of a record's map.
const LINES: usize = u64::BITS as usize;

/// The entries of an open table of `level`.
pub(super) struct Entries<'g, F: Format> {
    base: *const F::Slot,
    level: Level,
    _open: PhantomData<&'g F::Slot>,
}

impl<F: Format> Clone for Entries<'_, F> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: Format> Copy for Entries<'_, F> {}

impl<'g, F: Format> Entries<'g, F> {
    /// Those of the table of `level` that `guard` has open.
    #[inline]
    pub(super) fn of<G: WindowGuard>(guard: &'g G, level: Level) -> Self {
        Entries { base: guard.base().cast(), level, _open: PhantomData }
    }

    #[inline]
    pub(super) fn slot(self, index: usize) -> &'g F::Slot {
        let index = index & (F::entries(self.level) - 1);
        // SAFETY: the guard, which is borrowed, is valid for the whole table (contract of `Window`,
        // point 1), whose entries fit into it (`format::check`), `index` was reduced to their
        // number, and `Slot` accepts any bit pattern and shared access.
        unsafe { &*self.base.add(index) }
    }

    /// `n` entries from `first` on, or those that there are.
    #[inline]
    pub(super) fn slots(self, first: usize, n: usize) -> &'g [F::Slot] {
        let all = F::entries(self.level);
        let first = first.min(all);
        // SAFETY: as in `slot`, for each: `first + n` is at most their number.
        unsafe { core::slice::from_raw_parts(self.base.add(first), n.min(all - first)) }
    }

    /// Binary logarithm of the entries that one bit of the record's map stands for. A root has 32
    /// bits for the user's entries, however many these are: the other word of the map belongs to
    /// the registry of roots.
    #[inline]
    pub(super) fn line_shift(self) -> u32 {
        let root = const { F::USER_ROOT_ENTRIES.div_ceil(32).next_power_of_two().trailing_zeros() };
        let other = (F::entries(self.level) / LINES).trailing_zeros();
        if root != other && self.level == F::LAYOUT.root() { root } else { other }
    }

    /// Entries that are handed over together.
    #[inline]
    pub(super) fn line_len(self) -> usize {
        (1 << self.line_shift()).min(MOST)
    }

    /// Says which lines have been written to, by bits of the record's map.
    #[inline]
    pub(super) fn touched(self, record: &FrameMeta) -> u64 {
        match record.sole() {
            Some(index) if const { F::KEPT == 0 } && self.level == Level::PTE => {
                record.touched() | 1 << (index >> self.line_shift())
            }
            _ => record.touched(),
        }
    }

    /// Calls `visit(start, live)` for every line, or [`line_len`](Self::line_len) entries of it,
    /// with entries from `first` to `last` (inclusive) that are not empty, in order: bit i of
    /// `live` says that entry `start` + i is one of them. Looks only at lines that have been
    /// touched.
    ///
    /// The place of an entry in its line is as good as random, so the entries of a line are tested
    /// without branches.
    ///
    /// `FEW` says that one entry is often all that is asked for. Loops over many are without that
    /// question.
    ///
    /// Of a root, only the user's entries may be asked for.
    #[inline(always)]
    pub(super) fn each_line<const FEW: bool>(
        self,
        record: &FrameMeta,
        first: usize,
        last: usize,
        mut visit: impl FnMut(usize, Live),
    ) {
        let shift = self.line_shift();
        let len = self.line_len();
        let mut lines =
            self.touched(record) & u64::MAX << (first >> shift) & u64::MAX >> (63 - (last >> shift));
        while lines != 0 {
            let line = (lines.trailing_zeros() as usize) << shift;
            lines &= lines - 1;
            for start in (line..line + (1 << shift)).step_by(len) {
                let live = if FEW && first == last {
                    // The others of its line need not be looked at.
                    let one = Live::from(!F::is_none(self.slot(first).load()));
                    one.checked_shl(first.wrapping_sub(start) as u32).unwrap_or(0)
                } else {
                    let mut live = Self::LIVE_OF(self, start, len);
                    if start < first {
                        live &= Live::MAX.checked_shl((first - start) as u32).unwrap_or(0);
                    }
                    if start + len - 1 > last {
                        live &= Live::MAX.checked_shr((start + MOST - 1 - last) as u32).unwrap_or(0);
                    }
                    live
                };
                if live != 0 {
                    visit(start, live);
                }
            }
        }
    }

    /// Says which of so many entries from one on are not empty. A value and no branch: a branch,
    /// even a constant one, keeps code from being inlined, and makes a fault of formats with small
    /// tables 25 instructions dearer.
    const LIVE_OF: fn(Self, usize, usize) -> Live =
        if F::PAGE_SHIFT > FRAME_SHIFT { Self::live_of_many } else { Self::live_of_few };

    /// Says which of `n` entries from `start` on are not empty.
    #[inline]
    fn live_of_few(self, start: usize, n: usize) -> Live {
        if self.is_full(start, n) {
            return Live::MAX >> (MOST - n);
        }
        let mut live: Live = 0;
        for i in 0..n {
            live |= Live::from(!F::is_none(self.slot(start + i).load())) << i;
        }
        live
    }

    /// Whether `n` entries from `start` on have a bit in common: then none of them is empty. So
    /// ranges, whose pages have attributes in common, are told by a few instructions.
    #[inline(always)]
    fn is_full(self, start: usize, n: usize) -> bool {
        // Scattered pages are told by the ends.
        let ends = self.slot(start).load() & self.slot(start + n - 1).load();
        !F::is_none(ends) && !F::is_none((1..n - 1).fold(ends, |all, i| all & self.slot(start + i).load()))
    }

    /// Says which of `n` entries from `start` on are not empty. For tables of which one bit of the
    /// record's map stands for several cache lines, most of them empty: the entries of a cache line
    /// are looked at together first.
    #[inline]
    fn live_of_many(self, start: usize, n: usize) -> Live {
        let (lines, rest) = self.slots(start, n).as_chunks::<LINE_ENTRIES>();
        let is_live = |slot: &F::Slot| Live::from(!F::is_none(slot.load()));
        let mut live: Live = 0;
        for (line, slots) in lines.iter().enumerate() {
            if !F::is_none(slots.iter().fold(0, |all, slot| all | slot.load())) {
                for (i, slot) in slots.iter().enumerate() {
                    live |= is_live(slot) << (line * LINE_ENTRIES + i);
                }
            }
        }
        for (i, slot) in rest.iter().enumerate() {
            live |= is_live(slot) << i;
        }
        live
    }

    /// The lines, as bits of the record's map, all of whose entries are from `first` to `last`
    /// (inclusive).
    #[inline]
    pub(super) fn lines_inside(self, first: usize, last: usize) -> u64 {
        let shift = self.line_shift();
        let from = (first + (1 << shift) - 1) >> shift;
        let end = (last + 1) >> shift;
        if from >= end { 0 } else { u64::MAX << from & u64::MAX >> (64 - end) }
    }

    #[inline]
    pub(super) fn forget_lines(self, record: &FrameMeta) {
        if const { F::KEPT != 0 } && self.level == Level::PTE {
            // They say where bits may be left.
            return;
        }
        record.set_lines(0, 0);
        if self.level != F::LAYOUT.root() {
            // The second word of a root is not the map's.
            record.set_lines(1, 0);
        }
    }

    /// Counts the entries of a leaf table.
    #[inline(never)]
    pub(super) fn count(self, record: &FrameMeta) {
        let leaves = Entries { level: Level::PTE, ..self };
        let (shift, mut lines, mut n) = (leaves.line_shift(), leaves.touched(record), 0u32);
        while lines != 0 {
            let start = (lines.trailing_zeros() as usize) << shift;
            lines &= lines - 1;
            if leaves.is_full(start, 1 << shift) {
                n += 1 << shift;
                continue;
            }
            let line = leaves.slots(start, 1 << shift);
            n += line.iter().map(|slot| u32::from(!F::is_none(slot.load()))).sum::<u32>();
        }
        record.set_counted(n as u16);
        if n == 0 {
            leaves.forget_lines(record);
        }
    }
}

/// Calls `visit` with the number of each bit of `live`, lowest first.
#[inline(always)]
pub(super) fn each_bit(mut live: Live, mut visit: impl FnMut(usize)) {
    while live != 0 {
        visit(live.trailing_zeros() as usize);
        live &= live - 1;
    }
}

/// Marks the lines `first..=last` of a table as touched.
pub(super) fn touch_lines(record: &FrameMeta, first: u32, last: u32) {
    for word in first / 32..=last / 32 {
        let low = if word == first / 32 { u32::MAX << (first % 32) } else { u32::MAX };
        let high = if word == last / 32 { u32::MAX >> (31 - last % 32) } else { u32::MAX };
        let word = word as usize % 2;
        record.set_lines(word, record.lines(word) | (low & high));
    }
}
