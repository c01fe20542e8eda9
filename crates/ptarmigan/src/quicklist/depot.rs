//! The depot of a node: what its CPUs exchange magazines with, and where pages come home that were freed on a
//! foreign node.
//!
//! One ring of page numbers, last in first out for CPUs; what has lain longest is at the bottom, for who gives back. A magazine moves as a copy of at most 64 numbers, four cache
//! lines: bounded, and it needs no magazine objects that would have to be kept, counted and found again.
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};

/// The pages of one class that a node keeps, in units of the class's size.
pub(super) struct Depot {
    /// A ring: `held` of them from `bottom` on are pages.
    items: BootSlice<u32>,
    bottom: usize,
    held: usize,
    /// The least that it held since somebody asked: so many were needed by nobody.
    least: usize,
}

impl Depot {
    pub fn new(boot: &mut BootMemory, most: usize) -> Result<Self, BootMemoryShort> {
        Ok(Depot { items: boot.take(most, |_| 0)?, bottom: 0, held: 0, least: 0 })
    }

    pub const fn bytes(most: usize) -> usize {
        BootMemory::bytes::<u32>(most)
    }

    /// How many pages it holds.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Where the place `nth` from the bottom is in the ring, and how many of the `n` from there on come before its end. `nth`
    /// is at most its size.
    fn place(&self, nth: usize, n: usize) -> (usize, usize) {
        let at = self.bottom + nth;
        let at = if at >= self.items.len() { at - self.items.len() } else { at };
        (at, n.min(self.items.len() - at))
    }

    fn copy_out(&self, nth: usize, into: &mut [u32]) {
        let (at, first) = self.place(nth, into.len());
        let (before, after) = into.split_at_mut(first);
        before.copy_from_slice(&self.items[at..at + first]);
        after.copy_from_slice(&self.items[..after.len()]);
    }

    /// Takes pages in, all or none; false if it would hold more than `limit` then.
    pub fn store(&mut self, items: &[u32], limit: usize) -> bool {
        let after = self.held + items.len();
        if after > limit.min(self.items.len()) {
            return false;
        }
        let (at, first) = self.place(self.held, items.len());
        let (before, rest) = items.split_at(first);
        self.items[at..at + first].copy_from_slice(before);
        self.items[..rest.len()].copy_from_slice(rest);
        self.held = after;
        true
    }

    /// Moves up to `into.len()` pages to `into`; how many. Those that came last go first: their lines are warmest.
    pub fn fetch(&mut self, into: &mut [u32]) -> usize {
        let n = self.held.min(into.len());
        self.held -= n;
        self.least = self.least.min(self.held);
        self.copy_out(self.held, &mut into[..n]);
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

    /// Moves up to `into.len()` of the pages that have lain longest to `into`; how many.
    pub fn oldest(&mut self, into: &mut [u32]) -> usize {
        let n = self.held.min(into.len());
        self.copy_out(0, &mut into[..n]);
        (self.bottom, _) = self.place(n, 0);
        self.held -= n;
        self.least = self.least.min(self.held);
        n
    }
}

#[cfg(test)]
mod tests {
    use super::Depot;
    use crate::bootmem::BootMemory;
    use std::collections::VecDeque;
    use std::ptr::NonNull;

    #[test]
    fn a_depot_is_a_stack_whose_bottom_can_be_taken_wherever_it_lies_in_the_ring() {
        for size in [0, 1, 7, 40] {
            let mut memory = vec![0u8; Depot::bytes(size)];
            let base = NonNull::new(memory.as_mut_ptr()).expect("a vector is somewhere");
            // SAFETY: 1. the vector outlives the depot, and nobody else uses it.
            let mut boot = unsafe { BootMemory::new(base, memory.len()) };
            let mut depot = Depot::new(&mut boot, size).expect("`bytes` says how much is needed");
            let (mut model, mut least) = (VecDeque::new(), 0);
            let mut random = 0x9e37_79b9u32;
            for step in 0..4000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let n = (random >> 16) as usize % 6;
                let mut found = [0; 6];
                let taken = match random >> 29 {
                    0..4 => {
                        let new: Vec<u32> = (0..n as u32).map(|i| step * 8 + i).collect();
                        let fits = model.len() + n <= size;
                        assert_eq!(depot.store(&new, usize::MAX), fits);
                        model.extend(new.into_iter().filter(|_| fits));
                        vec![]
                    }
                    4..6 => {
                        let n = depot.fetch(&mut found[..n]);
                        model.split_off(model.len() - n).into()
                    }
                    _ => {
                        let n = depot.oldest(&mut found[..n]);
                        model.drain(..n).collect::<Vec<u32>>()
                    }
                };
                assert_eq!(&found[..taken.len()], &taken[..], "size {size}, step {step}");
                assert_eq!(depot.held(), model.len());
                least = least.min(model.len());
                if random.is_multiple_of(97) {
                    assert_eq!(depot.unneeded(), least);
                    least = model.len();
                }
            }
        }
    }
}
