//! Callers that sleep for a slot, first come first served.
//!
//! # Protocol
//!
//! 1. A caller queues, and after a fence looks for a slot: at the sets of free slots, at the owners
//!    of all others, and at the words of frames.
//! 2. Code that makes a slot available does so, and after a fence looks whether the queue is empty.
//!    Where the slot goes to a set, that set's lock stands for the fences.
//! 3. Only the first of the queue looks for slots; when it leaves, with a slot or without, it wakes
//!    the next one, which looks in its turn.
//!
//! ```text
//!  caller                              last user of a slot
//!  join the queue ── fence ──┐   ┌──   leave: count - 1 ── fence
//!                             ╳
//!  look for a slot <─────────┘   └─>   is_waited_on? wake the first
//!  none: sleep until woken   <──────
//! ```
//!
//! # Why no wake-up is lost
//!
//! One of the two sees the other, because each stores before its fence and looks after it.
//! Sequentially consistent accesses would not do in place of fences: the owner of a slot is written
//! by a plain store, earlier than the frame's word, and a caller that did not see that store would
//! not look at the word.
//!
//! Only the first looks, because a slot must not go to a caller that came later: in a crowd of
//! callers the first could wait for ever.
use super::config::{PoolError, Turn};
use super::sleep::{MaySleep, Wake};
use crate::cpu::Pinned;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use crate::sync::{SpinLock, fence_after_rmw};
use core::cell::Cell;
use core::marker::PhantomPinned;
use core::pin::{Pin, pin};
use core::ptr;

/// Calls `attempt` until it fails for another reason than a lack of slots, or does not. Between two
/// attempts the caller sleeps, with a place in the queue that `queue` names after the first one.
///
/// The place is left when the call ends, which wakes the next one.
pub(super) fn map_or_sleep<'q, T, K: Wake + ?Sized>(
    queue: impl FnOnce() -> &'q SlotQueue,
    wake: &K,
    context: &mut impl MaySleep,
    mut attempt: impl FnMut(&Pinned<'_>, Turn) -> Result<T, PoolError>,
) -> Result<T, PoolError> {
    match context.pinned(|pin| attempt(pin, Turn::Newcomer)) {
        Err(PoolError::Exhausted { .. }) => {}
        done => return done,
    }
    let waiter = pin!(Waiter::new(context.task()));
    let waiter = waiter.as_ref();
    let place = queue().join(waiter, wake);
    loop {
        waiter.rearm();
        let found = context.pinned(|pin| {
            let turn = if place.is_first() { Turn::First } else { Turn::Newcomer };
            attempt(pin, turn)
        });
        let slots = match found {
            Err(PoolError::Exhausted { slots }) => slots,
            done => return done,
        };
        if !context.sleep(&|| waiter.is_woken()) {
            return Err(PoolError::TimedOut { slots });
        }
    }
}

/// One caller that sleeps.
struct Waiter {
    next: Cell<*const Waiter>,
    previous: Cell<*const Waiter>,
    task: usize,
    woken: AtomicBool,
    _stay: PhantomPinned,
}

impl Waiter {
    pub fn new(task: usize) -> Self {
        let none = || Cell::new(ptr::null());
        let woken = AtomicBool::new(false);
        Waiter { next: none(), previous: none(), task, woken, _stay: PhantomPinned }
    }

    pub fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    /// Forgets a wake-up: to be called before the caller looks. With the fence between the queue
    /// and the look.
    pub fn rearm(&self) {
        self.woken.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

struct Ends {
    first: *const Waiter,
    last: *const Waiter,
}

// SAFETY: the pointers are to waiters that stay until they have left the queue (`QueuePlace`); they
// are followed under the lock alone, and the cells in a waiter are used under the lock alone.
unsafe impl Send for Ends {}

/// A queue of callers that sleep for a slot of a pool.
pub struct SlotQueue {
    ends: SpinLock<Ends>,
    /// How many wait.
    waiting: AtomicU32,
}

impl Default for SlotQueue {
    fn default() -> Self {
        let ends = Ends { first: ptr::null(), last: ptr::null() };
        SlotQueue { ends: SpinLock::new(ends), waiting: AtomicU32::new(0) }
    }
}

impl SlotQueue {
    /// Returns whether anybody waits.
    #[inline]
    pub(super) fn is_waited_on(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Calls `attempt` until it fails for another reason than a lack of slots, or does not. Between
    /// two attempts the caller sleeps, first come first served. Code that makes a slot available
    /// calls [`notify`](Self::notify) with the same `wake` afterwards.
    ///
    /// # Errors
    ///
    /// [`PoolError::TimedOut`] in place of [`PoolError::Exhausted`], when `context` will not wait
    /// any longer; others at once, as of `attempt`.
    pub fn sleep_until<T, K: Wake + ?Sized>(
        &self,
        wake: &K,
        context: &mut impl MaySleep,
        mut attempt: impl FnMut(&Pinned<'_>) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        map_or_sleep(|| self, wake, context, |pin, _| attempt(pin))
    }

    /// Puts a caller at the end. It leaves when the result is dropped, which wakes the next one.
    fn join<'a, K: Wake + ?Sized>(&'a self, waiter: Pin<&'a Waiter>, wake: &'a K) -> QueuePlace<'a, K> {
        let this: *const Waiter = &*waiter;
        let mut ends = self.ends.lock();
        waiter.previous.set(ends.last);
        if ends.last.is_null() {
            ends.first = this;
        } else {
            // SAFETY: it is in the queue, so it is there; the lock is held.
            unsafe { (*ends.last).next.set(this) };
        }
        ends.last = this;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(ends);
        QueuePlace { queue: self, waiter, wake }
    }

    /// Wakes the first caller, if there is one: a slot may be available.
    pub fn notify<K: Wake + ?Sized>(&self, wake: &K) {
        fence(Ordering::SeqCst);
        if self.is_waited_on() {
            self.wake_first(wake);
        }
    }

    /// As [`notify`](Self::notify), right after a sequentially consistent read-modify-write that
    /// has made the slot available.
    #[inline]
    pub(super) fn notify_after_rmw<K: Wake + ?Sized>(&self, wake: &K) {
        fence_after_rmw();
        if self.is_waited_on() {
            self.wake_first(wake);
        }
    }

    #[cold]
    fn wake_first<K: Wake + ?Sized>(&self, wake: &K) {
        let ends = self.ends.lock();
        // SAFETY: null, or in the queue, so that it is there; the lock is held.
        let Some(first) = (unsafe { ends.first.as_ref() }) else { return };
        first.woken.store(true, Ordering::SeqCst);
        let task = first.task;
        drop(ends);
        // The waiter may be gone by now; a task that is woken for nothing looks and sleeps again.
        wake.wake(task);
    }

    fn is_first(&self, waiter: &Waiter) -> bool {
        ptr::eq(self.ends.lock().first, waiter)
    }
}

/// A place in the queue.
struct QueuePlace<'a, K: Wake + ?Sized> {
    queue: &'a SlotQueue,
    waiter: Pin<&'a Waiter>,
    wake: &'a K,
}

impl<K: Wake + ?Sized> QueuePlace<'_, K> {
    pub fn is_first(&self) -> bool {
        self.queue.is_first(&self.waiter)
    }
}

impl<K: Wake + ?Sized> Drop for QueuePlace<'_, K> {
    fn drop(&mut self) {
        let mut ends = self.queue.ends.lock();
        let (next, previous) = (self.waiter.next.get(), self.waiter.previous.get());
        if previous.is_null() {
            ends.first = next;
        } else {
            // SAFETY: it is in the queue, so it is there; the lock is held.
            unsafe { (*previous).next.set(next) };
        }
        if next.is_null() {
            ends.last = previous;
        } else {
            // SAFETY: as above.
            unsafe { (*next).previous.set(previous) };
        }
        self.queue.waiting.fetch_sub(1, Ordering::SeqCst);
        drop(ends);
        self.queue.notify(self.wake);
    }
}
