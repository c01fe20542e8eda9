//! Gives memory back to the host: pages that were not needed for an interval, or all that are
//! unused.
//!
//! # The protocol
//!
//! 1. Every 16th slow path of a thread looks at the clock.
//! 2. If the interval is over, one thread begins the next one: pages that the depots held for all
//!    of the last interval are *due*.
//! 3. Slow paths give back up to 16 pages each until none is due. [`decay`](Core::decay) gives back
//!    all of them at once, for a caller that wants to wait for that.
//!
//! ```text
//!  depot of a node   │ 6 6 7 5 3 3 4 6    │ 6 4 2 2 3 5        │
//!  begin_interval    └─ least: 3 ──> due: 3, then least: 2 ──> due: 2
//!  upkeep                            └─ give_some: 16 in each slow path ──> host
//! ```
//!
//! # Why
//!
//! The least number of pages in an interval is the number that was never needed in it: giving back
//! exactly these costs no later miss if the load repeats. It is the working set of Bonwick and
//! Adams. There is no thread of the pool's own, because a library must not start one. The work is
//! bounded for each call, so that no call is as slow as the return of all pages would be.
use super::{Core, lock};
use crate::seats;
use crate::state::PageState;
use ptarmigan::cpu::{CpuId, NodeId, Pinned};
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Slow paths between two looks at the clock.
const LOOK: u32 = 16;
/// Pages given back to the host in one slow path.
const BOUNDED: u32 = 16;
/// Pages given back in one piece by callers that wait for it.
const PIECE: usize = 256;

impl<S: PageState> Core<S> {
    /// A small part of the work that has to be done from time to time.
    pub(super) fn upkeep(&self, pin: &Pinned<'_>) {
        thread_local! {
            static LEFT: Cell<u32> = const { Cell::new(LOOK) };
        }
        if self.decay.is_none() {
            return;
        }
        let left = LEFT.get();
        LEFT.set(left.checked_sub(1).unwrap_or(LOOK));
        if left == 0 {
            self.begin_interval(Instant::now());
        }
        self.give_some(pin, pin.node());
    }

    /// If an interval is over, pages that the depots held all the time have decayed.
    fn begin_interval(&self, now: Instant) {
        let Some(after) = self.decay else { return };
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let now = nanos(now.saturating_duration_since(self.born));
        let next = self.next.load(Relaxed);
        let after = now.saturating_add(nanos(after));
        if now < next || self.next.compare_exchange(next, after, Relaxed, Relaxed).is_err() {
            return;
        }
        for node in self.nodes() {
            self.due[usize::from(node.0)].store(self.lists.unneeded(node), Relaxed);
        }
    }

    /// Gives back a few of a node's pages that have decayed; how many.
    fn give_some(&self, pin: &Pinned<'_>, node: NodeId) -> u32 {
        self.give_due(pin, node, &mut [0; BOUNDED as usize])
    }

    /// Gives back a node's pages that have decayed, as many as there is room to list; how many.
    fn give_due(&self, pin: &Pinned<'_>, node: NodeId, room: &mut [u32]) -> u32 {
        if self.due[usize::from(node.0)].load(Relaxed) == 0 || self.workshop().arena.is_fixed() {
            return 0;
        }
        let due = &self.due[usize::from(node.0)];
        let want = due.load(Relaxed).min(room.len() as u32);
        if want == 0 {
            return 0;
        }
        let given = self.lists_on(pin).give_back_piece(node, &mut room[..want as usize]);
        // Two threads at once may give back a few more than have decayed; pages that are gone are
        // not due any more.
        let left = if given < want { 0 } else { due.load(Relaxed).saturating_sub(given) };
        due.store(left, Relaxed);
        given
    }

    /// Pages of the seats that threads share go to the depots.
    pub(super) fn hand_over_common(&self) {
        for node in self.nodes() {
            let _alone = lock(&self.common[usize::from(node.0)]);
            self.lists_on(&self.common_pin(node)).hand_over();
        }
    }

    /// Pages of the calling thread go to the depots.
    pub fn hand_over(&self) {
        if self.is_forked() {
            return;
        }
        self.hand_over_own();
        self.settle();
    }

    /// As [`hand_over`](Self::hand_over), and no future is served.
    pub(super) fn hand_over_own(&self) {
        if let Some(seat) = seats::find(self.id, &self.link, || None) {
            // SAFETY: 1. and 2. as in `take_at_hand`.
            self.lists_on(&unsafe { Pinned::assume(self.machine, CpuId(seat.cpu), NodeId(seat.node)) })
                .hand_over();
        }
    }

    /// Gives back pages that have decayed by `now`; bytes.
    pub fn decay(&self, now: Instant) -> usize {
        if self.is_forked() {
            return 0;
        }
        self.hand_over_common();
        self.begin_interval(now);
        let pages: usize = self.seated_do(|pin| {
            let mut room = [0; PIECE];
            let node = |n| {
                std::iter::from_fn(|| Some(self.give_due(pin, n, &mut room)).filter(|n| *n > 0)).sum::<u32>()
            };
            self.nodes().map(node).map(|n| n as usize).sum()
        });
        self.settle();
        pages * self.map().size()
    }

    /// Gives back whatever the depots and the calling thread hold; bytes.
    pub fn trim(&self) -> usize {
        if self.is_forked() || self.workshop().arena.is_fixed() {
            return 0;
        }
        self.hand_over_common();
        self.hand_over_own();
        let pages: usize = self.seated_do(|pin| {
            let mut room = [0; PIECE];
            let mut all = |n| {
                let mut piece = || self.lists_on(pin).give_back_piece(n, &mut room);
                std::iter::from_fn(|| Some(piece()).filter(|n| *n > 0)).map(|n| n as usize).sum::<usize>()
            };
            self.nodes().map(&mut all).sum()
        });
        self.settle();
        pages * self.map().size()
    }
}
