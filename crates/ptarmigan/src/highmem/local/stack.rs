//! Keeps the frames that a CPU shows in its slots.
use crate::addr::Pfn;
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// Slots of a CPU at most.
pub const MAX_DEPTH: usize = 32;

/// Shows nothing, and the CPU has forgotten what it showed.
pub(super) const EMPTY: u8 = 0;
/// Shows nothing; the CPU may know what it showed.
pub(super) const STALE: u8 = 1;
/// Shows a frame that nobody uses there: the slot could not be emptied.
pub(super) const UNUSED: u8 = 2;
/// Shows a frame.
pub(super) const LIVE: u8 = 3;
/// Shows a frame whose guard was forgotten.
pub(super) const FORGOTTEN: u8 = 4;

pub(super) struct LocalSlot {
    frame: AtomicU32,
    state: AtomicU8,
}

/// The stack of a CPU. Only this CPU writes to it.
#[derive(Default)]
pub(super) struct Stack {
    /// Slots below this one are taken.
    depth: AtomicU8,
    slots: [LocalSlot; MAX_DEPTH],
}

impl Default for LocalSlot {
    fn default() -> Self {
        LocalSlot { frame: AtomicU32::new(Pfn::NONE.0), state: AtomicU8::new(EMPTY) }
    }
}

impl Stack {
    #[inline]
    pub fn depth(&self) -> usize {
        usize::from(self.depth.load(Relaxed))
    }

    #[inline]
    pub fn set_depth(&self, depth: usize) {
        self.depth.store(depth as u8, Relaxed);
    }

    #[inline]
    pub fn state(&self, at: usize) -> u8 {
        self.slots[at].state.load(Relaxed)
    }

    #[inline]
    pub fn set_state(&self, at: usize, state: u8) {
        self.slots[at].state.store(state, Relaxed);
    }

    #[inline]
    pub fn frame(&self, at: usize) -> Pfn {
        Pfn(self.slots[at].frame.load(Relaxed))
    }

    #[inline]
    pub fn set_frame(&self, at: usize, pfn: Pfn) {
        self.slots[at].frame.store(pfn.0, Relaxed);
    }
}
