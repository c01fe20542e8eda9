//! What a session has for tests beside the hooks: frames to hand out, entries to store, numbers to
//! choose by.
use super::session::Session;
use crate::memory::Memory;
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

    /// Puts a frame back that was handed out here.
    pub(super) fn put(&mut self, phys: u64) {
        if self.range.contains(&phys) {
            self.free.push(phys);
        }
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

impl<M: Memory> Session<M> {
    /// Lets [`Session::table`] hand out the frames that begin in a range of physical addresses, one
    /// for each usual table of the format. A session that [`Test`](crate::Test) made has frames.
    #[must_use]
    pub fn with_frames(mut self, frames: Range<u64>) -> Self {
        self.pool = Pool::new(frames, self.sanitizer.config.arch.granule(), self.pool.seed);
        self
    }

    /// Allocates and announces a table: a frame that [`Session::free`] took back last, with what was
    /// left in it, or a new one. `None` if all are in use, or if it has none
    /// ([`Session::with_frames`]).
    ///
    /// Code under test with an allocator of its own tells what it allocates ([`Session::alloc`]).
    pub fn table(&mut self) -> Option<u64> {
        let table = self.pool.free.pop()?;
        self.alloc(table);
        Some(table)
    }

    /// Returns a number below `n` (0 if `n` is 0). The numbers follow from the seed.
    pub fn below(&mut self, n: u64) -> u64 {
        self.pool.chance.below(n)
    }

    /// Returns the seed of this run of a [`Test`](crate::Test), otherwise 0.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.pool.seed
    }
}

impl Session<Vec<u8>> {
    /// Returns the raw entry at physical address `at`. Outside memory there are zeros.
    #[must_use]
    pub fn get(&self, at: u64) -> u64 {
        self.memory.read(at, self.sanitizer.config.arch.entry_bytes()).unwrap_or_default()
    }

    /// Stores a raw entry at physical address `at`, and tells so ([`Session::stored`]). Outside
    /// memory it only tells.
    pub fn put(&mut self, at: u64, entry: u64) {
        let bytes = usize::from(self.sanitizer.config.arch.entry_bytes());
        let place = usize::try_from(at).ok().and_then(|at| self.memory.get_mut(at..at.checked_add(bytes)?));
        if let Some(place) = place {
            place.copy_from_slice(&entry.to_le_bytes()[..bytes]);
        }
        self.stored(at);
    }
}
