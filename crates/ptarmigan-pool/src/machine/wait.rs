//! Serves futures that wait for a page: with pages that are given back, and with those that a slow
//! path has left where others find them.
use super::{Core, LEVEL};
use crate::acquire::{Ticket, Wakers};
use crate::error::PoolError;
use crate::state::{PageState, Workshop};
use ptarmigan::addr::FRAME_SHIFT;
use ptarmigan::frames::AllocFlags;
use ptarmigan::page::Clean;
use ptarmigan::quicklist::Returned;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::task::{Poll, Waker};

/// What a future gets: the number of a page that was taken for it, or why there is none.
pub(super) type Served = Result<u32, PoolError>;

fn number(page: &Clean) -> u32 {
    (page.addr().0 >> FRAME_SHIFT) as u32
}

impl<S: PageState> Core<S> {
    /// Takes a page for a future that has `ticket`, if it has one. Without a page the future waits,
    /// and `waker` is woken when it should call again.
    pub fn poll_take(
        &self,
        ticket: &mut Option<Ticket>,
        waker: &Waker,
    ) -> Poll<Result<NonNull<u8>, PoolError>> {
        if ticket.is_none() {
            // Those that wait come first.
            if !self.waiters.is_waiting() || self.is_forked() {
                match self.take() {
                    Err(PoolError::Full { .. }) => {}
                    taken => return Poll::Ready(taken),
                }
            }
            *ticket = Some(self.waiters.join(waker.clone()));
            // A page may have come back before it joined.
            self.settle();
        } else if self.is_forked() {
            // The queue's lock may be held for ever. Its entry goes with this process.
            *ticket = None;
            return Poll::Ready(Err(PoolError::Forked));
        }
        let served = ticket.as_ref().and_then(|ticket| self.waiters.collect(ticket, waker));
        let Some(served) = served else { return Poll::Pending };
        *ticket = None;
        Poll::Ready(served.map(|number| self.map().nth(number as usize).base()))
    }

    /// A future does not wait any more. A page that it was given goes to the next, or back.
    pub fn leave_queue(&self, ticket: Ticket) {
        if self.is_forked() {
            return;
        }
        if let Some(Ok(number)) = self.waiters.leave(ticket) {
            let base = self.map().nth(number as usize).base();
            // SAFETY: 1. it was taken for the future, which is the only one that had it. 2. it was
            // in its state then, and has not been used since.
            unsafe { self.give(base) };
        }
    }

    /// Gives a page that comes back to the future that has waited longest, and puts its waker into
    /// `woken`. Returns the page if no future waits.
    pub(super) fn pass_on(&self, page: Clean, woken: &mut Wakers) -> Option<Clean> {
        match self.waiters.offer(Ok(number(&page))) {
            Ok(waker) => {
                page.into_raw();
                self.passed_on.fetch_add(1, Relaxed);
                woken.push(waker);
                None
            }
            Err(_) => Some(page),
        }
    }

    /// Ends a slow path: futures that wait get the pages that it left where others find them.
    pub(super) fn settle(&self) {
        drop(self.serve());
    }

    /// As [`settle`](Self::settle), for callers that hold a lock: they drop the wakers once they
    /// have given it up.
    pub(super) fn serve(&self) -> Wakers {
        // A future joins, and then looks for a page; this path has put its pages down, and then
        // looks for a future. The fence is between both steps there (below) and here, so one of
        // them sees the other.
        fence(SeqCst);
        if self.waiters.is_waiting() { self.serve_waiting() } else { Wakers::default() }
    }

    #[cold]
    fn serve_waiting(&self) -> Wakers {
        let mut woken = Wakers::default();
        while self.waiters.is_waiting() {
            // To the depots, where the next line finds them, on whatever node they are.
            self.hand_over_common();
            self.hand_over_own();
            let taken = self.seated_do(|pin| self.lists_on(pin).alloc(LEVEL, AllocFlags::URGENT));
            match taken {
                Ok(page) => match self.waiters.offer(Ok(number(&page))) {
                    Ok(waker) => {
                        page.into_raw();
                        woken.push(waker);
                    }
                    // It has left meanwhile.
                    // SAFETY: 1. it was taken from these lists above.
                    Err(_) => self.put_back(unsafe { Returned::new(page) }),
                },
                Err(_) => {
                    // Full: a page that comes back later is passed on. A constructor that failed
                    // would fail `page`, too.
                    let Some(why) = Workshop::<S>::why() else { break };
                    if let Ok(waker) = self.waiters.offer(Err(PoolError::State(why))) {
                        woken.push(waker);
                    }
                }
            }
        }
        woken
    }
}
