//! The depot of a node: whole magazines, handed to and taken from CPUs in constant time, and the place where pages
//! come home that were freed on a foreign node.
use super::lists::MAGAZINE;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};

/// Pages in units of their class's size.
#[derive(Clone, Copy)]
pub(super) struct Magazine {
    pub n: u32,
    pub items: [u32; MAGAZINE],
}

impl Magazine {
    pub const EMPTY: Magazine = Magazine { n: 0, items: [0; MAGAZINE] };
}

/// The pages of one class that a node keeps.
pub(super) struct Depot {
    /// The first `full` of them hold pages.
    magazines: BootSlice<Magazine>,
    /// Pages in a full one: the size in force at the CPUs, whose stacks have room for no more.
    size: usize,
    full: usize,
    /// Magazines that may be full at the moment; at most `magazines.len()`.
    limit: usize,
    /// Pages that came one by one.
    loose: Magazine,
}

impl Depot {
    /// Room for `most` magazines of `size` pages.
    pub fn new(boot: &mut BootMemory, most: usize, size: usize) -> Result<Self, BootMemoryShort> {
        let magazines = boot.take(most, |_| Magazine::EMPTY)?;
        Ok(Depot { magazines, size: size.clamp(1, MAGAZINE), full: 0, limit: most, loose: Magazine::EMPTY })
    }

    pub const fn bytes(most: usize) -> usize {
        BootMemory::bytes::<Magazine>(most)
    }

    /// Takes pages in; false if the budget has no room for them.
    pub fn store(&mut self, items: &[u32]) -> bool {
        if self.full >= self.limit {
            return false;
        }
        let magazine = &mut self.magazines[self.full];
        magazine.n = items.len() as u32;
        magazine.items[..items.len()].copy_from_slice(items);
        self.full += 1;
        true
    }

    /// Takes one page in; false if the budget has no room for it.
    pub fn store_one(&mut self, item: u32) -> bool {
        if self.loose.n as usize == self.size {
            let loose = self.loose;
            if !self.store(&loose.items[..self.size]) {
                return false;
            }
            self.loose.n = 0;
        }
        if self.full >= self.limit {
            return false;
        }
        let n = self.loose.n;
        self.loose.items[n as usize] = item;
        self.loose.n = n + 1;
        true
    }

    /// A magazine with pages in it, copied to `into`; how many, 0 if there is none. The one that came last goes
    /// first: its lines are warmest.
    pub fn fetch(&mut self, into: &mut [u32]) -> usize {
        let magazine = if self.full > 0 {
            self.full -= 1;
            &self.magazines[self.full]
        } else {
            &self.loose
        };
        let n = magazine.n as usize;
        if n == 0 || n > into.len() {
            return 0;
        }
        into[..n].copy_from_slice(&magazine.items[..n]);
        if self.full == 0 && core::ptr::eq(magazine, &self.loose) {
            self.loose.n = 0;
        }
        n
    }

    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(self.magazines.len());
    }

    /// Takes up to `into.len()` pages out that are beyond the limit (or any, if `all`); how many.
    pub fn shed(&mut self, into: &mut [u32], all: bool) -> usize {
        let mut n = 0;
        while n < into.len() {
            if self.full > if all { 0 } else { self.limit } {
                let magazine = &mut self.magazines[self.full - 1];
                magazine.n -= 1;
                into[n] = magazine.items[magazine.n as usize];
                if magazine.n == 0 {
                    self.full -= 1;
                }
            } else if all && self.loose.n > 0 {
                self.loose.n -= 1;
                into[n] = self.loose.items[self.loose.n as usize];
            } else {
                break;
            }
            n += 1;
        }
        n
    }
}
