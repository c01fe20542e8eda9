//! Pools in a child that a fork made: pages that are out stay usable, no call waits for a lock of a
//! thread that does not exist in the child, and the parent's pool is as it was.
mod child;
use ptarmigan_pool::{Acquire, PagePool, PoolConfig, PoolError, Region, Stacks, Topology};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;

fn config(most: usize) -> PoolConfig {
    PoolConfig { decay: None, threads: 8, topology: Topology::one(), ..PoolConfig::stacks(64 * KIB, most) }
}

/// Runs `work` in a child of this process. Panics if it fails, or does not end within 20 seconds.
fn fork(work: impl FnOnce() -> bool) {
    // SAFETY: the child does its work and ends without returning to the test.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "a child can be made");
    if pid == 0 {
        // SAFETY: it ends the child.
        unsafe {
            libc::alarm(20);
            libc::_exit(if work() { 0 } else { 1 });
        }
    }
    let mut status = 0;
    // SAFETY: there is room for the status.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "of the child");
}

#[test]
fn a_child_uses_pages_out_and_pages_of_its_thread_alone() {
    if child::passes("a_child_uses_pages_out_and_pages_of_its_thread_alone") {
        return;
    }
    let pool = PagePool::stacks(config(64)).expect("it is small");
    let out: Vec<_> = (0..20).map(|_| pool.page().expect("64 fit")).collect();
    let word = |i: usize| out[i].top().cast::<u64>();
    // SAFETY: the word below the top is the stack's.
    (0..20).for_each(|i| unsafe { word(i).sub(1).write(i as u64) });
    drop((0..4).map(|_| pool.page().expect("64 fit")).collect::<Vec<_>>());
    let before = pool.stats();
    fork(|| {
        // SAFETY: as above; the child has a copy.
        let same = (0..20).all(|i| unsafe { word(i).sub(1).read() } == i as u64);
        // SAFETY: as above.
        (0..20).for_each(|i| unsafe { word(i).sub(1).write(77) });
        let guarded = !child::is_readable(out[0].guard().end - 1);
        let mut held = Vec::new();
        let end = loop {
            match pool.page() {
                Ok(stack) => held.push(stack),
                Err(error) => break error,
            }
        };
        let refused = matches!(end, PoolError::Forked) && end.to_string().contains("after the fork");
        let few = held.len() <= 2 * 16;
        drop(held);
        let nothing = pool.trim() == 0 && pool.decay(Instant::now() + Duration::from_secs(9999)) == 0;
        pool.hand_over();
        // A pool of its own is whole.
        let own = PagePool::stacks(config(8));
        let own = own.is_ok_and(|own| own.page().is_ok() && own.trim() == 64 * KIB);
        same && guarded && refused && few && nothing && own
    });
    assert_eq!(pool.stats(), before, "the parent's pool is as it was");
    // SAFETY: as above.
    assert!((0..20).all(|i| unsafe { word(i).sub(1).read() } == i as u64));
    drop(out);
    assert_eq!(pool.trim(), 24 * 64 * KIB);
}

#[test]
fn a_child_of_a_child_is_refused_and_its_own_pools_work() {
    if child::passes("a_child_of_a_child_is_refused_and_its_own_pools_work") {
        return;
    }
    let refused = |pool: &PagePool<Stacks>| matches!(pool.page(), Err(PoolError::Forked));
    let first = PagePool::stacks(config(8)).expect("it is small");
    fork(|| {
        let second = PagePool::stacks(config(8)).expect("it is small");
        if !refused(&first) || second.page().is_err() {
            return false;
        }
        second.hand_over();
        fork(|| {
            let third = PagePool::stacks(config(8)).expect("it is small");
            refused(&first) && refused(&second) && third.page().is_ok()
        });
        second.page().is_ok()
    });
    drop(first.page().expect("the first process has its pool"));
}

#[test]
fn a_child_never_waits_for_a_thread_that_is_not_there() {
    if child::passes("a_child_never_waits_for_a_thread_that_is_not_there") {
        return;
    }
    // Every call of this pool goes to its depot or its allocator, behind locks.
    let pool = PagePool::stacks(PoolConfig { magazine: 0, threads: 0, ..config(64) }).expect("it is small");
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while !done.load(SeqCst) {
                    drop((0..8).map(|_| pool.page().expect("64 fit")).collect::<Vec<_>>());
                    pool.trim();
                }
            });
        }
        let mine = pool.page().expect("64 fit");
        for _ in 0..200 {
            // The child's copy of `mine` is dropped there.
            // SAFETY: 1. the copy is the child's own, and not used otherwise.
            let copy = || unsafe { std::ptr::read(&raw const mine) };
            fork(|| {
                drop(copy());
                pool.trim();
                pool.hand_over();
                let refused = matches!(pool.page(), Err(PoolError::Forked));
                let stats = pool.stats();
                // A copy of the pool ends as well.
                // SAFETY: it is not used again in the child.
                drop(unsafe { std::ptr::read(&raw const pool) });
                refused && stats.in_use <= stats.capacity
            });
        }
        done.store(true, SeqCst);
    });
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn a_parents_futures_end_in_its_child_and_its_pages_stay() {
    if child::passes("a_parents_futures_end_in_its_child_and_its_pages_stay") {
        return;
    }
    let pool = PagePool::stacks(config(64)).expect("it is small");
    let region = pool.region().expect("this is no child");
    let (rested, is_resting) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<(Acquire<'_, Stacks>, Region<'_, Stacks>)>();
    std::thread::scope(|s| {
        let pool = &pool;
        let forks = s.spawn(move || {
            drop((0..4).map(|_| pool.page().expect("64 fit")).collect::<Vec<_>>());
            rested.send(()).expect("the test waits");
            let (future, region) = may_go.recv().expect("the test goes on");
            fork(|| {
                let mut future = pin!(future);
                let mut cx = Context::from_waker(Waker::noop());
                let waits = future.as_mut().poll(&mut cx);
                let ends = matches!(waits, Poll::Ready(Err(PoolError::Forked)));
                // Of the thread's magazines, although a future waited at the fork.
                let held = pool.page().is_ok();
                let new = pin!(pool.acquire()).poll(&mut cx).is_ready();
                let fixed = matches!(pool.region().err(), Some(PoolError::Forked));
                drop(region);
                ends && held && new && fixed
            });
        });
        is_resting.recv().expect("the thread is there");
        let mut all: Vec<_> = std::iter::from_fn(|| pool.page().ok()).collect();
        let mut future = pool.acquire();
        let waits = std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
        assert!(waits.is_pending());
        go.send((future, region)).expect("the thread waits");
        forks.join().expect("the child ends well");
        drop(all.pop());
        assert_eq!(pool.stats().waiting, 0, "the thread dropped the future");
    });
}
