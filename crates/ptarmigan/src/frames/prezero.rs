//! Clears frames ahead of their use, when a CPU is idle.
//!
//! The library has no thread of its own: code that knows that a CPU is idle calls
//! [`On::clear_ahead`](crate::machine::On::clear_ahead), or [`Frames::refill_zero`] for the zones
//! alone, with as many frames as the time may be good for.
//!
//! How many is decided by the gate, see `frames/demand.rs`.
use super::buddy::Block;
use super::demand::ZeroCounts;
use super::{Dirty, Frame, Frames, Zero, Zone};
use crate::cpu::NodeId;
use crate::window::OpenWindow;

/// Frames cleared between two turns of a zone's lock, at most: 2^4, some 10 µs. As many are out of
/// a zone's lists for each CPU that clears.
const PIECE: u8 = 4;

impl Frames {
    /// Clears free frames of `node` ahead, for requests to come that want zeros: at most `budget`,
    /// no more than the demand of the last requests gives reason for (the gate, see
    /// `frames/demand.rs`), and only while more than the high watermark stays free; how many.
    ///
    /// For a CPU that is idle. Frames are taken off the lists in pieces of at most 16, cleared past
    /// the caches without any lock, and given back, where they merge with their neighbours; so
    /// other CPUs take and give, or clear ahead too, meanwhile, and each CPU that clears keeps no
    /// more than a piece from them. The last free block of the largest size is not touched. A
    /// caller with many idle moments of unknown length passes a small budget each time.
    ///
    /// # Safety
    ///
    /// 1. The window must reach these frames.
    pub unsafe fn refill_zero<W: OpenWindow>(&self, node: NodeId, budget: u32, window: &W) -> u32 {
        let mut made = 0;
        for zone in self.zones.iter().filter(|zone| zone.run.node == node) {
            while let Some(piece) = self.take_piece(zone, budget - made) {
                made += 1 << piece.order();
                // SAFETY: 1. passed on.
                self.give_piece(zone, unsafe { piece.clear_nontemporal(window) });
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
        let spare = zone.unreserved().saturating_sub(zone.marks.high);
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
        // SAFETY: 1. the block came off the zone's lists just now. 2. `Dirty` makes no promise.
        Some(unsafe { Frame::from_raw(self.machine, pfn, order) })
    }

    fn give_piece(&self, zone: &Zone, piece: Frame<Zero>) {
        let order = piece.order();
        let mut buddy = zone.buddy.lock();
        buddy.give(&self.table, piece.into_raw(), order, true);
        buddy.tally.out -= 1 << order;
        buddy.tally.counts.ahead += 1 << order;
        self.note(zone, &buddy);
    }

    /// The zones' requests for zero frames, and their supply; frames on CPUs' lists
    /// ([`DataFrames::zero_counts`](super::DataFrames::zero_counts)) come from there in blocks.
    pub fn zero_counts(&self) -> ZeroCounts {
        self.zones.iter().map(|zone| zone.buddy.lock().tally.counts).sum()
    }
}
