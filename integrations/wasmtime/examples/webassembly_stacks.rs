//! Measures an asynchronous call of WebAssembly, by the source of its stack: mapped for each by
//! wasmtime, from its pooling allocator, from a plain queue of stacks, from a `PagePool`.
//!
//! ```sh
//! cargo run --release -p ptarmigan-wasmtime --example webassembly_stacks
//! ```
//!
//! A call makes a store and an instance, calls a function that calls itself 100 times and then one
//! of the host's that waits once, and drops the store, as a server does for a request. The module
//! has no memory and no table, so that the pooling allocator gains by its stacks alone.
#[path = "../tests/module/mod.rs"]
mod module;
use measure::{Options, Row, json, measure, table};
use module::{prepare, request};
use ptarmigan_pool::{PagePool, PoolConfig, Stacks};
use ptarmigan_wasmtime::PooledStacks;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use wasmtime::{
    Config, Error, InstanceAllocationStrategy, InstancePre, PoolingAllocationConfig, StackCreator,
    StackMemory,
};

/// Bytes of a stack, wasmtime's default.
const STACK: usize = 2 << 20;
const MOST: u32 = 1024;
/// Calls in each round of each thread.
const CALLS: usize = 1024;
const GUARD: usize = 4096;

/// A plain queue of stacks behind a lock. It keeps every stack for ever.
#[derive(Default, Clone)]
struct Queue(Arc<Mutex<Vec<Mapped>>>);

/// A stack above its guard.
struct Mapped(usize);

struct Queued {
    stack: usize,
    queue: Queue,
}

impl Mapped {
    fn new() -> Result<Self, Error> {
        let all = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, and the protection of its own first page.
        unsafe {
            let base = mmap_anonymous(
                std::ptr::null_mut(),
                STACK + GUARD,
                all,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?;
            mprotect(base, GUARD, MprotectFlags::empty())?;
            Ok(Mapped(base.expose_provenance()))
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nobody uses.
        let _ = unsafe { munmap(std::ptr::with_exposed_provenance_mut(self.0), STACK + GUARD) };
    }
}

// SAFETY: a stack is in the queue or with the one that took it; its guard is below it.
unsafe impl StackCreator for Queue {
    fn new_stack(&self, _: usize, _: bool) -> Result<Box<dyn StackMemory>, Error> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let stack = std::mem::ManuallyDrop::new(kept.map_or_else(Mapped::new, Ok)?).0;
        Ok(Box::new(Queued { stack, queue: self.clone() }))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.queue.0.lock().unwrap_or_else(PoisonError::into_inner).push(Mapped(self.stack));
    }
}

// SAFETY: the stack is this one's until it is dropped; its guard is below it.
unsafe impl StackMemory for Queued {
    fn top(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.stack + GUARD + STACK)
    }
    fn range(&self) -> Range<usize> {
        self.stack + GUARD..self.stack + GUARD + STACK
    }
    fn guard_range(&self) -> Range<*mut u8> {
        let base = std::ptr::with_exposed_provenance_mut::<u8>(self.stack);
        base..base.wrapping_add(GUARD)
    }
}

/// `n` requests, `live` of which are on their way at a time.
fn each(n: usize, live: usize, ready: &InstancePre<()>) -> Result<(), Error> {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..n / live {
        let mut under_way: Vec<Pin<Box<dyn Future<Output = Result<(), Error>>>>> =
            (0..live).map(|_| Box::pin(request(ready, 100)) as Pin<Box<dyn Future<Output = _>>>).collect();
        while !under_way.is_empty() {
            let mut failed = Ok(());
            under_way.retain_mut(|one| match one.as_mut().poll(&mut context) {
                Poll::Pending => true,
                Poll::Ready(Ok(())) => false,
                Poll::Ready(error) => {
                    failed = error;
                    false
                }
            });
            failed?;
        }
    }
    Ok(())
}

fn run(options: &Options) -> Result<String, Error> {
    let zeroed = options.extra;
    let pool =
        Arc::new(PagePool::stacks(PoolConfig { decay: None, ..PoolConfig::stacks(STACK, MOST as usize) })?);
    let mut pooling = PoolingAllocationConfig::default();
    pooling.total_stacks(MOST).total_core_instances(MOST).async_stack_keep_resident(16 << 10);
    let mut contenders = vec![
        ("on demand", prepare(&mut Config::new(), STACK, zeroed)?),
        (
            "pooling allocator",
            prepare(
                Config::new().allocation_strategy(InstanceAllocationStrategy::Pooling(pooling)),
                STACK,
                zeroed,
            )?,
        ),
        ("PagePool", prepare(Config::new().with_host_stack(creator(&pool)), STACK, zeroed)?),
    ];
    if !zeroed {
        // The queue does not clear stacks.
        let queue = Arc::new(Queue::default());
        contenders.push(("queue, shared", prepare(Config::new().with_host_stack(queue), STACK, false)?));
    }
    let mut rows = Vec::new();
    for threads in [1, 2] {
        for live in [1, 16, 256] {
            rows.extend(contenders.iter().map(|(name, _)| Row { threads, live, name, times: Vec::new() }));
        }
    }
    for _ in 0..options.rounds {
        for (n, row) in rows.iter_mut().enumerate() {
            let ready = &contenders[n % contenders.len()].1;
            row.times.push(measure(row.threads, CALLS, |n| each(n, row.live, ready))?);
        }
    }
    if options.json {
        return Ok(json(&rows));
    }
    Ok(format!("{}\n{}\n{:?}\n", table(&rows, "PagePool"), pool.meminfo(), pool.stats()))
}

fn creator(pool: &Arc<PagePool<Stacks>>) -> Arc<dyn StackCreator> {
    Arc::new(PooledStacks::new(pool.clone()))
}

fn main() -> ExitCode {
    let about = "Asynchronous calls of WebAssembly by where their stacks come from.";
    let zeroed = ("--zeroed", "stacks are zero when a call begins");
    match Options::read(about, Some(zeroed)).map_err(Error::msg).and_then(|options| run(&options)) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
