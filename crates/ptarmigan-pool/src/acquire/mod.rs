//! Waits for a page of a full pool: a future, for any executor.
//!
//! # The protocol
//!
//! 1. A future that finds the pool full joins the [queue], and then looks once more for a page, as
//!    every slow path of the pool does at its end (`machine/wait.rs`).
//! 2. While a future waits, the queue's word is no pool's number. A thread compares it with the
//!    number of its slot on every hit anyway, so from then on it takes the slow path: a page that
//!    is given back goes to the first in the queue, and the thread's magazines to the depots.
//! 3. A page is given to a future, not left for the first that comes: it is the future's from then
//!    on. A future that is dropped before it has taken its page gives it back, to the next.
//!
//! ```text
//!  future                              thread with a page
//!  take: the pool is full
//!  join ── word = WAITING              page in the depots
//!  fence                  ──┐   ┌──    fence
//!                            ╳
//!  look for a page        <─┘   └─>    is_waiting? offer the page ──> wake
//!  Pending ── poll ──> collect: its page
//! ```
//!
//! # Why no wake-up is lost
//!
//! A future joins before it looks, and a slow path looks for a future after it has put its pages
//! where others find them. Between the two steps of each is a fence, so one of them sees the other.
//! Otherwise the last page could go to the depots just after the future has looked there, and the
//! future would sleep beside it. A hit must not pay for this: it compares a word that it compares
//! anyway. A hit that was in progress when the word changed leaves its page in the magazines of its
//! thread, as those before it did: see [`PagePool::acquire`](super::PagePool::acquire) for the
//! bound.
mod queue;

pub(crate) use queue::{Queue, Ticket, Wakers};

use super::PagePool;
use super::error::PoolError;
use super::page::{PageIn, PoolHandle};
use super::state::Zeroed;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A future that borrows its pool.
pub type Acquire<'p, S = Zeroed> = AcquireIn<&'p PagePool<S>>;
/// A future that owns a share of its pool, which becomes the page's.
pub type ArcAcquire<S = Zeroed> = AcquireIn<Arc<PagePool<S>>>;

/// A page that is to come: made by [`PagePool::acquire`] and [`PagePool::arc_acquire`].
///
/// It may be dropped at any time. A page that it was given and has not handed on goes to the next
/// future, or back to the pool. One that is forgotten (`mem::forget`) while it waits keeps the page
/// that it will be given until the pool ends.
///
/// It cannot outlive its pool:
///
/// ```compile_fail,E0505
/// # use ptarmigan_pool::{PagePool, PoolConfig};
/// let pool = PagePool::new(PoolConfig::default()).unwrap();
/// let page = pool.acquire();
/// drop(pool); // cannot move out of `pool` because it is borrowed
/// drop(page);
/// ```
///
/// One that borrows cannot be sent off to run on its own:
///
/// ```compile_fail,E0597
/// # use ptarmigan_pool::{PagePool, PoolConfig};
/// fn spawn<F: Future + Send + 'static>(_: F) {}
/// let pool = PagePool::new(PoolConfig::default()).unwrap();
/// spawn(pool.acquire()); // `pool` does not live long enough; `arc_acquire` owns a share
/// ```
#[must_use = "a future does nothing unless it is awaited"]
pub struct AcquireIn<H: PoolHandle> {
    /// `None` once the page has been handed out.
    pool: Option<H>,
    ticket: Option<Ticket>,
}

impl<H: PoolHandle> AcquireIn<H> {
    pub(super) fn new(pool: H) -> Self {
        AcquireIn { pool: Some(pool), ticket: None }
    }
}

// No part of it is pinned.
impl<H: PoolHandle> Unpin for AcquireIn<H> {}

impl<H: PoolHandle> Future for AcquireIn<H> {
    type Output = Result<PageIn<H>, PoolError>;

    /// # Panics
    ///
    /// If it is polled after it was ready, as futures of `async` blocks do.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let AcquireIn { pool, ticket } = self.get_mut();
        let Some(handle) = pool else { panic!("`acquire` is polled after it was ready") };
        let Poll::Ready(taken) = handle.core().poll_take(ticket, cx.waker()) else {
            return Poll::Pending;
        };
        let Some(handle) = pool.take() else { return Poll::Pending };
        Poll::Ready(taken.map(|base| {
            // SAFETY: 1. `poll_take` took it of this pool's core for this call.
            unsafe { PageIn::new(handle, base) }
        }))
    }
}

impl<H: PoolHandle> Drop for AcquireIn<H> {
    fn drop(&mut self) {
        if let (Some(pool), Some(ticket)) = (&self.pool, self.ticket.take()) {
            pool.core().leave_queue(ticket);
        }
    }
}

impl<H: PoolHandle> fmt::Debug for AcquireIn<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (&self.pool, &self.ticket) {
            (None, _) => "ready",
            (_, None) => "not polled",
            (_, Some(_)) => "waiting",
        };
        write!(f, "page to come, {state}")
    }
}
