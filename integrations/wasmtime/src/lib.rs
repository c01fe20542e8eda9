//! Stacks for asynchronous WebAssembly in [wasmtime](https://docs.rs/wasmtime) from a [`PagePool`].
//!
//! wasmtime runs asynchronous WebAssembly on stacks of its own. By default it maps one for each
//! store that needs one, and unmaps it at the end. Its pooling allocator keeps stacks, and reserves
//! address space for memories, tables and instances as well. With a [`StackCreator`] of this crate
//! stacks come from a pool that keeps them, gives back what nobody needed, and counts:
//!
//! ```
//! use ptarmigan_pool::{PagePool, PoolConfig};
//! use ptarmigan_wasmtime::PooledStacks;
//! use std::sync::Arc;
//! use wasmtime::{Config, Engine};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Stacks of 2 MiB, as wasmtime asks for by default; at most 1000 at a time.
//! let pool = Arc::new(PagePool::stacks(PoolConfig::stacks(2 << 20, 1000))?);
//! let mut config = Config::new();
//! config.with_host_stack(Arc::new(PooledStacks::new(pool.clone())));
//! let engine = Engine::new(&config)?;
//! // … stores, instances and calls as ever; and from time to time:
//! println!("{}", pool.meminfo());
//! # drop(engine);
//! # Ok(())
//! # }
//! ```
//!
//! A stack that wasmtime has is owned by its store, so no call can give it back meanwhile, and it
//! goes back to the pool that it came from, whichever thread drops the store.
#![warn(missing_docs)]
use ptarmigan_pool::{ArcStack, PagePool, Stacks};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use wasmtime::{Error, StackCreator, StackMemory};

/// Creates wasmtime's stacks from a pool.
#[derive(Clone, Debug)]
pub struct PooledStacks {
    pool: Arc<PagePool<Stacks>>,
    keep: usize,
}

/// Bytes at the top of a stack that are cleared by writing, where wasmtime asks for zeroes. Writing
/// 16 KiB takes less than faulting two of its pages in again.
const KEEP: usize = 16 << 10;

impl PooledStacks {
    /// Creates stacks from `pool`, whose stacks must be no smaller than
    /// [`Config::async_stack_size`](wasmtime::Config::async_stack_size).
    pub fn new(pool: Arc<PagePool<Stacks>>) -> Self {
        PooledStacks { pool, keep: KEEP }
    }

    /// Sets how many bytes at the top are cleared by writing, where wasmtime asks for stacks of
    /// zeroes ([`Config::async_stack_zeroing`](wasmtime::Config::async_stack_zeroing)); the memory
    /// below goes back to the host. By default 16 KiB.
    pub fn keep_resident(self, keep: usize) -> Self {
        PooledStacks { keep, ..self }
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Arc<PagePool<Stacks>> {
        &self.pool
    }
}

/// wasmtime asks for larger stacks than the pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// Bytes of the stack that wasmtime asks for.
    pub wanted: usize,
    /// Bytes of the pool's stacks.
    pub size: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooLarge { wanted, size } = self;
        write!(
            f,
            "wasmtime asks for a stack of {wanted} bytes, the pool's have {size}: make a pool of larger ones, or set Config::async_stack_size"
        )
    }
}

impl std::error::Error for TooLarge {}

// SAFETY: a stack is the pool's until it is handed out, then owned by the returned object, and goes
// back when wasmtime drops it. It has a guard below it and is aligned to the host's pages
// (`Stacks`).
unsafe impl StackCreator for PooledStacks {
    fn new_stack(&self, size: usize, zeroed: bool) -> Result<Box<dyn StackMemory>, Error> {
        if size > self.pool.page_size() {
            return Err(TooLarge { wanted: size, size: self.pool.page_size() }.into());
        }
        let mut stack = self.pool.arc_page()?;
        if zeroed {
            stack.clear(self.keep);
        }
        Ok(Box::new(Memory(stack)))
    }
}

/// A stack of the pool's that wasmtime has.
struct Memory(ArcStack);

// SAFETY: the range is mapped, readable, writable and the stack's own while it lives; both ends are
// multiples of the host's page size, and right below it is a guard that faults.
unsafe impl StackMemory for Memory {
    fn top(&self) -> *mut u8 {
        self.0.top().as_ptr()
    }
    fn range(&self) -> Range<usize> {
        self.0.bottom().addr().get()..self.0.top().addr().get()
    }
    fn guard_range(&self) -> Range<*mut u8> {
        let bottom = self.0.bottom().as_ptr();
        bottom.wrapping_sub(self.0.guard().len())..bottom
    }
}
