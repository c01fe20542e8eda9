//! A CPU's pages of one class.
use super::super::source::GROUP;
use super::{CLASSES, REST};
use crate::cpu::{Guard, NodeId};

/// Pages a magazine can hold; how many it does hold is scaled to the node, up to [`ListsConfig::magazine`].
///
/// [`ListsConfig::magazine`]: super::ListsConfig::magazine
pub const MAGAZINE: usize = 64;

/// Two magazines end to end: the upper one is handed out from and put back to, the lower one is what Bonwick calls
/// *previous*.
///
/// How many pages are in it is in a word beside the flag that says that the CPU's lists are in use; see [`Hand`].
pub(super) struct Stack {
    /// Twice the magazine's size as it is now; 0 while the CPU takes no part.
    limit: u32,
    /// Where it takes part: the node that its CPU was on.
    node: NodeId,
    items: [u32; 2 * MAGAZINE],
}

/// An index below the length: cut to size, so that nothing has to be checked.
const MASK: usize = 2 * MAGAZINE - 1;

impl Stack {
    /// One that is closed: nothing in it, and no room.
    pub fn new() -> Self {
        Stack { limit: 0, node: NodeId(0), items: [0; 2 * MAGAZINE] }
    }
}

/// A CPU's stack of one class, for who is at work on the CPU's lists. Pages in it are counted in a half of the guard's word.
pub(super) struct Hand<'a> {
    stack: &'a mut Stack,
    word: &'a mut u32,
    class: usize,
}

impl<'a> Hand<'a> {
    #[inline(always)]
    pub fn new<S>(guard: &'a mut Guard<'_, [Stack; CLASSES], S>, class: usize) -> Self {
        let (stacks, word) = guard.parts();
        Hand { stack: &mut stacks[class], word, class }
    }

    /// The lower half is the class's that is asked for most.
    #[inline(always)]
    fn shift(&self) -> u32 {
        if self.class == REST { 0 } else { u16::BITS }
    }

    #[inline(always)]
    fn n(&self) -> u32 {
        *self.word >> self.shift() & u32::from(u16::MAX)
    }

    fn set_n(&mut self, n: usize) {
        *self.word = *self.word & !(u32::from(u16::MAX) << self.shift()) | (n as u32) << self.shift();
    }

    /// The node where the CPU takes part, if it does.
    pub fn node(&self) -> Option<NodeId> {
        (self.stack.limit > 0).then_some(self.stack.node)
    }

    #[inline(always)]
    pub fn pop(&mut self) -> Option<u32> {
        // None wraps around: one comparison says that there is one, and that its index is good.
        let n = self.n().wrapping_sub(1);
        let item = *self.stack.items.get(n as usize)?;
        *self.word -= 1 << self.shift();
        Some(item)
    }

    /// False if both magazines are full.
    #[inline(always)]
    pub fn push(&mut self, item: u32) -> bool {
        let n = self.n();
        if n >= self.stack.limit {
            return false;
        }
        self.stack.items[n as usize & MASK] = item;
        *self.word += 1 << self.shift();
        true
    }

    /// Whether both magazines are full.
    pub fn is_full(&self) -> bool {
        self.n() >= self.stack.limit
    }

    /// Sets the magazines' size for a CPU on `node`; what is in them stays.
    pub fn resize(&mut self, node: NodeId, magazine: u32) {
        self.stack.node = node;
        self.stack.limit = 2 * magazine.min(MAGAZINE as u32);
    }

    /// The oldest of those that are beyond the magazines' size, if they have shrunk, go as far as `store` takes them.
    pub fn shed(&mut self, store: impl FnOnce(&[u32]) -> usize) {
        self.keep(self.stack.limit as usize, store);
    }

    /// An empty stack is filled by `fetch`, with up to a magazine.
    pub fn fill(&mut self, fetch: impl FnOnce(&mut [u32]) -> usize) -> usize {
        debug_assert_eq!(self.n(), 0);
        let most = (self.stack.limit / 2) as usize;
        let n = fetch(&mut self.stack.items[..most]);
        self.set_n(n);
        n
    }

    /// Whether the pages of a group but one fit.
    pub fn has_room_for_group(&self) -> bool {
        self.n() as usize + GROUP <= self.stack.limit as usize
    }

    /// All but the newest magazine, of two full ones or more, go as far as `store` takes them.
    pub fn exchange(&mut self, store: impl FnOnce(&[u32]) -> usize) {
        self.keep((self.stack.limit / 2) as usize, store);
    }

    /// Keeps the newest `most`, the others go as far as `store` takes them, the oldest first.
    fn keep(&mut self, most: usize, store: impl FnOnce(&[u32]) -> usize) {
        let n = self.n() as usize;
        let surplus = n.saturating_sub(most);
        if surplus > 0 {
            let gone = store(&self.stack.items[..surplus]);
            self.stack.items.copy_within(gone..n, 0);
            self.set_n(n - gone);
        }
    }

    /// All of it; closed from now on.
    pub fn take_all(&mut self) -> ([u32; 2 * MAGAZINE], usize) {
        let n = self.n() as usize;
        self.stack.limit = 0;
        self.set_n(0);
        (self.stack.items, n)
    }
}
