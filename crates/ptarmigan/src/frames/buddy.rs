//! The buddy allocator of one zone, which knows which of its frames are zero.
//!
//! Each free block counts its known-zero frames. The count survives merging and splitting exactly
//! and in constant time: a block that becomes the right half of a merged block keeps its own count
//! in its first frame's record, and the merged block's count is the sum; so a split reads the right
//! half's count back and the left half has the rest. Blocks that are zero throughout, blocks of
//! which a part is and blocks of unknown content are kept on lists apart: a request for zeros, or
//! for frames that are not, finds them without walking past the others.
use super::demand::ZeroTally;
use super::record::{FrameMeta, Use};
use super::table::FrameTable;
use crate::addr::Pfn;

/// Orders of blocks: 2^0 to 2^10 frames, 4 KiB to 4 MiB.
pub const ORDERS: usize = 11;

/// The end of a zone that a block is taken from.
///
/// Tables come from one end and data from the other, so that the two do not mix and tables stay
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// From low addresses.
    Low,
    /// From high addresses.
    High,
}

#[derive(Clone, Copy)]
struct FreeList {
    head: Pfn,
    tail: Pfn,
}

/// The free blocks of the frames `start..end`.
pub(super) struct Buddy {
    start: u32,
    end: u32,
    /// `[all zero, mixed, none known to be zero]`, by order.
    lists: [[FreeList; ORDERS]; 3],
    free: u32,
    zero: u32,
    /// Blocks that are zero throughout, by order.
    whole: [u32; ORDERS],
    pub tally: ZeroTally,
}

/// The half that is wanted of a block that has to be halved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    /// The half with more known-zero frames.
    Zero,
    /// The half with fewer: zeros are for others.
    Other,
    /// Something to clear where most is zero already: so parts become zero throughout, and then
    /// larger ones.
    Clear,
}

const ZERO: usize = 0;
const MIXED: usize = 1;
const DIRTY: usize = 2;

/// Which list a free block of 2^`order` frames belongs on, `zero` of which are known to be zero.
fn kind(zero: u32, order: u8) -> usize {
    match zero {
        0 => DIRTY,
        n if n == 1 << order => ZERO,
        _ => MIXED,
    }
}

/// A block taken off the lists.
pub(super) struct Block {
    pub pfn: Pfn,
    pub order: u8,
    /// Known-zero frames in it.
    pub zero: u32,
}

impl Buddy {
    pub fn new(start: u32, end: u32) -> Self {
        let none = FreeList { head: Pfn::NONE, tail: Pfn::NONE };
        Buddy {
            start,
            end,
            lists: [[none; ORDERS]; 3],
            free: 0,
            zero: 0,
            whole: [0; ORDERS],
            tally: ZeroTally::default(),
        }
    }

    pub fn free_frames(&self) -> u32 {
        self.free
    }

    pub fn zero_frames(&self) -> u32 {
        self.zero
    }

    /// Known-zero frames for requests of 2^`order` frames: single ones wherever they are, otherwise
    /// those in free blocks of that size or more that are zero throughout. (Mixed blocks may hold
    /// some more, which only splitting them would show.)
    pub fn zero_in(&self, order: u8) -> u32 {
        if order == 0 {
            return self.zero;
        }
        (order as usize..ORDERS).map(|o| self.whole[o] << o).sum()
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
                // As a right half: how many of it are zero. Blocks start at multiples of their
                // size.
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
        let kind = kind(zero, order);
        self.whole[order as usize] += u32::from(kind == ZERO);
        let list = &mut self.lists[kind][order as usize];
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
        let kind = kind(meta.count(), order);
        self.whole[order as usize] -= u32::from(kind == ZERO);
        let list = &mut self.lists[kind][order as usize];
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

    /// The block nearest to `end` on the list of `kind` and `order`.
    fn first(&self, kind: usize, order: usize, end: End) -> Option<Pfn> {
        let list = &self.lists[kind][order];
        let at = if end == End::Low { list.head } else { list.tail };
        (at != Pfn::NONE).then_some(at)
    }

    /// The smallest block of 2^`order` frames or more that is on one of the lists of `kinds`; at
    /// equal size the first of them counts.
    fn find(&self, kinds: &[usize], order: u8, end: End) -> Option<(Pfn, u8)> {
        (order as usize..ORDERS)
            .find_map(|o| kinds.iter().find_map(|kind| self.first(*kind, o, end)).map(|at| (at, o as u8)))
    }

    /// Takes a block of 2^`order` frames: a known-zero one if `want_zero` and there is one, a dirty
    /// one if not `want_zero` and there is one (zeros are kept for requests that want them).
    pub fn take(&mut self, table: &FrameTable, order: u8, want_zero: bool, end: End) -> Option<Block> {
        let (pfn, at) = if want_zero {
            [ZERO, MIXED, DIRTY].iter().find_map(|kind| self.find(&[*kind], order, end))
        } else {
            // Not dirty ones of any size first: that would split large blocks while there are small
            // ones.
            self.find(&[DIRTY, MIXED], order, end).or_else(|| self.find(&[ZERO], order, end))
        }?;
        let want = if want_zero { Want::Zero } else { Want::Other };
        let block = self.carve(table, (pfn, at), want, end, |at, _| at == order);
        self.tally.served(order, want_zero, block.zero);
        Some(block)
    }

    /// Takes a block of at most 2^`most` frames, without a frame that is known to be zero, for the
    /// caller to clear; `None` if every block is clear, or if the block lies in the only free block
    /// of its size or more: that one is left whole, so that a request for as many frames in a row
    /// finds them at this moment.
    ///
    /// Blocks of 2^`order` frames or more are preferred, the smallest of them, as requests take
    /// small ones first, and mixed ones before dirty ones, as they become zero throughout soonest.
    /// Cleared parts go back and merge, so the block that the next part comes from is the one that
    /// this one came from, as long as there is anything to clear in it.
    pub fn take_dirty(&mut self, table: &FrameTable, most: u8, order: u8) -> Option<Block> {
        let find = |order| self.find(&[MIXED, DIRTY], order, End::Low);
        let (pfn, at) = find(order).or_else(|| find(0))?;
        let fits = |at, zero| at <= most && zero == 0;
        self.has_other(pfn, at).then(|| self.carve(table, (pfn, at), Want::Clear, End::Low, fits))
    }

    /// Whether there is a free block of 2^`order` frames or more besides `pfn`.
    fn has_other(&self, pfn: Pfn, order: u8) -> bool {
        let lists = self.lists.iter().flat_map(|by_order| &by_order[order as usize..]);
        lists.flat_map(|list| [list.head, list.tail]).any(|at| at != Pfn::NONE && at != pfn)
    }

    /// Takes the free block `pfn` of 2^`at` frames off its list and halves it, putting the halves
    /// that are not wanted back, until `fits` says that order and known-zero frames are right.
    /// Between equal halves the end decides.
    fn carve(
        &mut self,
        table: &FrameTable,
        (mut pfn, mut at): (Pfn, u8),
        want: Want,
        end: End,
        fits: impl Fn(u8, u32) -> bool,
    ) -> Block {
        let meta = table.meta(pfn);
        let mut zero = meta.count();
        self.unlink(table, meta, at);
        while !fits(at, zero) {
            at -= 1;
            let right = Pfn(pfn.0 + (1 << at));
            let right_zero = table.meta(right).count();
            let left_zero = zero - right_zero;
            let keep_right = match end {
                _ if left_zero != right_zero => {
                    let (half, more_right) = (1 << at, right_zero > left_zero);
                    match want {
                        Want::Zero => more_right,
                        Want::Other => !more_right,
                        // A half without anything to clear does not count.
                        Want::Clear => (more_right && right_zero < half) || left_zero == half,
                    }
                }
                End::Low => false,
                End::High => true,
            };
            if keep_right {
                self.push(table, pfn, at, left_zero);
                (pfn, zero) = (right, right_zero);
            } else {
                self.push(table, right, at, right_zero);
                zero = left_zero;
            }
        }
        self.free -= 1 << at;
        self.zero -= zero;
        let meta = table.meta(pfn);
        meta.set_usage(Use::Taken);
        meta.set_order(at);
        Block { pfn, order: at, zero }
    }

    /// Takes a block back, all of it zero or all of it unknown, and merges it with its free
    /// buddies.
    pub fn give(&mut self, table: &FrameTable, pfn: Pfn, order: u8, is_zero: bool) {
        debug_assert!(
            pfn.0 >= self.start && pfn.0 < self.end && self.end - pfn.0 >= 1 << order,
            "{pfn} is not of this zone"
        );
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
            // Near the last number the buddy's end may be beyond 32 bits.
            if buddy.0 < self.start || buddy.0 >= self.end || self.end - buddy.0 < 1 << order {
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
