//! The controller of `userpte=auto`: low memory unless it runs short (REQ-30).
//!
//! # The decision
//!
//! A leaf table is made of low memory, unless one of these holds:
//!
//! 1. Fewer low frames are free than the *reserve*.
//! 2. Tables take more of low memory than *beta* allows.
//! 3. Fewer low frames are free than reserve and *margin* together, and the accesses that the table
//!    will see cost less than a low frame is worth now. A low frame has no value at the upper end
//!    of the margin, and at the lower end the cost of reclaiming one.
//!
//! # Hysteresis
//!
//! While tables go to high memory, free frames count for an eighth less and tables for an eighth
//! more than there are. So a table that comes or goes does not change the decision to and fro.
//!
//! # Stickiness
//!
//! A space that has a high table, or more tables than its *share* of low memory, gets high ones
//! until low memory is ample: twice reserve and margin are free.
//!
//! # When it is worked out
//!
//! Whenever a table comes from the frame allocator or goes back to it, and at the end of gathers
//! while tables go to high memory. A table that the lists have at hand takes no memory, so for
//! those one load is all that `auto` costs.
use crate::frames::{Frames, HighUse};
use crate::params::AutoParams;
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// The state of low memory at the last check, ordered by the amount that is free.
const SHORT: u8 = 0;
const ENOUGH: u8 = 1;
const AMPLE: u8 = 2;

/// Machines with more frames than this begin with tables in high memory: at 32 GiB the records of
/// frames alone take a third of low memory.
const LARGE: u32 = 1 << 23;

/// The costs of accesses to tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoCosts {
    /// Opening a window on a high table, and closing it again, in nanoseconds.
    pub map_ns: u32,
    /// Winning back a low frame, in nanoseconds.
    pub frame_ns: u32,
    /// How often a table is opened while it is in use.
    pub maps: u32,
}

impl Default for AutoCosts {
    /// Returns costs of the order that an emulated i386 shows.
    fn default() -> Self {
        AutoCosts { map_ns: 100, frame_ns: 20_000, maps: 64 }
    }
}

/// Decides for each leaf table whether it is made of high memory.
#[derive(Debug)]
pub struct AutoPlacement {
    state: AtomicU8,
    /// Bounds, in frames.
    reserve: u32,
    margin: u32,
    most_tables: u32,
    share: u32,
    frame_ns: u32,
    /// The cost of all accesses to a table, in nanoseconds.
    accesses_ns: AtomicU32,
    map_ns: u32,
}

impl AutoPlacement {
    /// Makes the controller of a machine with the memory of `frames`.
    pub fn new(frames: &Frames, params: &AutoParams, costs: AutoCosts) -> Self {
        let (_, low) = frames.low_frames();
        let part = |percent: u8| (u64::from(low) * u64::from(percent) / 100) as u32;
        let starts_high = frames.has_high() && frames.counts().total > LARGE;
        let AutoCosts { map_ns, frame_ns, maps } = costs;
        let auto = AutoPlacement {
            state: AtomicU8::new(if starts_high { SHORT } else { AMPLE }),
            reserve: part(params.reserve),
            margin: part(params.margin).max(1),
            most_tables: part(params.beta),
            share: part(params.share).max(1),
            frame_ns,
            accesses_ns: AtomicU32::new(0),
            map_ns,
        };
        auto.observe(maps);
        auto
    }

    /// Returns how many leaf tables a space may have of low memory before it
    /// [prefers](HighUse::Prefer) high memory.
    pub fn share(&self) -> u32 {
        self.share
    }

    /// Notes how often tables are opened while they are in use, as far as that has been counted.
    pub fn observe(&self, maps: u32) {
        self.accesses_ns.store(maps.saturating_mul(self.map_ns), Relaxed);
    }

    /// Returns whether a table should be made of high memory now.
    #[inline]
    pub fn prefers_high(&self, high: HighUse) -> bool {
        let least = if matches!(high, HighUse::Prefer) { ENOUGH } else { SHORT };
        self.state.load(Relaxed) <= least
    }

    /// Returns whether low memory was short when it was last looked at.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.state.load(Relaxed) == SHORT
    }

    /// Looks at low memory, of which `tables` frames are in tables or kept for them.
    pub fn look(&self, frames: &Frames, tables: u32) {
        let (free, _) = frames.low_frames();
        self.state.store(self.decide(free, tables, self.is_short()), Relaxed);
    }

    /// Returns the state of low memory with `free` free frames and `tables` frames in tables.
    fn decide(&self, free: u32, tables: u32, was_short: bool) -> u8 {
        let (seen, tables) = if was_short { (free - free / 8, tables + tables / 8) } else { (free, tables) };
        let plenty = self.reserve + self.margin;
        if seen < self.reserve || tables > self.most_tables {
            return SHORT;
        }
        if seen < plenty {
            let missing = u64::from(plenty - seen);
            let price = u64::from(self.frame_ns) * missing / u64::from(self.margin);
            if u64::from(self.accesses_ns.load(Relaxed)) < price {
                return SHORT;
            }
        }
        if free < plenty.saturating_mul(2) { ENOUGH } else { AMPLE }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Of 1,000 low frames.
    fn auto(costs: AutoCosts) -> AutoPlacement {
        let auto = AutoPlacement {
            state: AtomicU8::new(AMPLE),
            reserve: 100,
            margin: 100,
            most_tables: 400,
            share: 50,
            frame_ns: costs.frame_ns,
            accesses_ns: AtomicU32::new(0),
            map_ns: costs.map_ns,
        };
        auto.observe(costs.maps);
        auto
    }

    const CHEAP: AutoCosts = AutoCosts { map_ns: 1, frame_ns: 1000, maps: 1 };
    const DEAR: AutoCosts = AutoCosts { map_ns: 100, frame_ns: 1000, maps: 100 };

    #[test]
    fn low_memory_is_short_below_the_reserve_whatever_accesses_cost() {
        for costs in [CHEAP, DEAR] {
            let auto = auto(costs);
            assert_eq!(auto.decide(99, 0, false), SHORT);
            assert_eq!(auto.decide(400, 0, false), AMPLE);
        }
        assert_eq!(auto(DEAR).decide(100, 0, false), ENOUGH);
        assert_eq!(auto(CHEAP).decide(199, 0, false), SHORT, "a frame is worth 10 ns, accesses cost 1");
        assert_eq!(auto(CHEAP).decide(200, 0, false), ENOUGH);
    }

    #[test]
    fn tables_have_a_bound_of_their_own() {
        let auto = auto(DEAR);
        assert_eq!(auto.decide(600, 400, false), AMPLE);
        assert_eq!(auto.decide(599, 401, false), SHORT);
    }

    #[test]
    fn what_was_short_stays_short_until_there_is_an_eighth_more() {
        let auto = auto(DEAR);
        assert_eq!(auto.decide(110, 0, true), SHORT);
        assert_eq!(auto.decide(110, 0, false), ENOUGH);
        assert_eq!(auto.decide(115, 0, true), ENOUGH);
        assert_eq!(auto.decide(600, 360, true), SHORT);
        assert_eq!(auto.decide(600, 350, true), AMPLE);
    }

    #[test]
    fn a_space_with_high_tables_gets_more_until_low_memory_is_ample() {
        let auto = auto(DEAR);
        for (free, may, prefer) in [(50, true, true), (300, false, true), (500, false, false)] {
            auto.state.store(auto.decide(free, 0, false), Relaxed);
            assert_eq!(auto.prefers_high(HighUse::May), may, "{free}");
            assert_eq!(auto.prefers_high(HighUse::Prefer), prefer, "{free}");
        }
    }
}
