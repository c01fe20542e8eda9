//! Frames that a session hands out, and numbers to choose by.
use crate::state::{Adversary, Chance};
use std::fmt;
use std::ops::Range;

/// The frames that a session hands out, and its random numbers.
pub(super) struct Pool {
    range: Range<u64>,
    free: Vec<u64>,
    seed: u64,
    chance: Chance,
}

impl Pool {
    pub(super) fn new(range: Range<u64>, frame: u64, seed: u64) -> Self {
        let free =
            range.clone().step_by(usize::try_from(frame.max(1)).unwrap_or(usize::MAX)).collect::<Vec<_>>();
        // The adversary has the same seed, and must make other choices.
        let chance = Chance::new(Adversary::new(!seed));
        Self { free: free.into_iter().rev().collect(), range, seed, chance }
    }

    /// Makes the same with other frames.
    pub(super) fn with_frames(&self, range: Range<u64>, frame: u64) -> Self {
        Self::new(range, frame, self.seed)
    }

    /// Hands out a frame: the one that was put back last, or a new one.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.free.pop()
    }

    /// Puts a frame back that was handed out here.
    pub(super) fn put(&mut self, phys: u64) {
        if self.range.contains(&phys) {
            self.free.push(phys);
        }
    }

    /// Returns a number below `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.chance.below(n)
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new(0..0, 1, 0)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("free", &self.free.len()).field("seed", &self.seed).finish()
    }
}
