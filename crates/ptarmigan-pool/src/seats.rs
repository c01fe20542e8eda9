//! Finds the CPU of a pool that the calling thread stands for: a thread takes a slot the first time
//! it needs one and leaves it when it ends.
//!
//! ```text
//!  thread   find ── take a slot ──> NEAR: one load on each hit
//!             │                     TAKEN ── the thread ends ── Link::leave ──> slot is free,
//!  pool     open ──────────────────────────────────────────────┘  (lock)       pages to depots
//!           close ── waits for threads in `leave`; later ones find no pool
//! ```
//!
//! # Why
//!
//! A thread-local with a destructor costs a check at each access. So the seats for a quick look
//! have none, and a second list has the destructor. Either may come first, the end of a thread or
//! the end of its pool, so that both meet at a link with a lock: a thread that ends must not call a
//! pool that is gone. A process that forks must not take that lock in the child, because a thread
//! that does not exist there may hold it.
use super::acquire::Wakers;
use super::fork::Process;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, PoisonError};

/// A thread's place in a pool.
#[derive(Clone, Copy)]
pub(super) struct Seat {
    /// The number of the pool; numbers are never used again.
    pub pool: u64,
    pub cpu: u16,
    pub node: u8,
}

const NOWHERE: Seat = Seat { pool: 0, cpu: 0, node: 0 };
/// Pools that a thread can use in turns without searching.
const WAYS: usize = 4;

/// A pool's work for a thread that ends.
pub(super) trait Leave {
    /// Takes the seat back. The thread that calls it is the one that had it, and does not use it
    /// again. Returns the wakers of futures that got its pages.
    fn leave(&self, seat: Seat) -> Wakers;
}

/// From threads to their pool, while there is one.
pub(super) struct Link {
    pool: Mutex<Option<Ptr>>,
    /// The process that has the pool.
    process: Process,
}

struct Ptr(*const (dyn Leave + Send + Sync));

// SAFETY: its target may be used from any thread, and is valid while it is in the link
// (`Link::open`).
unsafe impl Send for Ptr {}

impl Link {
    pub fn closed() -> Self {
        Link { pool: Mutex::new(None), process: Process::current() }
    }

    /// From now on threads that end tell `pool`.
    ///
    /// # Safety
    ///
    /// 1. `pool` must be valid until [`close`](Self::close) has returned.
    pub unsafe fn open(&self, pool: *const (dyn Leave + Send + Sync)) {
        *self.pool.lock().unwrap_or_else(PoisonError::into_inner) = Some(Ptr(pool));
    }

    /// Waits for threads that are just leaving; those after them find no pool.
    pub fn close(&self) {
        *self.pool.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether the calling process is a child of the one that has the pool. Locks of the pool may
    /// be held for ever there, this one's among them.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.process.is_another()
    }

    fn leave(&self, seat: Seat) {
        if self.is_forked() {
            return;
        }
        let woken = self.pool.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|pool| {
            // SAFETY: the link is open and stays so while it is locked, so the pool is valid
            // (contract of `open`).
            unsafe { &*pool.0 }.leave(seat)
        });
        // Not under the lock: a waker may drop the last share of the pool, which closes the link.
        drop(woken);
    }

    fn is_closed(&self) -> bool {
        !self.is_forked() && self.pool.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

/// A seat that is left when this is dropped: when its thread ends.
struct Taken {
    seat: Seat,
    link: Arc<Link>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Whatever runs on this thread from now on (destructors of pages, of other thread-locals)
        // has no seat.
        near(self.seat.pool, |cell| {
            if cell.get().pool == self.seat.pool {
                cell.set(NOWHERE);
            }
        });
        self.link.leave(self.seat);
    }
}

thread_local! {
    /// Seats for a quick look. Without a destructor, so that reading it costs a load.
    static NEAR: [Cell<Seat>; WAYS] = const { [const { Cell::new(NOWHERE) }; WAYS] };
    /// All seats of the thread.
    static TAKEN: RefCell<Vec<Taken>> = const { RefCell::new(Vec::new()) };
}

#[inline]
fn near<R>(pool: u64, f: impl FnOnce(&Cell<Seat>) -> R) -> Option<R> {
    // `with` is a call, even where it cannot fail.
    NEAR.try_with(|cells| f(&cells[pool as usize % WAYS])).ok()
}

/// The calling thread's seat in a pool, if it is at hand.
#[inline]
pub(super) fn at_hand(pool: u64) -> Option<Seat> {
    let seat = near(pool, Cell::get)?;
    (seat.pool == pool).then_some(seat)
}

/// The calling thread's seat in a pool; if it has no seat, one that `take` finds. `None` if no seat
/// is free, or the thread is ending.
pub(super) fn find(pool: u64, link: &Arc<Link>, take: impl FnOnce() -> Option<Seat>) -> Option<Seat> {
    let mut gone = Vec::new();
    let seat = TAKEN.try_with(|taken| {
        let mut taken = taken.try_borrow_mut().ok()?;
        if let Some(found) = taken.iter().find(|t| t.seat.pool == pool) {
            return Some(found.seat);
        }
        let seat = take()?;
        gone.extend(taken.extract_if(.., |t| t.link.is_closed()));
        taken.push(Taken { seat, link: link.clone() });
        Some(seat)
    });
    // Not while the list is borrowed.
    drop(gone);
    let seat = seat.ok().flatten()?;
    near(pool, |cell| cell.set(seat));
    Some(seat)
}

/// The calling thread has moved: its seat is on `node` now.
pub(super) fn moved(pool: u64, node: u8) {
    let _ = TAKEN.try_with(|taken| {
        let Ok(mut taken) = taken.try_borrow_mut() else { return };
        if let Some(found) = taken.iter_mut().find(|t| t.seat.pool == pool) {
            found.seat.node = node;
            near(pool, |cell| cell.set(found.seat));
        }
    });
}
