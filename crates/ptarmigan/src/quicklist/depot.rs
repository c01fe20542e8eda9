//! The depot of a node: what its CPUs exchange magazines with, and where pages come home that were freed on a
//! foreign node.
//!
//! One array of page numbers, last in first out. A magazine moves as a copy of at most 64 numbers, four cache
//! lines: bounded, and it needs no magazine objects that would have to be kept, counted and found again.
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};

/// The pages of one class that a node keeps, in units of the class's size.
pub(super) struct Depot {
    /// The first `held` of them are pages.
    items: BootSlice<u32>,
    held: usize,
    /// The least that it held since somebody asked: so many were needed by nobody.
    least: usize,
}

impl Depot {
    pub fn new(boot: &mut BootMemory, most: usize) -> Result<Self, BootMemoryShort> {
        Ok(Depot { items: boot.take(most, |_| 0)?, held: 0, least: 0 })
    }

    pub const fn bytes(most: usize) -> usize {
        BootMemory::bytes::<u32>(most)
    }

    /// How many pages it holds.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Takes pages in, all or none; false if it would hold more than `limit` then.
    pub fn store(&mut self, items: &[u32], limit: usize) -> bool {
        let after = self.held + items.len();
        if after > limit.min(self.items.len()) {
            return false;
        }
        self.items[self.held..after].copy_from_slice(items);
        self.held = after;
        true
    }

    /// Moves up to `into.len()` pages to `into`; how many. Those that came last go first: their lines are warmest.
    pub fn fetch(&mut self, into: &mut [u32]) -> usize {
        let n = self.held.min(into.len());
        self.held -= n;
        self.least = self.least.min(self.held);
        into[..n].copy_from_slice(&self.items[self.held..self.held + n]);
        n
    }

    /// Moves up to `into.len()` of the pages beyond `limit` to `into`; how many.
    pub fn shed(&mut self, into: &mut [u32], limit: usize) -> usize {
        let n = self.held.saturating_sub(limit).min(into.len());
        self.fetch(&mut into[..n])
    }

    /// How many pages it held all the time since this was last asked.
    pub fn unneeded(&mut self) -> usize {
        core::mem::replace(&mut self.least, self.held)
    }

    /// Moves up to `into.len()` of the pages at the bottom, which have lain longest, to `into`; how many. Those on top
    /// come down into their places, so that it takes no longer for a large depot.
    pub fn oldest(&mut self, into: &mut [u32]) -> usize {
        let n = self.held.min(into.len());
        into[..n].copy_from_slice(&self.items[..n]);
        let rest = self.held - n;
        self.items.copy_within(rest.max(n)..self.held, 0);
        self.held = rest;
        self.least = self.least.min(rest);
        n
    }
}
