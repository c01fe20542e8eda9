//! Asynchronous WebAssembly on stacks of a pool.
mod module;
use module::{prepare, request};
use ptarmigan_pool::{PagePool, PoolConfig, Stacks, Topology};
use ptarmigan_wasmtime::{PooledStacks, TooLarge};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use wasmtime::{Config, Error, InstancePre, StackCreator, Trap};

const SIZE: usize = 1 << 20;

fn pool(most: usize) -> Arc<PagePool<Stacks>> {
    let config = PoolConfig { decay: None, topology: Topology::one(), ..PoolConfig::stacks(SIZE, most) };
    Arc::new(PagePool::stacks(config).expect("the host has that much address space"))
}

fn ready(pool: &Arc<PagePool<Stacks>>) -> InstancePre<()> {
    let creator = Arc::new(PooledStacks::new(pool.clone()));
    prepare(Config::new().with_host_stack(creator), SIZE, false).expect("the module is well-formed")
}

type Call<'r> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'r>>;

fn poll(call: &mut Call<'_>) -> Poll<Result<(), Error>> {
    call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn calls_run_on_the_pool_s_stacks_which_come_back() {
    let pool = pool(100);
    let ready = ready(&pool);
    for _ in 0..3 {
        let mut calls: Vec<Call<'_>> = (0..50).map(|n| Box::pin(request(&ready, n)) as Call<'_>).collect();
        assert!(calls.iter_mut().all(|call| poll(call).is_pending()));
        assert_eq!(pool.stats().in_use, 50 * SIZE, "each waits on a stack of its own");
        assert!(calls.iter_mut().all(|call| matches!(poll(call), Poll::Ready(Ok(())))));
        drop(calls);
        assert_eq!(pool.stats().in_use, 0);
    }
    assert_eq!(pool.stats().misses, 50, "the same stacks each time");
}

#[test]
fn a_dropped_waiting_call_frees_its_stack_on_another_thread() {
    let pool = pool(10);
    let ready = ready(&pool);
    let mut call: Call<'_> = Box::pin(request(&ready, 5));
    assert!(poll(&mut call).is_pending());
    std::thread::scope(|s| s.spawn(|| drop(call)).join().expect("it does not panic"));
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.still_in_use), (0, 0));
}

#[test]
fn a_wasm_stack_overflow_traps_and_the_stack_is_reused() {
    let pool = pool(8);
    let ready = ready(&pool);
    for _ in 0..3 {
        let mut call: Call<'_> = Box::pin(request(&ready, 100_000_000));
        let Poll::Ready(Err(error)) = poll(&mut call) else { panic!("it has half a MiB") };
        assert_eq!(error.downcast_ref::<Trap>(), Some(&Trap::StackOverflow));
    }
    assert_eq!((pool.stats().in_use, pool.stats().misses), (0, 1));
}

#[test]
fn a_pool_that_is_full_fails_the_call_and_nothing_else() {
    let pool = pool(2);
    let ready = ready(&pool);
    let mut calls: Vec<Call<'_>> = (0..3).map(|n| Box::pin(request(&ready, n)) as Call<'_>).collect();
    assert!(poll(&mut calls[0]).is_pending() && poll(&mut calls[1]).is_pending());
    let Poll::Ready(Err(error)) = poll(&mut calls[2]) else { panic!("two fit") };
    assert!(format!("{error:#}").contains("is full"), "{error:#}");
    assert!(matches!(poll(&mut calls[0]), Poll::Ready(Ok(()))));
    drop(calls.remove(0));
    let mut again: Call<'_> = Box::pin(request(&ready, 3));
    assert!(poll(&mut again).is_pending(), "one came back");
}

#[test]
fn stacks_smaller_than_wasmtime_asks_for_are_refused() {
    let creator = PooledStacks::new(pool(2));
    let Err(error) = creator.new_stack(SIZE + 1, false) else { panic!("it is larger") };
    assert_eq!(error.downcast_ref(), Some(&TooLarge { wanted: SIZE + 1, size: SIZE }));
    assert!(error.to_string().contains("Config::async_stack_size"), "{error}");
}

#[test]
fn stacks_are_zero_where_that_is_asked_for() {
    let creator = PooledStacks::new(pool(8)).keep_resident(8 << 10);
    for zeroed in [false, true, true] {
        let stack = creator.new_stack(SIZE, zeroed).expect("one fits");
        let range = stack.range();
        assert_eq!((range.len(), range.end), (SIZE, stack.top().addr()));
        assert_eq!(stack.guard_range().end.addr(), range.start);
        let bottom = stack.top().wrapping_sub(SIZE);
        // SAFETY: all of it is the stack's.
        let bytes = unsafe { std::slice::from_raw_parts_mut(bottom, SIZE) };
        if zeroed {
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
        bytes.fill(7);
    }
    assert_eq!(creator.pool().stats().misses, 1, "the same stack each time");
}
