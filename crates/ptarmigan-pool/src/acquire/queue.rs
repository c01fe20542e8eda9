//! Keeps futures in the order in which they began to wait, and the page that each of them was
//! given.
//!
//! ```text
//!  join ──> waiting: ticket -> waker ── offer ──> served: ticket -> value ── collect ──> future
//!               │                                    │
//!               └───────────── leave <───────────────┘   a value that is left goes to the next
//! ```
//!
//! # Why
//!
//! A queue is a lock around two maps by ticket, and a word for code that must not take the lock:
//! the pool's number while no future waits, a number that no pool has while one does. A value is
//! stored for its ticket before the waker is called. With a waker alone, a thread that comes first
//! would take the page, and a future that waits could wait for ever.
//!
//! Wakers are cloned, woken and dropped outside the lock, because they are code of others: an
//! executor may poll the future at once, on the same thread.
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// The word while a future waits: no pool has this number.
const WAITING: u64 = u64::MAX;

/// Wakers of futures that were given something: all are woken when this is dropped, also if one of
/// them, or the code that drops this, unwinds.
#[derive(Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Adds one.
    pub fn push(&mut self, waker: Waker) {
        self.0.push(waker);
    }
}

impl Drop for Wakers {
    fn drop(&mut self) {
        let mut unwound = None;
        for waker in self.0.drain(..) {
            // The others are woken, too; then the first panic goes on.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                unwound.get_or_insert(panic);
            }
        }
        if let Some(panic) = unwound
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

/// The place of a future in a queue.
#[derive(Debug)]
pub(crate) struct Ticket(u64);

/// Futures that wait for values of `T`, first come, first served.
pub(crate) struct Queue<T> {
    /// `idle` while no future waits, else [`WAITING`]; changed under the lock.
    word: AtomicU64,
    idle: u64,
    /// Futures that wait now; changed under the lock.
    len: AtomicUsize,
    places: Mutex<Places<T>>,
}

struct Places<T> {
    next: u64,
    waiting: BTreeMap<u64, Waker>,
    /// Given to futures that have not been polled since.
    served: BTreeMap<u64, T>,
}

impl<T> Queue<T> {
    /// Makes an empty queue, whose word is `idle` while it is.
    pub fn new(idle: u64) -> Self {
        let places = Places { next: 0, waiting: BTreeMap::new(), served: BTreeMap::new() };
        Queue { word: AtomicU64::new(idle), idle, len: AtomicUsize::new(0), places: Mutex::new(places) }
    }

    /// Returns the word.
    #[inline]
    pub fn word(&self) -> u64 {
        self.word.load(Relaxed)
    }

    /// Returns whether a future waits.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.word() == WAITING
    }

    /// Returns the number of futures that wait.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Places<T>> {
        // No code of others runs under the lock, and each change is whole.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those that do not take the lock.
    fn tell(&self, places: &Places<T>) {
        let word = if places.waiting.is_empty() { self.idle } else { WAITING };
        self.word.store(word, Relaxed);
        self.len.store(places.waiting.len(), Relaxed);
    }

    /// Begins to wait, behind all that wait already.
    pub fn join(&self, waker: Waker) -> Ticket {
        let mut places = self.lock();
        let ticket = places.next;
        places.next += 1;
        places.waiting.insert(ticket, waker);
        self.tell(&places);
        Ticket(ticket)
    }

    /// Gives a value to the future that has waited longest. Returns its waker, which the caller
    /// must wake.
    ///
    /// # Errors
    ///
    /// The value, if no future waits.
    pub fn offer(&self, value: T) -> Result<Waker, T> {
        let mut places = self.lock();
        let Some((ticket, waker)) = places.waiting.pop_first() else { return Err(value) };
        places.served.insert(ticket, value);
        self.tell(&places);
        Ok(waker)
    }

    /// Takes the value that a future was given. Without one, `waker` is woken once there is.
    pub fn collect(&self, ticket: &Ticket, waker: &Waker) -> Option<T> {
        let mut waker = waker.clone();
        let mut places = self.lock();
        let value = places.served.remove(&ticket.0);
        if value.is_none()
            && let Some(last) = places.waiting.get_mut(&ticket.0)
        {
            std::mem::swap(last, &mut waker);
        }
        drop(places);
        value
    }

    /// Ends a wait. Returns the value that the future was given and has not taken.
    pub fn leave(&self, ticket: Ticket) -> Option<T> {
        let mut places = self.lock();
        let waker = places.waiting.remove(&ticket.0);
        let value = places.served.remove(&ticket.0);
        self.tell(&places);
        drop(places);
        drop(waker);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn values_go_to_those_that_wait_in_the_order_of_their_tickets() {
        let queue = Queue::new(7);
        assert_eq!((queue.word(), queue.offer('a').err()), (7, Some('a')));
        let [first, second, third] = [(); 3].map(|()| queue.join(Waker::noop().clone()));
        assert!(queue.is_waiting() && queue.len() == 3);
        assert_eq!(queue.leave(second), None, "it had been given nothing");
        for value in ['b', 'c'] {
            queue.offer(value).expect("one waits").wake();
        }
        assert_eq!((queue.word(), queue.len()), (7, 0), "both have theirs");
        assert_eq!(queue.collect(&third, Waker::noop()), Some('c'));
        assert_eq!(queue.collect(&third, Waker::noop()), None, "a value is taken once");
        assert_eq!(queue.leave(first), Some('b'), "a future that ends gives its value back");
    }

    #[test]
    fn only_the_last_waker_of_a_future_is_woken() {
        let queue = Queue::new(7);
        let counts = [(); 2].map(|()| Arc::new(Count::default()));
        let [old, new] = counts.clone().map(Waker::from);
        let ticket = queue.join(old);
        assert_eq!(queue.collect(&ticket, &new), None);
        queue.offer(1).expect("it waits").wake();
        assert_eq!(counts.map(|count| count.0.load(Relaxed)), [0, 1]);
    }

    #[test]
    fn threads_that_offer_collect_and_leave_lose_no_value() {
        const VALUES: usize = if cfg!(miri) { 40 } else { 20_000 };
        let queue = Queue::new(7);
        let got = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while got.load(Relaxed) < 2 * VALUES {
                        let stays = queue.join(Waker::noop().clone());
                        let leaves = queue.join(Waker::noop().clone());
                        got.fetch_add(usize::from(queue.leave(leaves).is_some()), Relaxed);
                        while got.load(Relaxed) < 2 * VALUES {
                            if queue.collect(&stays, Waker::noop()).is_some() {
                                got.fetch_add(1, Relaxed);
                                break;
                            }
                            std::thread::yield_now();
                        }
                    }
                });
                s.spawn(|| {
                    for value in 0..VALUES {
                        while queue.offer(value).is_err() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(got.into_inner(), 2 * VALUES);
    }
}
