//! A CPU's pages of one class.
use super::super::source::GROUP;
use super::classes::CLASSES;
use crate::cpu::{Guard, NodeId};

/// Pages that a magazine can hold. How many it does hold is scaled to the node, up to
/// [`ListsConfig::magazine`].
///
/// [`ListsConfig::magazine`]: super::ListsConfig::magazine
pub const MAGAZINE: usize = 64;

/// The memory of two magazines, laid end to end. Pages are handed out from the upper one and put
/// back to it; the lower one is Bonwick's *previous*.
///
/// How many pages are in it stands in a word beside the flag that says that the CPU's magazines are
/// in use; see [`Magazines`].
pub(super) struct MagazineStore {
    /// Twice the magazine's size as it is now; 0 while the CPU takes no part.
    limit: u32,
    /// Where it takes part: the node that its CPU was on.
    node: NodeId,
    items: [u32; 2 * MAGAZINE],
}

/// An index below the length: cut to size, so that no check is needed.
const MASK: usize = 2 * MAGAZINE - 1;

/// Bits of the guard's word in which a class counts its pages.
const LANE: u32 = 8;
const LANE_MASK: u32 = (1 << LANE) - 1;
// Two full magazines can be counted, and there is a lane for each class.
const _: () = assert!(2 * MAGAZINE <= LANE_MASK as usize && CLASSES as u32 * LANE <= u32::BITS);

impl MagazineStore {
    /// Makes one that is closed: it is empty and has no room.
    pub const fn new() -> Self {
        MagazineStore { limit: 0, node: NodeId(0), items: [0; 2 * MAGAZINE] }
    }
}

/// The magazines of one class of a CPU, for the code that has entered them.
///
/// Pages are counted in a lane of the guard's word, which the guard holds in a register and stores
/// together with the flag. There are four lanes, one more than classes.
pub(super) struct Magazines<'a> {
    store: &'a mut MagazineStore,
    word: &'a mut u32,
    class: usize,
}

impl<'a> Magazines<'a> {
    #[inline]
    pub fn new<S>(guard: &'a mut Guard<'_, [MagazineStore; CLASSES], S>, class: usize) -> Self {
        let (stores, word) = guard.parts();
        Magazines { store: &mut stores[class % CLASSES], word, class }
    }

    #[inline]
    fn shift(&self) -> u32 {
        self.class as u32 * LANE
    }

    #[inline]
    fn n(&self) -> u32 {
        *self.word >> self.shift() & LANE_MASK
    }

    fn set_n(&mut self, n: usize) {
        debug_assert!(n <= 2 * MAGAZINE);
        *self.word = *self.word & !(LANE_MASK << self.shift()) | (n as u32) << self.shift();
    }

    /// Returns the node where the CPU takes part, if it does.
    pub fn node(&self) -> Option<NodeId> {
        (self.store.limit > 0).then_some(self.store.node)
    }

    /// Takes a page out.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<u32> {
        // No sum wraps around: one comparison says that there is one, and that its index is good.
        let n = self.n().wrapping_sub(1);
        let item = *self.store.items.get(n as usize)?;
        *self.word -= 1 << self.shift();
        Some(item)
    }

    /// Puts a page in. Returns false if both magazines are full.
    #[inline(always)]
    pub fn push(&mut self, item: u32) -> bool {
        let n = self.n();
        if n >= self.store.limit {
            return false;
        }
        self.store.items[n as usize & MASK] = item;
        *self.word += 1 << self.shift();
        true
    }

    /// Returns whether both magazines are full.
    pub fn is_full(&self) -> bool {
        self.n() >= self.store.limit
    }

    /// Returns how many more pages fit.
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.store.limit.saturating_sub(self.n()) as usize
    }

    /// Puts pages in that have [room](Self::room). Returns how many: all of them.
    #[inline(always)]
    pub fn push_all<const N: usize>(&mut self, items: &[u32; N]) -> usize {
        let first = self.n() as usize;
        let Some(places) = self.store.items.get_mut(first..).and_then(<[u32]>::first_chunk_mut) else {
            return 0;
        };
        *places = *items;
        *self.word += (N as u32) << self.shift();
        N
    }

    /// Sets the magazines' size for a CPU on `node`. Pages in them stay.
    pub fn resize(&mut self, node: NodeId, magazine: u32) {
        self.store.node = node;
        self.store.limit = 2 * magazine.min(MAGAZINE as u32);
    }

    /// Moves the oldest of those that are beyond the magazines' size, if they have shrunk, as far
    /// as `store` takes them.
    pub fn store_excess(&mut self, store: impl FnOnce(&[u32]) -> usize) {
        self.keep(self.store.limit as usize, store);
    }

    /// Has `fetch` fill empty magazines with up to one.
    pub fn fill(&mut self, fetch: impl FnOnce(&mut [u32]) -> usize) -> usize {
        debug_assert_eq!(self.n(), 0);
        let most = (self.store.limit / 2) as usize;
        let n = fetch(self.store.items.get_mut(..most).unwrap_or_default());
        self.set_n(n);
        n
    }

    /// Returns whether the pages of a group but one fit.
    pub fn has_room_for_group(&self) -> bool {
        self.room() >= GROUP
    }

    /// Moves all but the newest magazine, of two full ones or more, as far as `store` takes them.
    pub fn exchange(&mut self, store: impl FnOnce(&[u32]) -> usize) {
        self.keep((self.store.limit / 2) as usize, store);
    }

    /// Keeps the newest `most`. The others go as far as `store` takes them, the oldest first.
    fn keep(&mut self, most: usize, store: impl FnOnce(&[u32]) -> usize) {
        let n = (self.n() as usize).min(2 * MAGAZINE);
        let surplus = n.saturating_sub(most);
        if surplus > 0
            && let Some(oldest) = self.store.items.get(..surplus)
        {
            let gone = store(oldest).min(surplus);
            self.store.items.copy_within(gone..n, 0);
            self.set_n(n - gone);
        }
    }

    /// Moves all pages to `into`, and closes the magazines: the CPU takes no part from now on.
    /// Returns how many.
    pub fn take_all(&mut self, into: &mut [u32; 2 * MAGAZINE]) -> usize {
        let n = (self.n() as usize).min(2 * MAGAZINE);
        into[..n].copy_from_slice(&self.store.items[..n]);
        self.store.limit = 0;
        self.set_n(0);
        n
    }
}
