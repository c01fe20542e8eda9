//! One word for each frame: where it is mapped, and how many users it has.
//!
//! ```text
//!   31          16 15           0
//!  ┌──────────────┬──────────────┐   0: not mapped         n + 1: n users
//!  │     slot     │    count     │   1: stale, no users    join: +1, leave: -1
//!  └──────────────┴──────────────┘   expire: stale ──> 0, by a sweep
//! ```
//!
//! # Why
//!
//! A user must not join a slot that a sweep is taking. With the count at the slot and the slot's
//! number at the frame, a user would read the number, and a sweep could free the slot before the
//! count is raised. In one word, one compare-exchange does both or neither.
//!
//! `leave` and `expire` are `SeqCst`: a caller that waits for slots queues first and looks at the
//! words then, so that it sees the last user leave or is woken by it.
use crate::sync::atomic::{AtomicU32, Ordering};

/// The slot of a frame and the state of that slot, in one word: 0 while the frame is not mapped;
/// otherwise the number of the slot above 16 bits of count. A count of 1 is no user, and n is n - 1
/// users.
///
/// As both are in one word, a user joins by one compare-exchange: it cannot join a slot that has
/// been swept in between, nor one that shows another frame by now.
pub(super) struct FrameCell(AtomicU32);

const COUNT: u32 = 0xffff;
/// Mapped, without users.
const STALE: u32 = 1;
/// The count with one user.
const USED: u32 = 2;

/// The count is at its end.
pub(super) struct Full;

impl FrameCell {
    pub fn new() -> Self {
        FrameCell(AtomicU32::new(0))
    }

    fn word(slot: usize, count: u32) -> u32 {
        (slot as u32) << 16 | count
    }

    /// Adds a user, if the frame is mapped; returns its slot then.
    #[inline]
    pub fn join(&self) -> Result<Option<usize>, Full> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            match word & COUNT {
                0 => return Ok(None),
                COUNT => return Err(Full),
                _ => {}
            }
            match self.0.compare_exchange(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Some((word >> 16) as usize)),
                Err(now) => word = now,
            }
        }
    }

    /// Maps the frame in `slot`, which shows it, with one user; false if it is mapped already.
    #[inline]
    pub fn publish(&self, slot: usize) -> bool {
        self.0.compare_exchange(0, Self::word(slot, USED), Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes a user off; whether that was the last one.
    #[inline]
    pub fn leave(&self) -> bool {
        // Before the look at the queue of waiters, which look at cells after they have queued.
        let old = self.0.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(old & COUNT >= USED, "a user left that never came");
        old & COUNT == USED
    }

    /// Ends the mapping in `slot`, if it has no users; whether it did.
    #[inline]
    pub fn expire(&self, slot: usize) -> bool {
        let stale = Self::word(slot, STALE);
        self.0.load(Ordering::SeqCst) == stale
            && self.0.compare_exchange(stale, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns the slot and its count; `None` while the frame is not mapped.
    pub fn get(&self) -> Option<(usize, u32)> {
        let word = self.0.load(Ordering::Acquire);
        (word & COUNT != 0).then_some(((word >> 16) as usize, word & COUNT))
    }
}
