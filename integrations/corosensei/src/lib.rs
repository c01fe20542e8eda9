//! Stacks for coroutines of [corosensei](https://docs.rs/corosensei) from a [`PagePool`].
//!
//! ```
//! use corosensei::{Coroutine, CoroutineResult};
//! use ptarmigan_pool::{PagePool, PoolConfig};
//! use ptarmigan_corosensei::PooledStack;
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Arc::new(PagePool::stacks(PoolConfig::stacks(64 << 10, 1000))?);
//! let mut twice = Coroutine::with_stack(PooledStack::new(&pool)?, |yielder, n: u32| {
//!     let more = yielder.suspend(n);
//!     n + more
//! });
//! assert!(matches!(twice.resume(3), CoroutineResult::Yield(3)));
//! assert!(matches!(twice.resume(4), CoroutineResult::Return(7)));
//! drop(twice); // its stack goes back
//! assert_eq!(pool.stats().in_use, 0);
//! # Ok(())
//! # }
//! ```
//!
//! A coroutine owns its stack, so it cannot be given back while the coroutine may run:
//!
//! ```compile_fail,E0382
//! use corosensei::Coroutine;
//! use ptarmigan_pool::{PagePool, PoolConfig};
//! use ptarmigan_corosensei::PooledStack;
//! use std::sync::Arc;
//!
//! let pool = Arc::new(PagePool::stacks(PoolConfig::stacks(64 << 10, 1000)).unwrap());
//! let stack = PooledStack::new(&pool).unwrap();
//! let coroutine = Coroutine::<(), (), (), _>::with_stack(stack, |_, ()| ());
//! drop(stack); // use of moved value
//! ```
#![warn(missing_docs)]
use corosensei::stack::{Stack, StackPointer};
use ptarmigan_pool::{ArcStack, PagePool, PoolError, Stacks};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// A stack that goes back to its pool when its coroutine ends, on whichever thread that is.
#[derive(Debug)]
pub struct PooledStack(ArcStack);

impl PooledStack {
    /// Takes a stack from a pool.
    ///
    /// # Errors
    ///
    /// As [`PagePool::arc_page`].
    pub fn new(pool: &Arc<PagePool<Stacks>>) -> Result<Self, PoolError> {
        pool.arc_page().map(PooledStack)
    }
}

impl From<ArcStack> for PooledStack {
    fn from(stack: ArcStack) -> Self {
        PooledStack(stack)
    }
}

// SAFETY: right below the stack is a guard that faults, all of the stack is readable, writable and
// its own while it lives, it has 4 KiB or more, and both ends are multiples of the host's page
// size.
unsafe impl Stack for PooledStack {
    #[inline]
    fn base(&self) -> StackPointer {
        self.0.top().addr()
    }

    /// The lowest address of the guard.
    #[inline]
    fn limit(&self) -> StackPointer {
        // A guard never begins at 0.
        NonZeroUsize::new(self.0.guard().start).unwrap_or(self.0.bottom().addr())
    }
}
