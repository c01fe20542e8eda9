//! Frames that are kept free for operations which must not fail.
//!
//! Unmapping a part of a large page needs a table for the rest. Each large page that is mapped
//! raises a reserve by the tables that it may need, and whoever takes it apart draws on that.
//!
//! A reserve is a number in each zone: so many of its free frames are handed out to nobody else. It
//! costs no frame, no clearing and no list, and a gigabyte in pages of 2 MiB is reserved for at
//! once. Who has reserved how many is the holders' own count: the numbers of all zones together are
//! those of all holders together, and a frame that is drawn lowers the number of its zone.
//!
//! Rejected: a table held by each large page, as Linux deposits them. Mapping would take, and
//! clear, tables that are hardly ever used.
use super::zone::Zone;
use super::{Dirty, End, Frame, Frames, NoFrame, ZoneClass};
use crate::cpu::NodeId;
use core::sync::atomic::Ordering::Relaxed;

impl Frames {
    /// Keeps `n` low frames free, of `node` if it has them, for later calls of
    /// [`draw`](Self::draw).
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if so many are not free above the minimum watermarks; the reserve is unchanged
    /// then.
    pub(crate) fn reserve(&self, node: NodeId, n: u32) -> Result<(), NoFrame> {
        let mut left = n;
        for zone in self.low_zones(node) {
            if left == 0 {
                break;
            }
            // Takers compare both numbers under this lock.
            let _buddy = zone.buddy.lock();
            let reserved = zone.reserved.load(Relaxed);
            let room = zone.unreserved().saturating_sub(zone.marks.min).min(left);
            zone.reserved.store(reserved + room, Relaxed);
            left -= room;
        }
        if left > 0 {
            self.unreserve(node, n - left);
            return Err(NoFrame::new(0, node, self.node_free(node)));
        }
        Ok(())
    }

    /// Gives up `n` frames of a reserve.
    pub(crate) fn unreserve(&self, node: NodeId, n: u32) {
        let mut left = n;
        while left > 0 {
            for zone in self.low_zones(node) {
                let _buddy = zone.buddy.lock();
                let reserved = zone.reserved.load(Relaxed);
                let part = reserved.min(left);
                zone.reserved.store(reserved - part, Relaxed);
                left -= part;
            }
            if self.reserved() == 0 {
                debug_assert_eq!(left, 0, "more frames were given up than were reserved");
                return;
            }
        }
    }

    /// Takes a frame that the caller has reserved, which is one less to it then.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if nobody has reserved a frame.
    pub(crate) fn draw(&self, node: NodeId) -> Result<Frame<Dirty>, NoFrame> {
        // Others may draw and reserve meanwhile: a frame that is reserved may be in a zone that has
        // been looked at before.
        while self.reserved() > 0 {
            for zone in self.low_zones(node) {
                if zone.reserved.load(Relaxed) == 0 {
                    continue;
                }
                let mut buddy = zone.buddy.lock();
                let reserved = zone.reserved.load(Relaxed);
                if reserved == 0 {
                    continue;
                }
                let Some(block) = buddy.take(&self.table, 0, true, End::Low) else { continue };
                zone.reserved.store(reserved - 1, Relaxed);
                self.note(zone, &buddy);
                // SAFETY: 1. the block came off the lists of the zone just now, so it is the
                // caller's alone. 2. `Dirty` makes no promise.
                return Ok(unsafe { Frame::from_raw(self.machine, block.pfn, 0) });
            }
        }
        Err(NoFrame::new(0, node, self.node_free(node)))
    }

    /// Returns the number of free frames that are kept for parts of large pages: no other request
    /// is served from them.
    pub fn reserved(&self) -> u32 {
        self.zones.iter().map(|zone| zone.reserved.load(Relaxed)).sum()
    }

    /// The zones of low memory, those of `node` first.
    fn low_zones(&self, node: NodeId) -> impl Iterator<Item = &Zone> {
        let its = move |zone: &&Zone| zone.run.node == node;
        let low = || self.zones.iter().filter(|zone| zone.run.class == ZoneClass::Low);
        low().filter(its).chain(low().filter(move |zone| !its(zone)))
    }
}
