//! A CPU's pages of one class.
use super::super::source::GROUP;
use crate::cpu::NodeId;

/// Pages a magazine can hold; how many it does hold is scaled to the node, up to [`ListsConfig::magazine`].
///
/// [`ListsConfig::magazine`]: super::ListsConfig::magazine
pub const MAGAZINE: usize = 64;

/// Two magazines end to end: the upper one is handed out from and put back to, the lower one is what Bonwick calls
/// *previous*.
pub(super) struct Stack {
    n: u32,
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
        Stack { n: 0, limit: 0, node: NodeId(0), items: [0; 2 * MAGAZINE] }
    }

    /// The node where the CPU takes part, if it does.
    pub fn node(&self) -> Option<NodeId> {
        (self.limit > 0).then_some(self.node)
    }

    #[inline(always)]
    pub fn pop(&mut self) -> Option<u32> {
        // None wraps around: one comparison says that there is one, and that its index is good.
        let n = self.n.wrapping_sub(1);
        let item = *self.items.get(n as usize)?;
        self.n = n;
        Some(item)
    }

    /// False if both magazines are full.
    #[inline(always)]
    pub fn push(&mut self, item: u32) -> bool {
        let n = self.n;
        if n >= self.limit {
            return false;
        }
        self.items[n as usize & MASK] = item;
        self.n = n + 1;
        true
    }

    /// Whether both magazines are full.
    pub fn is_full(&self) -> bool {
        self.n >= self.limit
    }

    /// Sets the magazines' size for a CPU on `node`; what is in them stays.
    pub fn resize(&mut self, node: NodeId, magazine: u32) {
        self.node = node;
        self.limit = 2 * magazine.min(MAGAZINE as u32);
    }

    /// Whether the magazines have another size than `magazine`.
    pub fn is_sized_unlike(&self, magazine: u32) -> bool {
        self.limit != 2 * magazine
    }

    /// The oldest of those that are beyond the magazines' size, if they have shrunk; they go if `store` takes them.
    pub fn shed(&mut self, store: impl FnOnce(&[u32]) -> bool) {
        let (n, limit) = (self.n as usize, self.limit as usize);
        let surplus = n.saturating_sub(limit);
        if surplus > 0 && store(&self.items[..surplus]) {
            self.items.copy_within(surplus..n, 0);
            self.n = self.limit;
        }
    }

    /// An empty stack is filled by `fetch`, with up to a magazine.
    pub fn fill(&mut self, fetch: impl FnOnce(&mut [u32]) -> usize) -> usize {
        debug_assert_eq!(self.n, 0);
        let most = (self.limit / 2) as usize;
        let n = fetch(&mut self.items[..most]);
        self.n = n as u32;
        n
    }

    /// Whether the pages of a group but one fit.
    pub fn has_room_for_group(&self) -> bool {
        (self.n as usize) + GROUP <= (self.limit as usize).min(2 * MAGAZINE)
    }

    /// The older magazine of two full ones; it goes if `store` takes it.
    pub fn exchange(&mut self, store: impl FnOnce(&[u32]) -> bool) -> bool {
        let (n, old) = (self.n as usize, (self.limit / 2) as usize);
        if !store(&self.items[..old]) {
            return false;
        }
        self.items.copy_within(old..n, 0);
        self.n = (n - old) as u32;
        true
    }

    /// All of it; closed from now on.
    pub fn take_all(&mut self) -> ([u32; 2 * MAGAZINE], usize) {
        self.limit = 0;
        (self.items, core::mem::take(&mut self.n) as usize)
    }
}
