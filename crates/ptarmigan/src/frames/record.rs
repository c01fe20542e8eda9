//! The record of a frame: 16 bytes, the same for every frame, read in different ways by the code
//! that has the frame.
//!
//! # Why
//!
//! There is one for each frame of the machine: 16 bytes are 0.4 % of the memory, and each word more
//! would be 0.1 %. So fields change their meaning with the use of the frame, and an owner must not
//! read them by another use. All are atomics, because CPUs look at frames that they do not own: a
//! walk without a lock, a dump, a sweep.
//!
//! Most stores are relaxed, as the frame's owner is alone. Two fields are met by several CPUs, and
//! order memory:
//!
//! ```text
//!  CPU 0   writes the frame ── drop_reference: 2 ──┐ fetch_sub(1, AcqRel)
//!  CPU 1                     drop_reference: 1 <───┘ the last one: it sees these writes, and frees
//!  CPU 0   try_lock ── changes entries ── unlock ──> try_lock of CPU 1 (Release, Acquire)
//! ```
use crate::addr::Pfn;
use crate::sync::atomic::{
    AtomicU8, AtomicU16, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// The bit of `order` that locks a table.
const LOCKED: u8 = 1 << 7;
/// The bit of `order` that says that entries have been added without being counted in `live`.
const UNCOUNTED: u8 = 1 << 6;
/// The bit of `order` that says that a leaf table has one entry, and `live` which. Its line is not
/// in the map.
const SOLE: u8 = 1 << 5;

/// References from which on a count sticks.
const MANY: u32 = 1 << 31;
/// Where it sticks: as far from both ends as changes under way may take it.
const STUCK: u32 = 3 << 30;

/// The usage of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Use {
    /// Not handed out by this allocator: holes, the boot image.
    Reserved = 0,
    /// First frame of a free block of the buddy allocator.
    Free = 1,
    /// Inside a free block.
    Inside = 2,
    /// Handed out; the holder of the [`Frame`](super::Frame) knows its purpose.
    Taken = 3,
    /// Holds a table that is linked, or waits between unhook and flush.
    Table = 4,
    /// Holds data of an address space; counted by references.
    Data = 5,
    /// Split into tables smaller than a page.
    Slab = 6,
}

/// The record. The meaning of the fields depends on [`Use`]:
///
/// | field | free block | table | data | slab |
/// |---|---|---|---|---|
/// | `lines` | next and previous block | touched cache lines, one bit each | next in a chain; of a large one see `frames/data/large.rs` | next, previous slab |
/// | `link` | known-zero frames in the block | next in a chain | references, then next in a chain | first free object |
/// | `live` | – | present entries, or which one is the only one | of a large one see `frames/data/large.rs` | objects in use |
/// | `order` | order of the block | level of the table; bits for its lock, an unknown `live`, and an only entry | order of the block, also while it rests; a bit for a gather's claim | class |
///
/// All fields are atomics so that frames may be looked at from any CPU; their writers are
/// serialised by the owner of the frame (a lock, a tree held exclusively), so plain loads and
/// stores are enough; only the references of a data frame belong to several spaces at once, and the
/// lock of a table to several CPUs.
#[derive(Default)]
pub struct FrameMeta {
    lines: [AtomicU32; 2],
    link: AtomicU32,
    live: AtomicU16,
    state: AtomicU8,
    order: AtomicU8,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<FrameMeta>() == 16);

impl FrameMeta {
    /// Returns the usage of the frame.
    #[inline]
    pub fn usage(&self) -> Use {
        match self.state.load(Relaxed) {
            0 => Use::Reserved,
            1 => Use::Free,
            2 => Use::Inside,
            3 => Use::Taken,
            4 => Use::Table,
            5 => Use::Data,
            _ => Use::Slab,
        }
    }

    #[inline]
    pub(crate) fn set_usage(&self, to: Use) {
        self.state.store(to as u8, Relaxed);
    }

    #[inline]
    pub(crate) fn order(&self) -> u8 {
        self.order.load(Relaxed) & !(LOCKED | UNCOUNTED | SOLE)
    }

    #[inline]
    pub(crate) fn set_order(&self, order: u8) {
        self.order.store(order, Relaxed);
    }

    /// Locks the table in this frame, unless it is locked.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.order.fetch_or(LOCKED, Acquire) & LOCKED == 0
    }

    #[inline]
    pub(crate) fn is_locked(&self) -> bool {
        self.order.load(Relaxed) & LOCKED != 0
    }

    /// Unlocks the table; the accesses to it come before.
    #[inline]
    pub(crate) fn unlock(&self) {
        self.order.fetch_and(!LOCKED, Release);
    }

    /// Claims a data frame for the chain of one gather, unless another gather has claimed it.
    #[inline]
    pub(crate) fn try_claim(&self) -> bool {
        self.try_lock()
    }

    /// Gives the claim up; the accesses to the chain come before.
    #[inline]
    pub(crate) fn unclaim(&self) {
        self.unlock();
    }

    /// The frame becomes a leaf table, of level 0: not locked, and its entries are not counted
    /// until their number is needed.
    #[inline]
    pub(crate) fn set_leaf_table(&self) {
        self.order.store(UNCOUNTED, Relaxed);
    }

    /// Whether the number of the table's entries is known.
    #[inline]
    pub fn is_counted(&self) -> bool {
        self.order.load(Relaxed) & UNCOUNTED == 0
    }

    /// Whether `live` itself is the number of entries of the leaf table.
    #[inline]
    pub(crate) fn has_count(&self) -> bool {
        self.order.load(Relaxed) & (UNCOUNTED | SOLE) == 0
    }

    /// The frame becomes a leaf table, not locked, whose only entry is the one at `index`.
    #[inline]
    pub(crate) fn set_sole(&self, index: u16) {
        self.live.store(index, Relaxed);
        self.order.store(SOLE, Relaxed);
    }

    /// Returns the index of the only entry of the leaf table; `None` if it has more or none, or if
    /// that is not known.
    #[inline]
    pub(crate) fn sole(&self) -> Option<usize> {
        (self.order.load(Relaxed) & SOLE != 0).then(|| usize::from(self.live.load(Relaxed)))
    }

    /// `n` entries come to a leaf table whose number of entries is known; lines of its map have
    /// `1 << shift` entries. The number is not known any more if there was an only entry. The
    /// caller has the tree for itself, or holds the table's lock.
    #[inline(always)]
    pub(crate) fn add_live(&self, n: u16, shift: u32) {
        if self.sole().is_some() {
            self.stop_counting(shift);
        } else {
            self.set_live(self.live_above() + n);
        }
    }

    /// From now on entries are added by several CPUs to a leaf table, lines of whose map have
    /// `1 << shift` entries, and `live` is meaningless.
    #[inline]
    pub(crate) fn stop_counting(&self, shift: u32) {
        // Mostly another fault came before: then the record's line need not leave the caches of
        // others.
        if self.is_counted() {
            if let Some(index) = self.sole() {
                // Several CPUs may do this at once. `live` stays as it is.
                self.touch_shared((index >> shift) as u32);
            }
            self.order.fetch_or(UNCOUNTED, Relaxed);
            self.order.fetch_and(!SOLE, Release);
        }
    }

    /// `live` has been found by counting: `n`. The caller has the tree for itself.
    pub(crate) fn set_counted(&self, n: u16) {
        self.set_live(n);
        self.order.store(self.order.load(Relaxed) & !(UNCOUNTED | SOLE), Relaxed);
    }

    /// As [`touch`](Self::touch), with others at it too.
    #[inline]
    pub(crate) fn touch_shared(&self, line: u32) {
        let word = &self.lines[(line / 32) as usize & 1];
        let bit = 1 << (line % 32);
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// As [`touch_shared`](Self::touch_shared), for several lines at once.
    #[inline]
    pub(crate) fn touch_mask(&self, lines: u64) {
        for (word, bits) in self.lines.iter().zip([lines as u32, (lines >> 32) as u32]) {
            if word.load(Relaxed) & bits != bits {
                word.fetch_or(bits, Relaxed);
            }
        }
    }

    /// As [`touch_shared`](Self::touch_shared), for roots of trees that are not the library's:
    /// there is one bit for each pair of lines, in the first word. The second one links registered
    /// roots.
    #[inline]
    pub(crate) fn touch_root(&self, pair: u32) {
        let bit = 1 << (pair % 32);
        if self.lines[0].load(Relaxed) & bit == 0 {
            self.lines[0].fetch_or(bit, Relaxed);
        }
    }

    /// Next frame of the chain this frame is in.
    #[inline]
    pub(crate) fn link(&self) -> Pfn {
        Pfn(self.link.load(Relaxed))
    }

    #[inline]
    pub(crate) fn set_link(&self, to: Pfn) {
        self.link.store(to.0, Relaxed);
    }

    /// `link` as a number: references of a data frame, known-zero frames of a free block.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.link.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set_count(&self, n: u32) {
        self.link.store(n, Relaxed);
    }

    /// Counts one more reference, made by a holder of one. A sole holder is alone with the count.
    ///
    /// A count that comes near its end sticks there, and the frame is never given back: so no
    /// number of references that are forgotten frees a frame in use.
    #[inline]
    pub(crate) fn add_reference(&self) {
        if self.link.load(Relaxed) == 1 {
            self.link.store(2, Relaxed);
        } else if self.link.fetch_add(1, Relaxed) >= MANY {
            self.link.store(STUCK, Relaxed);
        }
    }

    /// Counts one reference less; true if it was the last. The accesses of other holders to the
    /// frame came before.
    #[inline]
    pub(crate) fn drop_reference(&self) -> bool {
        if self.link.load(Acquire) == 1 {
            self.link.store(0, Relaxed);
            return true;
        }
        let before = self.link.fetch_sub(1, AcqRel);
        // Both odd cases by one comparison.
        if (2..=MANY).contains(&before) {
            return false;
        }
        if before > MANY {
            self.link.store(STUCK, Relaxed);
        }
        before == 1
    }

    /// Counts one more reference. Others may do so at the same time without one of their own: all
    /// rely on another one that stays.
    pub(super) fn add_reference_among_others(&self) {
        self.link.fetch_add(1, Relaxed);
    }

    /// `lines[1]` as a number: references of a large data frame as a whole.
    pub(super) fn wholes(&self) -> &AtomicU32 {
        &self.lines[1]
    }

    /// `live` as a state that several CPUs change.
    pub(super) fn state_of_large(&self) -> &AtomicU16 {
        &self.live
    }

    /// Returns whether the caller, which holds a reference, holds the only one.
    #[inline]
    pub(crate) fn is_sole_reference(&self) -> bool {
        self.link.load(Acquire) == 1
    }

    /// Returns the number of present entries of the table in this frame, if [it is
    /// known](Self::is_counted).
    #[inline]
    pub fn live(&self) -> u16 {
        if self.sole().is_some() { 1 } else { self.live_above() }
    }

    /// Returns the number of entries of a table above the leaves, or of objects of a slab.
    #[inline]
    pub(crate) fn live_above(&self) -> u16 {
        self.live.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set_live(&self, n: u16) {
        self.live.store(n, Relaxed);
    }

    /// Word `i` of the 64-bit map of cache lines that have been written to since the table was
    /// known zero.
    #[inline]
    pub(crate) fn lines(&self, i: usize) -> u32 {
        self.lines[i].load(Relaxed)
    }

    #[inline]
    pub(crate) fn set_lines(&self, i: usize, to: u32) {
        self.lines[i].store(to, Relaxed);
    }

    /// The frame becomes a clean table: no line of it has been written to, and it has no entries.
    #[inline]
    pub(crate) fn begin_clean(&self) {
        self.set_lines(0, 0);
        self.set_lines(1, 0);
        self.set_live(0);
    }

    /// The 64-bit map as a whole.
    #[inline]
    pub(crate) fn touched(&self) -> u64 {
        u64::from(self.lines(0)) | u64::from(self.lines(1)) << 32
    }

    /// Notes that an entry in cache line `line` of the table has been written.
    #[inline]
    pub(crate) fn touch(&self, line: u32) {
        let word = &self.lines[(line / 32) as usize & 1];
        let old = word.load(Relaxed);
        let new = old | 1 << (line % 32);
        // Mostly a neighbour came before: then the next one need not wait for our store.
        if new != old {
            word.store(new, Relaxed);
        }
    }

    #[inline]
    pub(crate) fn next(&self) -> Pfn {
        Pfn(self.lines(0))
    }

    #[inline]
    pub(crate) fn prev(&self) -> Pfn {
        Pfn(self.lines(1))
    }

    #[inline]
    pub(crate) fn set_next(&self, to: Pfn) {
        self.set_lines(0, to.0);
    }

    #[inline]
    pub(crate) fn set_prev(&self, to: Pfn) {
        self.set_lines(1, to.0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reference_count_near_its_limit_saturates() {
        let record = FrameMeta::default();
        record.set_count(MANY - 1);
        record.add_reference();
        assert!(!record.drop_reference(), "it still counts");
        assert_eq!(record.count(), MANY - 1);
        for _ in 0..3 {
            record.add_reference();
        }
        for _ in 0..5 {
            assert!(!record.drop_reference());
            assert_eq!(record.count(), STUCK);
            record.add_reference();
            assert_eq!(record.count(), STUCK);
        }
    }

    #[test]
    fn the_claim_of_a_data_frame_leaves_its_order_alone() {
        let record = FrameMeta::default();
        for order in 0..=10 {
            record.set_order(order);
            assert!(record.try_claim() && !record.try_claim());
            assert_eq!(record.order(), order);
            record.unclaim();
            assert_eq!(record.order(), order);
        }
    }
}
