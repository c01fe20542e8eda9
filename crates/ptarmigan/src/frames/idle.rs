//! Clearing frames ahead of their use, when a CPU has nothing else to do.
//!
//! The library has no thread of its own: whoever knows that a CPU is idle calls
//! [`Machine::clear_ahead`](crate::table::Machine::clear_ahead), or [`Frames::refill_zero`] for the zones alone, with as
//! many frames as the time may be good for.
//!
//! **The gate.** Clearing ahead saves no work; it moves it to a moment when nobody waits. So it is done for demand that was
//! measured, and for no other. Each zone counts the frames that were asked for as zero since its stock of them was
//! last sufficient. That is how many it should have ready (the goal), in blocks of the largest size asked for: a call clears what
//! is missing, at most. Once the stock has reached the goal the count begins again, and each call that finds enough lowers the
//! goal by an eighth; zeros that somebody took who had not asked for any, because nothing else was left, lower it by
//! as many. And a frame that is asked for pays for clearing one and no more: so nothing is cleared where nobody asks, and
//! if all of it should be in vain, clearing is twice the work that it would have been, half of it in idle time.
use super::buddy::Block;
use super::{Dirty, Frame, Frames, Zero, Zone};
use crate::cpu::NodeId;
use crate::window::Window;
use core::iter::Sum;
use core::ops::Add;

/// Frames cleared between two turns of a zone's lock, at most: 2^4, some 10 µs. As many are out of a zone's lists for
/// each CPU that clears.
const PIECE: u8 = 4;

/// What has been asked for as zero, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroCounts {
    /// Asked for as zero.
    pub asked: u64,
    /// Of these, known to be zero when they were handed out; the others had to be cleared then.
    pub found: u64,
    /// Cleared ahead.
    pub ahead: u64,
    /// Known to be zero, and taken by somebody who had not asked for that.
    pub wasted: u64,
}

impl Add for ZeroCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        ZeroCounts {
            asked: self.asked + other.asked,
            found: self.found + other.found,
            ahead: self.ahead + other.ahead,
            wasted: self.wasted + other.wasted,
        }
    }
}

impl Sum for ZeroCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}

/// How many zero frames to have ready: the gate, see above.
#[derive(Default)]
pub(super) struct Demand {
    goal: u32,
    /// Asked for since the stock last reached the goal.
    since: u32,
    /// Asked for, and no other cleared for them yet.
    credit: u32,
}

impl Demand {
    #[inline(always)]
    pub fn asked(&mut self, frames: u32) {
        self.since = self.since.saturating_add(frames);
        self.credit = self.credit.saturating_add(frames);
    }

    pub fn cleared(&mut self, frames: u32) {
        self.credit = self.credit.saturating_sub(frames);
    }

    pub fn wasted(&mut self, frames: u32) {
        self.goal = self.goal.saturating_sub(frames);
        self.since = self.since.saturating_sub(frames);
    }

    /// How many to clear where `stock` are zero and there is room for `most`.
    pub fn missing(&mut self, stock: u32, most: u32) -> u32 {
        self.goal = self.goal.max(self.since).min(most);
        self.credit = self.credit.min(self.goal);
        if stock < self.goal {
            return self.credit.min(self.goal - stock);
        }
        self.since = 0;
        self.goal -= self.goal.div_ceil(8);
        0
    }
}

/// What a zone counts, under its lock.
#[derive(Default)]
pub(super) struct ZeroTally {
    counts: ZeroCounts,
    demand: Demand,
    /// Order of the largest block asked for since the stock last sufficed.
    order: u8,
    /// Frames that CPUs are clearing at the moment.
    out: u32,
}

impl ZeroTally {
    /// 2^`order` frames have been handed out, `zero` of which are known to be zero.
    #[inline]
    pub fn served(&mut self, order: u8, want_zero: bool, zero: u32) {
        let frames = 1 << order;
        if want_zero {
            self.demand.asked(frames);
            self.order = self.order.max(order);
            self.counts.asked += u64::from(frames);
            self.counts.found += if zero == frames { u64::from(frames) } else { 0 };
        } else if zero > 0 {
            self.demand.wasted(zero);
            self.counts.wasted += u64::from(zero);
        }
    }
}

impl Frames {
    /// Clears free frames of `node` ahead, for requests to come that want zeros: at most `budget`, no more than the demand
    /// of the last requests gives reason for (the gate, see `frames/idle.rs`), and only while more than the high watermark
    /// stays free; how many.
    ///
    /// For a CPU that has nothing else to do. Frames are taken off the lists in pieces of at most 16, cleared past the
    /// caches without any lock, and given back, where they merge with their neighbours; so other CPUs take and give, or
    /// clear ahead too, meanwhile, and each CPU that clears keeps no more than a piece from them. The last free block
    /// of the largest size is not touched. A caller with many idle moments of unknown length passes a small budget each time.
    pub fn refill_zero<W: Window>(&self, node: NodeId, budget: u32, window: &W) -> u32 {
        let mut made = 0;
        for zone in self.zones.iter().filter(|zone| zone.run.node == node) {
            while let Some(piece) = self.take_piece(zone, budget - made) {
                made += 1 << piece.order();
                self.give_piece(zone, piece.clear_nontemporal(window));
            }
        }
        made
    }

    /// A piece of at most `budget` frames to clear, if the zone should have more that are zero.
    fn take_piece(&self, zone: &Zone, budget: u32) -> Option<Frame<Dirty>> {
        if budget == 0 {
            return None;
        }
        let mut buddy = zone.buddy.lock();
        let (wanted, stock) = (buddy.tally.order, buddy.zero_in(buddy.tally.order));
        let spare = buddy.free_frames().saturating_sub(zone.marks.high);
        let tally = &mut buddy.tally;
        let missing = tally.demand.missing(stock + tally.out, zone.run.frames);
        if missing == 0 {
            tally.order = 0;
        }
        let most = missing.min(budget).min(spare).checked_ilog2()?;
        let Block { pfn, order, .. } = buddy.take_dirty(&self.table, PIECE.min(most as u8), wanted)?;
        buddy.tally.out += 1 << order;
        buddy.tally.demand.cleared(1 << order);
        self.note(zone, &buddy);
        // SAFETY: 1. the block came off the zone's lists just now. 2. `Dirty` promises nothing.
        Some(unsafe { Frame::from_raw(pfn, order) })
    }

    fn give_piece(&self, zone: &Zone, piece: Frame<Zero>) {
        let order = piece.order();
        let mut buddy = zone.buddy.lock();
        buddy.give(&self.table, piece.into_raw(), order, true);
        buddy.tally.out -= 1 << order;
        buddy.tally.counts.ahead += 1 << order;
        self.note(zone, &buddy);
    }

    /// What the zones were asked for as zero, and what they had; frames on CPUs' lists
    /// ([`DataFrames::zero_counts`](super::DataFrames::zero_counts)) come from there in blocks.
    pub fn zero_counts(&self) -> ZeroCounts {
        self.zones.iter().map(|zone| zone.buddy.lock().tally.counts).sum()
    }
}
