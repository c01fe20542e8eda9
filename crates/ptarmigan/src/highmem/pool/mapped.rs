//! A frame that is mapped.
use super::cell::FrameCell;
use super::queue::SlotQueue;
use super::sleep::Wake;
use super::{NOTHING, ORPHAN};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::window::WindowGuard;

/// A use of a frame that is mapped; ends when dropped, on whatever CPU. A use that is forgotten
/// keeps the slot for ever.
pub struct Mapped<'p, K: Wake = ()> {
    pub(super) base: *mut u8,
    /// `None` for a frame that needs no slot; kept for what it does when it is dropped.
    pub(super) _user: Option<User<'p, K>>,
}

// SAFETY: the address is the same on all CPUs, and what is dropped are atomics and locks.
unsafe impl<K: Wake> Send for Mapped<'_, K> {}
// SAFETY: it gives out an address.
unsafe impl<K: Wake> Sync for Mapped<'_, K> {}

// SAFETY: the frame's word counts this user, so the slot shows the frame while the guard lives.
unsafe impl<K: Wake> WindowGuard for Mapped<'_, K> {
    #[inline]
    fn base(&self) -> *mut u8 {
        self.base
    }
}

impl<K: Wake> Mapped<'_, K> {
    /// Ends this use, and another one of the same frame that was forgotten. For callers that keep
    /// addresses only: they map the frame once more to end a use.
    ///
    /// # Safety
    ///
    /// 1. A use of the frame from the same pool was forgotten, and has not been ended in this way.
    pub unsafe fn end_with_forgotten(self) {
        if let Some(user) = &self._user {
            drop(User { cell: user.cell, queue: user.queue, wake: user.wake });
        }
    }
}

/// What the frame's word counts.
pub(super) struct User<'p, K: Wake> {
    pub cell: &'p FrameCell,
    pub queue: &'p SlotQueue,
    pub wake: &'p K,
}

impl<K: Wake> Drop for User<'_, K> {
    #[inline]
    fn drop(&mut self) {
        if self.cell.leave() {
            self.queue.notify_after_rmw(self.wake);
        }
    }
}

/// A slot that shows a frame and that no word names. Left to the next sweep when dropped, forgotten
/// otherwise.
pub(super) struct Orphan<'p, K: Wake> {
    pub owner: &'p AtomicU32,
    pub queue: &'p SlotQueue,
    pub wake: &'p K,
}

impl<K: Wake> Drop for Orphan<'_, K> {
    #[cold]
    fn drop(&mut self) {
        debug_assert_eq!(self.owner.load(Ordering::Relaxed), NOTHING);
        self.owner.store(ORPHAN, Ordering::SeqCst);
        self.queue.notify(self.wake);
    }
}
