//! Coroutines on stacks of a pool.
use corosensei::{Coroutine, CoroutineResult};
use ptarmigan_corosensei::PooledStack;
use ptarmigan_pool::{ArcStack, PagePool, PoolConfig, PoolError, Stacks, Topology};
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

const SIZE: usize = 64 << 10;

fn pool(most: usize) -> Arc<PagePool<Stacks>> {
    let config = PoolConfig { decay: None, topology: Topology::one(), ..PoolConfig::stacks(SIZE, most) };
    Arc::new(PagePool::stacks(config).expect("the host has that much address space"))
}

type Counter = Coroutine<u64, u64, u64, PooledStack>;

/// Adds up the numbers that it is given, until a number is 0.
fn counter(pool: &Arc<PagePool<Stacks>>) -> Result<Counter, PoolError> {
    let stack = PooledStack::new(pool)?;
    Ok(Coroutine::with_stack(stack, |yielder, mut n| {
        let mut sum = 0;
        while n != 0 {
            sum += n;
            n = yielder.suspend(sum);
        }
        sum
    }))
}

#[test]
fn coroutines_run_side_by_side_and_their_stacks_come_round() {
    let pool = pool(100);
    for _ in 0..5 {
        let mut all: Vec<_> = (0..100).map(|_| counter(&pool).expect("100 fit")).collect();
        assert!(matches!(counter(&pool), Err(PoolError::Full { .. })));
        for turn in 1..=10 {
            for (n, one) in all.iter_mut().enumerate() {
                let n = n as u64 + 1;
                assert!(matches!(one.resume(n), CoroutineResult::Yield(sum) if sum == turn * n));
            }
        }
        for one in &mut all {
            assert!(matches!(one.resume(0), CoroutineResult::Return(_)));
        }
        drop(all);
        assert_eq!(pool.stats().in_use, 0);
    }
    assert_eq!(pool.stats().misses, 100);
}

#[test]
fn a_dropped_coroutine_is_unwound_and_its_stack_goes_back() {
    struct Noted(Arc<()>);
    let (pool, here) = (pool(4), Arc::new(()));
    let noted = Noted(here.clone());
    let mut half = Coroutine::with_stack(PooledStack::new(&pool).expect("4 fit"), move |yielder, ()| {
        let noted = noted;
        yielder.suspend(());
        drop(noted.0);
    });
    assert!(matches!(half.resume(()), CoroutineResult::Yield(())));
    assert_eq!(Arc::strong_count(&here), 2);
    drop(half);
    assert_eq!(Arc::strong_count(&here), 1, "it was unwound");
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.still_in_use), (0, 0), "from outside, so the stack is free");
}

#[test]
fn a_coroutine_that_overflows_its_stack_ends_in_its_guard() {
    fn deep(n: u64) -> u64 {
        let local = black_box([n; 64]);
        if n == 0 { 0 } else { deep(n - 1) + black_box(local)[3] }
    }
    const CHILD: &str = "PTARMIGAN_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let pool = pool(4);
        let neighbour: ArcStack = pool.arc_page().expect("4 fit");
        let stack = PooledStack::new(&pool).expect("4 fit");
        let mut overflows =
            Coroutine::with_stack(stack, |_: &corosensei::Yielder<(), ()>, ()| deep(black_box(1 << 20)));
        println!("it begins");
        let result = overflows.resume(());
        println!("it ended: {result:?}, {neighbour:?}");
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().expect("a test has a file"))
        .args(["--exact", "a_coroutine_that_overflows_its_stack_ends_in_its_guard", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("a test can be run again");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("it begins") && !text.contains("it ended"), "{text}");
    let signal = output.status.signal();
    assert!(matches!(signal, Some(6 | 11)), "a fault, or Rust's report of it: {:?}", output.status);
}
