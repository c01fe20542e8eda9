//! The yardstick: a stack of page numbers in an array, and nothing else. No owner, no count, no level, no bound but the
//! array's.
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::apart::Apart;
use super::arena::Arena;
use super::contender::{PAGE, PageCase, PageContender, Pages};

/// Its name in rows.
pub const YARDSTICK: &str = "yardstick";

/// Page numbers, from 1.
struct Stack {
    n: usize,
    items: Box<[u32]>,
}

impl Stack {
    fn holding(items: impl Iterator<Item = u32>) -> Self {
        let items: Box<[u32]> = items.collect();
        Stack { n: items.len(), items }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<u32> {
        self.n = self.n.checked_sub(1)?;
        self.items.get(self.n).copied()
    }

    /// Puts a number on it; `false` if it is full.
    #[inline(always)]
    fn push(&mut self, item: u32) -> bool {
        let Some(place) = self.items.get_mut(self.n) else { return false };
        *place = item;
        self.n += 1;
        true
    }
}

/// The bytes of a page, by its number.
#[inline(always)]
fn at(arena: &Arena, page: NonZeroU64) -> *mut u64 {
    arena.base().wrapping_add((page.get() as usize - 1) * PAGE).cast()
}

/// A stack for each of two threads, which have nothing to do with each other.
pub struct ArrayYardstick {
    arena: Arena,
    stacks: [Apart<Mutex<Stack>>; 2],
}

impl ArrayYardstick {
    /// With `pages` pages for each thread.
    ///
    /// # Errors
    ///
    /// If that is more than an address space holds.
    pub fn new(pages: usize) -> Result<Self, String> {
        let numbers = |t: u32| t * pages as u32 + 1..(t + 1) * pages as u32 + 1;
        let stacks = [0, 1].map(|t| Apart(Mutex::new(Stack::holding(numbers(t).rev()))));
        Ok(ArrayYardstick { arena: Arena::new(2 * pages)?, stacks })
    }
}

/// One of its stacks.
pub struct One<'a> {
    arena: &'a Arena,
    stack: MutexGuard<'a, Stack>,
}

impl PageContender for ArrayYardstick {
    type Cpu<'a> = One<'a>;

    fn name(&self) -> &'static str {
        YARDSTICK
    }

    fn cases(&self) -> &'static [PageCase] {
        &[PageCase::Pair, PageCase::Batch, PageCase::Random, PageCase::Large, PageCase::TwoThreads]
    }

    fn cpu(&self, n: usize) -> Result<One<'_>, String> {
        let Apart(stack) = self.stacks.get(n).ok_or("there are two CPUs")?;
        Ok(One { arena: &self.arena, stack: stack.try_lock().map_err(|_| "another thread is this CPU")? })
    }
}

// SAFETY: 1. numbers are those of pages of the zeroed arena, each in one place. 2. the arena is everybody's, and a page may
// lie on either stack.
unsafe impl Pages for One<'_> {
    #[inline(always)]
    fn alloc(&mut self) -> Option<NonZeroU64> {
        NonZeroU64::new(u64::from(self.stack.pop()?))
    }

    #[inline(always)]
    unsafe fn free(&mut self, page: NonZeroU64) {
        // There is a place for every page; if there is not, it is lost, and the next check says so.
        self.stack.push(page.get() as u32);
    }

    #[inline(always)]
    fn entries(&self, page: NonZeroU64) -> *mut u64 {
        at(self.arena, page)
    }
}

/// Pages that move between a thread's stack and the common one at once.
const GROUP: usize = 64;

/// The yardstick of pages that are taken by one thread and given back by another: a stack each, and a common one behind a
/// lock, with which they exchange 64 pages at a time.
pub struct ExchangeYardstick {
    arena: Arena,
    common: Mutex<Vec<u32>>,
}

impl ExchangeYardstick {
    /// With `pages` pages.
    ///
    /// # Errors
    ///
    /// If that is more than an address space holds.
    pub fn new(pages: usize) -> Result<Self, String> {
        let pages = pages + 4 * GROUP;
        Ok(ExchangeYardstick {
            arena: Arena::new(pages)?,
            common: Mutex::new((1..=pages as u32).rev().collect()),
        })
    }

    fn common(&self) -> MutexGuard<'_, Vec<u32>> {
        self.common.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of its two CPUs.
pub struct Side<'a> {
    whole: &'a ExchangeYardstick,
    stack: Stack,
}

impl PageContender for ExchangeYardstick {
    type Cpu<'a> = Side<'a>;

    fn name(&self) -> &'static str {
        YARDSTICK
    }

    fn cases(&self) -> &'static [PageCase] {
        &[PageCase::ProducerConsumer]
    }

    fn cpu(&self, _: usize) -> Result<Side<'_>, String> {
        Ok(Side { whole: self, stack: Stack { n: 0, items: vec![0; 2 * GROUP].into() } })
    }
}

impl Drop for Side<'_> {
    fn drop(&mut self) {
        self.whole.common().extend(&self.stack.items[..self.stack.n]);
    }
}

impl Side<'_> {
    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> Option<u32> {
        let mut common = self.whole.common();
        let from = common.len().saturating_sub(GROUP);
        for item in common.drain(from..) {
            self.stack.push(item);
        }
        self.stack.pop()
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self, item: u32) {
        self.whole.common().extend(&self.stack.items[..GROUP]);
        self.stack.items.copy_within(GROUP.., 0);
        self.stack.n -= GROUP;
        self.stack.push(item);
    }
}

// SAFETY: as for `One`.
unsafe impl Pages for Side<'_> {
    #[inline(always)]
    fn alloc(&mut self) -> Option<NonZeroU64> {
        let item = self.stack.pop().or_else(|| self.refill())?;
        NonZeroU64::new(u64::from(item))
    }

    #[inline(always)]
    unsafe fn free(&mut self, page: NonZeroU64) {
        let item = page.get() as u32;
        if !self.stack.push(item) {
            self.spill(item);
        }
    }

    #[inline(always)]
    fn entries(&self, page: NonZeroU64) -> *mut u64 {
        at(&self.whole.arena, page)
    }
}
