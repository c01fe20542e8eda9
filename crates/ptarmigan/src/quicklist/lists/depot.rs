//! The depot: what CPUs exchange magazines with.
//!
//! A ring of page numbers: pages that came last are handed out first, as their lines are warm; those that have lain
//! there longest go back to the allocator first. A magazine moves as a copy of at most 64 numbers, four cache
//! lines: bounded, and it needs no magazine objects that would have to be kept, counted and found again.
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};

/// The pages of one class that a node keeps, in units of the class's size.
pub(super) struct Depot {
    items: BootSlice<u32>,
    // Narrow, so that it fits into one cache line with its lock and what is looked at without it.
    /// Where the oldest is.
    start: u32,
    held: u32,
    /// The least that it held since the interval began: so many pages nobody needed in all that time.
    least: u32,
}

impl Depot {
    pub fn new(boot: &mut BootMemory, most: usize) -> Result<Self, BootMemoryShort> {
        Ok(Depot { items: boot.take(most, |_| 0)?, start: 0, held: 0, least: 0 })
    }

    pub const fn bytes(most: usize) -> usize {
        BootMemory::bytes::<u32>(most)
    }

    /// How many pages it holds.
    pub fn held(&self) -> usize {
        self.held as usize
    }

    /// How many more it may take in, up to `limit`.
    pub fn room(&self, limit: usize) -> usize {
        limit.min(self.items.len()).saturating_sub(self.held())
    }

    /// The place of number `n` from the oldest.
    fn place(&self, n: usize) -> usize {
        let at = self.start as usize + n;
        if at < self.items.len() { at } else { at - self.items.len() }
    }

    /// Takes in as many of `items`, the first ones, as it may hold under `limit`; how many.
    pub fn store(&mut self, items: &[u32], limit: usize) -> usize {
        let n = items.len().min(self.room(limit));
        if n == 0 {
            return 0;
        }
        let first = self.place(self.held());
        // Up to the end of the array, and on from its beginning if need be.
        let (one, two) = items[..n].split_at(n.min(self.items.len() - first));
        self.items[first..first + one.len()].copy_from_slice(one);
        if !two.is_empty() {
            self.items[..two.len()].copy_from_slice(two);
        }
        self.held += n as u32;
        n
    }

    /// Moves up to `into.len()` pages to `into`; how many. Those that came last go first: their lines are warmest.
    pub fn fetch(&mut self, into: &mut [u32]) -> usize {
        let n = self.held().min(into.len());
        self.copy_out(self.held() - n, &mut into[..n]);
        self.held -= n as u32;
        self.least = self.least.min(self.held);
        n
    }

    /// Moves up to `into.len()` of the pages beyond `limit` to `into`, those first that have lain here longest; how many.
    pub fn shed(&mut self, into: &mut [u32], limit: usize) -> usize {
        let n = self.held().saturating_sub(limit).min(into.len());
        self.copy_out(0, &mut into[..n]);
        self.start = if self.held() == n { 0 } else { self.place(n) as u32 };
        self.held -= n as u32;
        self.least = self.least.min(self.held);
        n
    }

    /// Ends an interval and begins another: moves up to `into.len()` of the pages that nobody needed in it to `into`; how
    /// many (the working set of Bonwick and Adams, USENIX 2001).
    pub fn reap(&mut self, into: &mut [u32]) -> usize {
        let spare = self.unneeded();
        self.shed(into, self.held() - spare)
    }

    /// How many pages it held all the time since this was last asked; an interval begins.
    pub fn unneeded(&mut self) -> usize {
        core::mem::replace(&mut self.least, self.held) as usize
    }

    fn copy_out(&self, from: usize, into: &mut [u32]) {
        if into.is_empty() {
            return;
        }
        let first = self.place(from);
        let (one, two) = into.split_at_mut(into.len().min(self.items.len() - first));
        one.copy_from_slice(&self.items[first..first + one.len()]);
        if !two.is_empty() {
            two.copy_from_slice(&self.items[..two.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Depot;
    use crate::bootmem::BootMemory;
    use core::ptr::NonNull;
    use std::collections::VecDeque;

    #[test]
    fn the_newest_are_handed_out_the_oldest_go_and_none_is_lost_wherever_the_ring_begins() {
        let mut block = vec![0u64; 64];
        // SAFETY: 1. the block outlives the depot, and nobody else uses it.
        let mut boot = unsafe { BootMemory::new(NonNull::from(&mut block[..]).cast(), 512) };
        let mut depot = Depot::new(&mut boot, 23).expect("it fits");
        let mut model: VecDeque<u32> = VecDeque::new();
        let (mut next, mut random, mut least) = (0u32, 1u64, 0);
        for _ in 0..20_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (what, n) = ((random >> 33) % 10, (random >> 40) as usize % 8);
            let mut into = [0; 8];
            match what {
                0..4 => {
                    let items: Vec<u32> = (next..next + n as u32).collect();
                    let fit = n.min(20 - model.len());
                    assert_eq!(depot.store(&items, 20), fit);
                    next += fit as u32;
                    model.extend(&items[..fit]);
                }
                4..7 => {
                    let got = depot.fetch(&mut into[..n]);
                    let from = model.len() - n.min(model.len());
                    assert!(model.drain(from..).eq(into[..got].iter().copied()));
                }
                7..9 => {
                    let got = depot.shed(&mut into[..n], 5);
                    assert_eq!(got, model.len().saturating_sub(5).min(n));
                    assert!(model.drain(..got).eq(into[..got].iter().copied()));
                }
                _ => {
                    let got = depot.reap(&mut into[..n]);
                    assert_eq!(got, n.min(least), "what was never needed since the last time");
                    assert!(model.drain(..got).eq(into[..got].iter().copied()));
                    least = model.len();
                }
            }
            least = least.min(model.len());
            assert_eq!(depot.held(), model.len());
        }
    }
}
