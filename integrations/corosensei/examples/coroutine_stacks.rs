//! Measures a coroutine, by the source of its stack: mapped for each by corosensei, from a
//! `PagePool`, from a plain queue of stacks, shared or of each thread.
//!
//! ```sh
//! cargo run --release -p ptarmigan-corosensei --example coroutine_stacks
//! ```
//!
//! A coroutine yields once and uses some 2 KiB of its stack. The queues keep every stack for ever,
//! have no counts, and know no limit: they are the least that can be done. `one reused` is the cost
//! of the coroutine without getting a stack.
use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult};
use measure::{Options, Row, Time, json, measure, table};
use ptarmigan_corosensei::PooledStack;
use ptarmigan_pool::{PagePool, PoolConfig, Stacks};
use std::cell::RefCell;
use std::hint::black_box;
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

const STACK: usize = 64 << 10;
/// Coroutines in each round of each thread.
const CALLS: usize = 4096;

/// A plain queue of stacks behind a lock.
#[derive(Default)]
struct Queue(Mutex<Vec<DefaultStack>>);

impl Queue {
    fn take(&self) -> io::Result<DefaultStack> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(|| DefaultStack::new(STACK), Ok)
    }
    fn give(&self, stack: DefaultStack) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(stack);
    }
}

thread_local! {
    /// The same for each thread, without a lock.
    static OWN: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Runs a coroutine on `stack` that yields once and uses some 2 KiB of it. Returns the stack.
fn run<S: Stack + 'static>(stack: S) -> S {
    let mut coroutine = Coroutine::with_stack(stack, |yielder, input: u64| {
        let mut local = [input; 256];
        let more: u64 = yielder.suspend(black_box(&mut local)[17]);
        local.iter().sum::<u64>() + more
    });
    assert!(matches!(coroutine.resume(3), CoroutineResult::Yield(3)));
    assert!(matches!(coroutine.resume(3), CoroutineResult::Return(771)));
    coroutine.into_stack()
}

/// `n` coroutines, `live` of which have a stack at a time: `take` gets one, `give` puts it back.
fn each<S: Stack + 'static>(
    n: usize,
    live: usize,
    take: impl Fn() -> io::Result<S>,
    give: impl Fn(S),
) -> io::Result<()> {
    let mut stacks = Vec::with_capacity(live);
    for _ in 0..n / live {
        for _ in 0..live {
            stacks.push(take()?);
        }
        stacks.drain(..).for_each(|stack| give(run(stack)));
    }
    Ok(())
}

/// One contender's time.
fn time(
    name: &str,
    threads: usize,
    live: usize,
    pool: &Arc<PagePool<Stacks>>,
    queue: &Queue,
) -> io::Result<Time> {
    measure(threads, CALLS, |n| match name {
        "corosensei's own" => each(n, live, || DefaultStack::new(STACK), drop),
        "PagePool" => each(n, live, || PooledStack::new(pool).map_err(io::Error::other), drop),
        "queue, shared" => each(n, live, || queue.take(), |stack| queue.give(stack)),
        "queue of the thread" => each(
            n,
            live,
            || OWN.with_borrow_mut(Vec::pop).map_or_else(|| DefaultStack::new(STACK), Ok),
            |stack| OWN.with_borrow_mut(|own| own.push(stack)),
        ),
        _ => {
            let one = DefaultStack::new(STACK)?;
            let lent = || Ok(Lent(one.base(), one.limit()));
            each(n, live, lent, drop)
        }
    })
}

/// A stack that somebody else keeps.
struct Lent(StackPointer, StackPointer);

// SAFETY: `each` runs its coroutines one after the other, so that one stack does for all of them;
// the stack that these are the ends of lives longer.
unsafe impl Stack for Lent {
    fn base(&self) -> StackPointer {
        self.0
    }
    fn limit(&self) -> StackPointer {
        self.1
    }
}

fn run_all(options: &Options) -> Result<String, Box<dyn std::error::Error>> {
    let pool = Arc::new(PagePool::stacks(PoolConfig { decay: None, ..PoolConfig::stacks(STACK, 4096) })?);
    let queue = Queue::default();
    let names = ["corosensei's own", "PagePool", "queue, shared", "queue of the thread", "one reused"];
    let mut rows = Vec::new();
    for threads in [1, 2] {
        for live in [1, 16, 256] {
            rows.extend(names.map(|name| Row { threads, live, name, times: Vec::new() }));
        }
    }
    for _ in 0..options.rounds {
        for row in &mut rows {
            row.times.push(time(row.name, row.threads, row.live, &pool, &queue)?);
        }
    }
    if options.json {
        return Ok(json(&rows));
    }
    Ok(format!("{}\n{}\n{:?}\n", table(&rows, "PagePool"), pool.meminfo(), pool.stats()))
}

fn main() -> ExitCode {
    let about = "Coroutines of corosensei by where their stacks come from.";
    match Options::read(about, None).map_err(Into::into).and_then(|options| run_all(&options)) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
