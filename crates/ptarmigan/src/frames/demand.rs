//! Decides the number of zero frames to have ready.
//!
//! **The gate.** Clearing ahead saves no work; it moves the work to a moment when no caller waits.
//! So it is done for demand that was measured, and for no other. Each zone counts the frames that
//! were asked for as zero since its stock of them was last sufficient. That is how many it should
//! have ready (the goal), in blocks of the largest size asked for: a call clears at most the
//! missing frames. Once the stock has reached the goal the count begins again, and each call that
//! finds enough lowers the goal by an eighth; zeros taken by requests that had not asked for any,
//! because no other frame was left, lower it by as many. And a frame that is asked for pays for
//! clearing one and no more: so no frame is cleared without requests, and if all of it should be in
//! vain, clearing is twice the work that it would have been, half of it in idle time.
use core::iter::Sum;
use core::ops::Add;

/// The requests for zero frames: of an allocator in frames of 4 KiB, of data frames in these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroCounts {
    /// Asked for as zero.
    pub asked: u64,
    /// Of these, known to be zero when they were handed out; the others had to be cleared then.
    pub found: u64,
    /// Cleared ahead.
    pub ahead: u64,
    /// Known to be zero, and taken by a request that had not asked for that.
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
    #[inline]
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

    /// Returns how many to clear where `stock` are zero and there is room for `most`.
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

/// The counts of a zone, under its lock.
#[derive(Default)]
pub(super) struct ZeroTally {
    pub counts: ZeroCounts,
    pub demand: Demand,
    /// Order of the largest block asked for since the stock last sufficed.
    pub order: u8,
    /// Frames that CPUs are clearing at the moment.
    pub out: u32,
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
