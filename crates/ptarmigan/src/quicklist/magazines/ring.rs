//! A ring of cached pages.
//!
//! Pages that came last are handed out first, as their lines are warm. Those that have lain there
//! longest go back to the allocator first. A magazine moves as a copy of at most 64 numbers, four
//! cache lines: that is bounded, and it needs no magazine objects that would have to be kept,
//! counted and found again.
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};

/// Pages of one class, in units of the class's size.
pub(super) struct Ring {
    items: BootSlice<u32>,
    // Narrow, so that it fits into one cache line with its lock and the fields that are read
    // without the lock.
    /// The index of the oldest.
    start: u32,
    held: u32,
    /// The least that it held since the interval began: nobody needed that many pages in all that
    /// time.
    least: u32,
}

impl Ring {
    pub fn new(boot: &mut BootMemory, most: usize) -> Result<Self, BootMemoryShort> {
        Ok(Ring { items: boot.take(most, |_| 0)?, start: 0, held: 0, least: 0 })
    }

    pub const fn bytes(most: usize) -> usize {
        BootMemory::bytes::<u32>(most)
    }

    /// Returns the number of pages in it.
    pub fn held(&self) -> usize {
        self.held as usize
    }

    /// Returns how many more it takes, up to `limit`.
    pub fn room(&self, limit: usize) -> usize {
        limit.min(self.items.len()).saturating_sub(self.held())
    }

    /// Returns the index of number `n` from the oldest.
    fn index(&self, n: usize) -> usize {
        let at = self.start as usize + n;
        if at < self.items.len() { at } else { at - self.items.len() }
    }

    /// Takes in the first of `items`, as many as it may hold under `limit`. Returns how many.
    pub fn store(&mut self, items: &[u32], limit: usize) -> usize {
        let n = items.len().min(self.room(limit));
        if n == 0 {
            return 0;
        }
        let first = self.index(self.held());
        let items = items.get(..n).unwrap_or(items);
        // Up to the end of the array, and on from its beginning if need be.
        let Some((head, tail)) = self.items.split_at_mut_checked(first) else { return 0 };
        copy(tail, items);
        copy(head, items.get(tail.len()..).unwrap_or_default());
        self.held += n as u32;
        n
    }

    /// Moves up to `into.len()` pages to `into`, the newest first, as their lines are warmest.
    /// Returns how many.
    pub fn fetch(&mut self, into: &mut [u32]) -> usize {
        let n = self.held().min(into.len());
        self.copy_out(self.held() - n, into.get_mut(..n).unwrap_or_default());
        self.held -= n as u32;
        self.least = self.least.min(self.held);
        n
    }

    /// Moves up to `into.len()` of the pages beyond `limit` to `into`, the oldest first. Returns
    /// how many.
    pub fn shed(&mut self, into: &mut [u32], limit: usize) -> usize {
        let n = self.held().saturating_sub(limit).min(into.len());
        self.copy_out(0, into.get_mut(..n).unwrap_or_default());
        self.start = if self.held() == n { 0 } else { self.index(n) as u32 };
        self.held -= n as u32;
        self.least = self.least.min(self.held);
        n
    }

    /// Ends an interval and begins the next. Returns how many pages it held all through the one
    /// that ends: nobody needed them (the working set of Bonwick and Adams, USENIX 2001).
    pub fn end_interval(&mut self) -> usize {
        core::mem::replace(&mut self.least, self.held) as usize
    }

    fn copy_out(&self, from: usize, into: &mut [u32]) {
        if into.is_empty() {
            return;
        }
        let first = self.index(from);
        debug_assert!(first < self.items.len() && from + into.len() <= self.held());
        let Some((head, tail)) = self.items.split_at_checked(first) else { return };
        copy(into, tail);
        copy(into.get_mut(tail.len()..).unwrap_or_default(), head);
    }
}

/// Copies as many items as there are in `from` and fit into `to`.
pub(super) fn copy(to: &mut [u32], from: &[u32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Ring;
    use crate::bootmem::BootMemory;
    use core::ptr::NonNull;
    use std::collections::VecDeque;

    #[test]
    fn a_ring_hands_out_the_newest_and_drops_the_oldest() {
        let mut block = vec![0u64; 64];
        // SAFETY: 1. the block outlives the ring, and nobody else uses it.
        let mut boot = unsafe { BootMemory::new(NonNull::from(&mut block[..]).cast(), 512) };
        let mut ring = Ring::new(&mut boot, 23).expect("it fits");
        let mut model: VecDeque<u32> = VecDeque::new();
        let (mut next, mut rng, mut least) = (0u32, fastrand::Rng::with_seed(1), 0);
        for _ in 0..20_000 {
            let (what, n) = (rng.u8(..10), rng.usize(..8));
            let mut into = [0; 8];
            match what {
                0..4 => {
                    let items: Vec<u32> = (next..next + n as u32).collect();
                    let fit = n.min(20 - model.len());
                    assert_eq!(ring.store(&items, 20), fit);
                    next += fit as u32;
                    model.extend(&items[..fit]);
                }
                4..7 => {
                    let got = ring.fetch(&mut into[..n]);
                    let from = model.len() - n.min(model.len());
                    assert!(model.drain(from..).eq(into[..got].iter().copied()));
                }
                7..9 => {
                    let got = ring.shed(&mut into[..n], 5);
                    assert_eq!(got, model.len().saturating_sub(5).min(n));
                    assert!(model.drain(..got).eq(into[..got].iter().copied()));
                }
                _ => {
                    assert_eq!(ring.end_interval(), least, "what was never needed since the last time");
                    least = model.len();
                }
            }
            least = least.min(model.len());
            assert_eq!(ring.held(), model.len());
        }
    }
}
