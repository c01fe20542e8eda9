//! The yardstick: a stack of page numbers in an array, without owners, counts, levels or any bound
//! but the array's.
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::apart::Apart;
use super::arena::Arena;
use super::contender::{PAGE, PageCase, PageContender, Pages};

/// Its name in rows.
pub const YARDSTICK: &str = "yardstick";

/// A stack of page numbers, which start at 1.
struct Stack {
    n: usize,
    items: Box<[u32]>,
}

impl Stack {
    fn holding(items: impl Iterator<Item = u32>) -> Self {
        let items: Box<[u32]> = items.collect();
        Stack { n: items.len(), items }
    }

    #[inline]
    fn pop(&mut self) -> Option<u32> {
        self.n = self.n.checked_sub(1)?;
        self.items.get(self.n).copied()
    }

    /// Pushes a number. Returns false if the stack is full.
    #[inline]
    fn push(&mut self, item: u32) -> bool {
        let Some(place) = self.items.get_mut(self.n) else { return false };
        *place = item;
        self.n += 1;
        true
    }
}

/// Returns the address of a page's bytes.
#[inline]
fn at(arena: &Arena, page: NonZeroU64) -> *mut u64 {
    arena.base().wrapping_add((page.get() as usize - 1) * PAGE).cast()
}

/// Two independent stacks, one for each of two threads.
pub struct ArrayYardstick {
    arena: Arena,
    stacks: [Apart<Mutex<Stack>>; 2],
}

impl ArrayYardstick {
    /// Creates stacks with `pages` pages each.
    ///
    /// # Errors
    ///
    /// If the memory does not fit an address space.
    pub fn new(pages: usize) -> Result<Self, String> {
        let numbers = |t: u32| t * pages as u32 + 1..(t + 1) * pages as u32 + 1;
        let stacks = [0, 1].map(|t| Apart(Mutex::new(Stack::holding(numbers(t).rev()))));
        Ok(ArrayYardstick { arena: Arena::new(2 * pages)?, stacks })
    }
}

/// One of the stacks.
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
        let Apart(stack) = self.stacks.get(n).ok_or("there are only two CPUs")?;
        Ok(One { arena: &self.arena, stack: stack.try_lock().map_err(|_| "another thread is this CPU")? })
    }
}

// SAFETY: 1. numbers are those of pages of the zeroed arena, each in one place. 2. both stacks
// share the arena, and a page may lie on either.
unsafe impl Pages for One<'_> {
    #[inline]
    fn alloc(&mut self) -> Option<NonZeroU64> {
        NonZeroU64::new(u64::from(self.stack.pop()?))
    }

    #[inline]
    unsafe fn free(&mut self, page: NonZeroU64) {
        // There is a place for every page. Without one, the page would be lost and the next check
        // would fail.
        self.stack.push(page.get() as u32);
    }

    #[inline]
    fn entries(&self, page: NonZeroU64) -> *mut u64 {
        at(self.arena, page)
    }
}

/// Pages that move between a thread's stack and the common one at once.
const GROUP: usize = 64;

/// The yardstick for pages that one thread allocates and another frees: a stack for each, and a
/// common one behind a lock, with which they exchange 64 pages at a time.
pub struct ExchangeYardstick {
    arena: Arena,
    common: Mutex<Vec<u32>>,
}

impl ExchangeYardstick {
    /// Creates the stacks, with `pages` pages.
    ///
    /// # Errors
    ///
    /// If the memory does not fit an address space.
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
    #[inline]
    fn alloc(&mut self) -> Option<NonZeroU64> {
        let item = self.stack.pop().or_else(|| self.refill())?;
        NonZeroU64::new(u64::from(item))
    }

    #[inline]
    unsafe fn free(&mut self, page: NonZeroU64) {
        let item = page.get() as u32;
        if !self.stack.push(item) {
            self.spill(item);
        }
    }

    #[inline]
    fn entries(&self, page: NonZeroU64) -> *mut u64 {
        at(&self.whole.arena, page)
    }
}
