//! Stacks of coroutines from a `PagePool`, beside those that the crate corosensei makes by itself,
//! in one run:
//!
//! ```sh
//! cargo run --release -p ptarmigan --example coroutine_stacks
//! ```
//!
//! corosensei maps a stack for each coroutine, protects its guard page, and unmaps it at the end;
//! the kernel clears what was touched, each time. From the pool a stack comes with its guard page
//! in place and its memory behind it. What a former coroutine left on it is not cleared: no
//! coroutine reads its stack before it has written to it.
use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult};
use ptarmigan::hosted::{ArcPage, GuardPage, PagePool, PoolConfig, PoolError};
use std::hint::black_box;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a stack; in the pool, its guard included.
const STACK: usize = 64 << 10;
const ROUNDS: usize = 11;

/// A stack that goes back to the pool when its coroutine ends, on whichever thread that is.
struct PooledStack(ArcPage<GuardPage>);

impl PooledStack {
    fn new(pool: &Arc<PagePool<GuardPage>>) -> Result<Self, PoolError> {
        pool.arc_page().map(PooledStack)
    }

    /// The page's address, `offset` bytes on. Memory is never at address 0.
    fn at(&self, offset: usize) -> StackPointer {
        let base = self.0.raw().base().addr();
        base.checked_add(offset).unwrap_or(NonZeroUsize::MAX)
    }
}

// SAFETY: the lowest page of the host's is a guard (`GuardPage`), 60 KiB above it are readable,
// writable and ours while the page is, and both ends are aligned to the page's size.
unsafe impl Stack for PooledStack {
    fn base(&self) -> StackPointer {
        self.at(STACK)
    }
    fn limit(&self) -> StackPointer {
        self.at(0)
    }
}

/// Runs a coroutine on `stack` that yields once and uses some 2 KiB of it.
fn run<S: Stack + 'static>(stack: S) -> u64 {
    let mut coroutine = Coroutine::with_stack(stack, |yielder, input: u64| {
        let mut local = [input; 256];
        let more: u64 = yielder.suspend(black_box(&mut local)[17]);
        local.iter().sum::<u64>() + more
    });
    match coroutine.resume(3) {
        CoroutineResult::Yield(n) => match coroutine.resume(n) {
            CoroutineResult::Return(sum) | CoroutineResult::Yield(sum) => sum,
        },
        CoroutineResult::Return(n) => n,
    }
}

/// Nanoseconds for each of `n` coroutines, `live` of which have a stack at a time.
fn each<S: Stack + 'static, E>(n: usize, live: usize, stack: impl Fn() -> Result<S, E>) -> Result<f64, E> {
    let start = Instant::now();
    for _ in 0..n / live {
        let stacks: Vec<S> = (0..live).map(|_| stack()).collect::<Result<_, E>>()?;
        stacks.into_iter().for_each(|stack| assert_eq!(run(stack), 256 * 3 + 3));
    }
    Ok(start.elapsed().as_nanos() as f64 / (n / live * live) as f64)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = PoolConfig { page_size: STACK, capacity: 1 << 30, ..PoolConfig::default() };
    let pool = Arc::new(PagePool::with_state(config, GuardPage)?);
    println!("a coroutine on a stack of {STACK} bytes, ns each, median of {ROUNDS} rounds in turns");
    println!("{:>12} {:>12} {:>12} {:>12}", "live stacks", "corosensei", "PagePool", "one reused");
    let reused: &'static DefaultStack = Box::leak(Box::new(DefaultStack::new(STACK)?));
    for live in [1, 16, 256] {
        let (mut own, mut pooled, mut floor) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            own.push(each(4096, live, || DefaultStack::new(STACK))?);
            pooled.push(each(4096, live, || PooledStack::new(&pool))?);
            // What running takes without getting a stack.
            floor.push(each(4096, live, || Ok::<_, io::Error>(Borrowed(reused)))?);
        }
        println!("{live:12} {:12.0} {:12.0} {:12.0}", median(own), median(pooled), median(floor));
    }
    println!("{:?}", pool.stats());
    Ok(())
}

/// A stack that somebody else keeps; used by one coroutine at a time here.
struct Borrowed(&'static DefaultStack);

// SAFETY: `each` runs its coroutines one after the other, so that one stack does for all of them.
unsafe impl Stack for Borrowed {
    fn base(&self) -> StackPointer {
        self.0.base()
    }
    fn limit(&self) -> StackPointer {
        self.0.limit()
    }
}
