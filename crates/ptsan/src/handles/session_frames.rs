//! Provides helpers of a session for tests, beside the hooks: frames to hand out, entries to store,
//! numbers to choose by.
use super::session::Session;
use crate::memory::Memory;
use std::ops::Range;

impl<M: Memory> Session<M> {
    /// Lets [`Session::table`] hand out the frames that begin in a range of physical addresses, one
    /// for each usual table of the format. A session that [`Test`](crate::Test) made has frames.
    #[must_use]
    pub fn with_frames(mut self, frames: Range<u64>) -> Self {
        self.pool = self.pool.with_frames(frames, self.sanitizer.config.arch.granule());
        self
    }

    /// Allocates and announces a table: a frame that [`Session::free`] took back last, with its old
    /// content, or a new one. `None` if all are in use, or if it has no frames
    /// ([`Session::with_frames`]).
    ///
    /// Code under test with an allocator of its own tells its allocations ([`Session::alloc`]).
    pub fn table(&mut self) -> Option<u64> {
        let table = self.pool.take()?;
        self.alloc(table);
        Some(table)
    }

    /// Returns a number below `n` (0 if `n` is 0). The numbers follow from the seed.
    pub fn below(&mut self, n: u64) -> u64 {
        self.pool.below(n)
    }

    /// Returns the seed of this run of a [`Test`](crate::Test), otherwise 0.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.pool.seed()
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
