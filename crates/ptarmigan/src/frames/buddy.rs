//! The buddy allocator of one zone, which knows which of its frames are zero.
//!
//! Each free block counts its known-zero frames. The count survives merging and splitting exactly and in constant
//! time: a block that becomes the right half of a merged block keeps its own count in its first frame's record,
//! and the merged block's count is the sum; so a split reads the right half's count back and the left half has
//! the rest. Blocks that are zero throughout and all others are kept on lists apart.
use super::FrameTable;
use super::meta::{FrameMeta, Use};
use crate::addr::Pfn;

/// Orders of blocks: 2^0 to 2^10 frames, 4 KiB to 4 MiB.
pub const ORDERS: usize = 11;

/// Where in the zone to take a block from: the ends grow towards each other, so that tables, which live in memory
/// that is worth keeping together, and data do not mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// From low addresses.
    Bottom,
    /// From high addresses.
    Top,
}

#[derive(Clone, Copy)]
struct List {
    head: Pfn,
    tail: Pfn,
}

/// The free blocks of the frames `start..end`.
pub(super) struct Buddy {
    start: u32,
    end: u32,
    /// `[all zero, others]`, by order.
    lists: [[List; ORDERS]; 2],
    free: u32,
    zero: u32,
}

const ZERO: usize = 0;
const OTHER: usize = 1;

/// A block taken off the lists.
pub(super) struct Block {
    pub pfn: Pfn,
    /// Known-zero frames in it.
    pub zero: u32,
}

impl Buddy {
    pub fn new(start: u32, end: u32) -> Self {
        let none = List { head: Pfn::NONE, tail: Pfn::NONE };
        Buddy { start, end, lists: [[none; ORDERS]; 2], free: 0, zero: 0 }
    }

    pub fn free_frames(&self) -> u32 {
        self.free
    }

    pub fn zero_frames(&self) -> u32 {
        self.zero
    }

    /// Puts all frames of the zone on the lists, all of them zero or content unknown.
    pub fn fill(&mut self, table: &FrameTable, is_zero: bool) {
        // From the top down, so that the heads of the lists are the lowest blocks.
        let mut end = self.end;
        while end > self.start {
            let by_align = end.trailing_zeros().min(ORDERS as u32 - 1);
            let by_size = (end - self.start).ilog2();
            // The largest block that ends here and starts at a multiple of its size.
            let order = by_align.min(by_size) as u8;
            let first = end - (1 << order);
            for i in first..end {
                let meta = table.meta(Pfn(i));
                meta.set_usage(Use::Inside);
                // As a right half: how many of it are zero. Blocks start at multiples of their size.
                meta.set_count(if is_zero && i > first { 1 << (i - first).trailing_zeros() } else { 0 });
            }
            let zero = if is_zero { 1 << order } else { 0 };
            self.push(table, Pfn(first), order, zero);
            self.free += 1 << order;
            self.zero += zero;
            end = first;
        }
    }

    fn push(&mut self, table: &FrameTable, pfn: Pfn, order: u8, zero: u32) {
        let which = if zero == 1 << order { ZERO } else { OTHER };
        let list = &mut self.lists[which][order as usize];
        let meta = table.meta(pfn);
        meta.set_usage(Use::Free);
        meta.set_order(order);
        meta.set_count(zero);
        meta.set_prev(Pfn::NONE);
        meta.set_next(list.head);
        if list.head == Pfn::NONE {
            list.tail = pfn;
        } else {
            table.meta(list.head).set_prev(pfn);
        }
        list.head = pfn;
    }

    fn unlink(&mut self, table: &FrameTable, meta: &FrameMeta, order: u8) {
        let which = if meta.count() == 1 << order { ZERO } else { OTHER };
        let list = &mut self.lists[which][order as usize];
        let (next, prev) = (meta.next(), meta.prev());
        if prev == Pfn::NONE {
            list.head = next;
        } else {
            table.meta(prev).set_next(next);
        }
        if next == Pfn::NONE {
            list.tail = prev;
        } else {
            table.meta(next).set_prev(prev);
        }
        meta.set_usage(Use::Inside);
    }

    fn find(&self, which: usize, order: u8, place: Place) -> Option<(Pfn, u8)> {
        (order as usize..ORDERS).find_map(|o| {
            let list = &self.lists[which][o];
            let at = if place == Place::Bottom { list.head } else { list.tail };
            (at != Pfn::NONE).then_some((at, o as u8))
        })
    }

    /// Takes a block of 2^`order` frames: a known-zero one if `want_zero` and there is one, a dirty one if not
    /// `want_zero` and there is one (zeros are not wasted on who does not need them).
    pub fn take(&mut self, table: &FrameTable, order: u8, want_zero: bool, place: Place) -> Option<Block> {
        let first = if want_zero { ZERO } else { OTHER };
        let (mut pfn, mut at) =
            self.find(first, order, place).or_else(|| self.find(1 - first, order, place))?;
        let meta = table.meta(pfn);
        let mut zero = meta.count();
        self.unlink(table, meta, at);
        while at > order {
            at -= 1;
            let right = Pfn(pfn.0 + (1 << at));
            let right_zero = table.meta(right).count();
            let left_zero = zero - right_zero;
            let keep_right = match place {
                // A request for zeros goes where they are; otherwise the place decides.
                _ if want_zero && (left_zero == 1 << at) != (right_zero == 1 << at) => right_zero == 1 << at,
                Place::Bottom => false,
                Place::Top => true,
            };
            if keep_right {
                self.push(table, pfn, at, left_zero);
                (pfn, zero) = (right, right_zero);
            } else {
                self.push(table, right, at, right_zero);
                zero = left_zero;
            }
        }
        self.free -= 1 << order;
        self.zero -= zero;
        let meta = table.meta(pfn);
        meta.set_usage(Use::Taken);
        meta.set_order(order);
        Some(Block { pfn, zero })
    }

    /// Takes a block back, all of it zero or none of it known to be, and merges it with its free buddies.
    pub fn give(&mut self, table: &FrameTable, pfn: Pfn, order: u8, is_zero: bool) {
        debug_assert!(pfn.0 >= self.start && pfn.0 + (1 << order) <= self.end, "{pfn} is not of this zone");
        debug_assert!(
            !matches!(table.meta(pfn).usage(), Use::Free | Use::Inside | Use::Reserved),
            "{pfn} given back twice"
        );
        // Inner frames may one day be right halves: each says how many of its half are zero.
        for i in 1..1u32 << order {
            let meta = table.meta(Pfn(pfn.0 + i));
            meta.set_usage(Use::Inside);
            meta.set_count(if is_zero { 1 << i.trailing_zeros() } else { 0 });
        }
        let (mut pfn, mut order) = (pfn, order);
        let mut zero = if is_zero { 1 << order } else { 0 };
        self.free += 1 << order;
        self.zero += zero;
        while (order as usize) < ORDERS - 1 {
            let buddy = Pfn(pfn.0 ^ (1 << order));
            if buddy.0 < self.start || buddy.0 + (1 << order) > self.end {
                break;
            }
            let other = table.meta(buddy);
            if other.usage() != Use::Free || other.order() != order {
                break;
            }
            self.unlink(table, other, order);
            let ours = table.meta(pfn);
            ours.set_usage(Use::Inside);
            ours.set_count(zero);
            zero += other.count();
            pfn = pfn.min(buddy);
            order += 1;
        }
        self.push(table, pfn, order, zero);
    }
}
