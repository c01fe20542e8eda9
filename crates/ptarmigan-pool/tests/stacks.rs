//! Pools of stacks: guards, sizes, limits, decay, threads, misuse.
mod child;
use corosensei::stack::{Stack as CoroutineStack, StackPointer};
use corosensei::{Coroutine, CoroutineResult};
use ptarmigan_pool::{
    ArcStack, Bind, HugePages, MetricsHook, PagePool, PoolConfig, PoolError, PoolEvent, Stack, Stacks,
    Topology,
};
use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Without decay, which would make counts depend on the clock, on one node.
fn config(size: usize, most: usize) -> PoolConfig {
    PoolConfig { decay: None, threads: 8, topology: Topology::one(), ..PoolConfig::stacks(size, most) }
}

fn stacks(size: usize, most: usize) -> PagePool<Stacks> {
    PagePool::stacks(config(size, most)).expect("the host has that much address space")
}

/// Writes the word at the top, as a call would.
fn touch(stack: &Stack<'_>, word: u64) {
    // SAFETY: the word below the top is the stack's.
    unsafe { stack.top().cast::<u64>().sub(1).write(word) };
}

fn addr(at: NonNull<u8>) -> usize {
    at.addr().get()
}

/// The last byte of each stack, and how many of them have memory. Debug builds read the lowest page
/// of stacks that come from the host or go back, so that one has memory there.
fn tops(stacks: &[Stack<'_>]) -> Vec<usize> {
    stacks.iter().map(|stack| addr(stack.top()) - 1).collect()
}

fn resident(tops: &[usize]) -> usize {
    tops.iter().filter(|at| child::is_resident(**at)).count()
}

#[test]
fn the_guard_faults_and_the_stack_above_it_does_not() {
    let Some(output) = child::of("the_guard_faults_and_the_stack_above_it_does_not") else {
        let pool = stacks(64 * KIB, 4);
        let stack = pool.page().expect("4 fit");
        // SAFETY: all of it is the stack's.
        unsafe { stack.bottom().write_bytes(1, 64 * KIB) };
        println!("the stack can be written to");
        // SAFETY: broken on purpose: the process must end here.
        unsafe { stack.bottom().sub(1).write_volatile(1) };
        println!("its guard as well");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("the stack can be written to"), "{text}");
    assert!(!text.contains("its guard as well"), "{text}");
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{:?}", output.status);
}

#[test]
fn every_stack_has_a_guard_of_its_own_outside_its_size() {
    for (size, guard) in [(4 * KIB, 4 * KIB), (12 * KIB, 4 * KIB), (64 * KIB, 16 * KIB), (MIB, 64 * KIB)] {
        let pool = PagePool::stacks(PoolConfig { guard, ..config(size, 20) }).expect("it is small");
        let all: Vec<_> = (0..20).map(|_| pool.page().expect("20 fit")).collect();
        for stack in &all {
            let (bottom, top) = (addr(stack.bottom()), addr(stack.top()));
            assert_eq!((top - bottom, stack.guard()), (size, bottom - guard..bottom));
            assert!(child::is_readable(bottom) && child::is_readable(top - 1), "{size}");
            assert!(!child::is_readable(bottom - 1) && !child::is_readable(bottom - guard), "{size}");
        }
        let mut bottoms: Vec<_> = all.iter().map(|stack| addr(stack.bottom())).collect();
        bottoms.sort_unstable();
        assert!(
            bottoms.windows(2).all(|two| two[1] - two[0] >= size + guard),
            "no two have memory in common"
        );
    }
}

#[test]
fn a_guard_stays_when_the_memory_above_it_goes_back() {
    let pool = stacks(64 * KIB, 8);
    let all: Vec<_> = (0..8).map(|_| pool.page().expect("8 fit")).collect();
    let guards: Vec<_> = all.iter().map(|stack| stack.guard().end - 1).collect();
    all.iter().for_each(|stack| touch(stack, 1));
    drop(all);
    assert_eq!(pool.trim(), 8 * 64 * KIB);
    assert!(guards.iter().all(|at| !child::is_readable(*at)), "memory went back in one run");
    let again: Vec<_> = (0..8).map(|_| pool.page().expect("8 fit")).collect();
    assert!(again.iter().all(|stack| !child::is_readable(stack.guard().start)));
}

#[test]
fn sizes_at_the_limits_are_taken_and_those_beyond_are_refused() {
    for size in [4 * KIB, 20 * KIB, 2 * MIB, 64 * MIB - 4 * KIB, 64 * MIB] {
        let pool = stacks(size, 3);
        let all: Vec<_> = (0..3).map(|_| pool.page().expect("3 fit")).collect();
        for stack in &all {
            touch(stack, 1);
            // SAFETY: the lowest word is the stack's.
            unsafe { stack.bottom().cast::<u64>().write(1) };
        }
        drop(all);
        pool.trim();
        assert_eq!(pool.stats().returned, 3 * size);
    }
    let most = if usize::BITS > 32 { 1 << 20 } else { 1 << 10 };
    let text = |config| match PagePool::stacks(config) {
        Err(PoolError::OutOfRange(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(text(config(64 * MIB + 4 * KIB, 1)).contains("from 4096 to 67108864"));
    assert!(text(config(4 * KIB + 1, 1)).contains("multiples of 4096"));
    assert!(text(config(0, 1)).contains("from 4096"));
    assert!(text(config(64 * KIB, 0)).contains("0 bytes of capacity"));
    assert!(text(PoolConfig { capacity: usize::MAX, ..config(64 * MIB, 1) }).contains("of capacity"));
    assert!(text(PoolConfig { guard: 0, ..config(64 * KIB, 1) }).contains("guards of 0 bytes"));
    assert!(text(PoolConfig { guard: 100, ..config(64 * KIB, 1) }).contains("from 0 to 67108864"));
    assert!(text(PoolConfig { guard: 128 * MIB, ..config(64 * KIB, 1) }).contains("from 0 to 67108864"));
    assert!(text(PoolConfig { guard: 64 * MIB, ..config(4 * KIB, most) }).contains("pages with guards"));
    assert!(text(PoolConfig { huge: HugePages::Advise, ..config(MIB, 1) }).contains("multiples of 2097152"));
}

#[test]
fn a_stack_keeps_its_content_until_it_is_cleared() {
    let pool = stacks(256 * KIB, 4);
    for keep in [0, 100, 4 * KIB, 64 * KIB, 256 * KIB, usize::MAX] {
        let stack = pool.page().expect("4 fit");
        touch(&stack, 7);
        // SAFETY: the lowest word is the stack's.
        unsafe { stack.bottom().cast::<u64>().write(8) };
        drop(stack);
        let mut stack = pool.page().expect("4 fit");
        // SAFETY: as above; the top's word as well.
        let words =
            |s: &Stack<'_>| unsafe { [s.top().cast::<u64>().sub(1).read(), s.bottom().cast().read()] };
        assert_eq!(words(&stack), [7, 8], "nothing is cleared for the next user");
        stack.clear(keep);
        assert_eq!(words(&stack), [0, 0], "{keep}");
    }
    assert_eq!(pool.stats().misses, 1);
}

#[test]
fn a_pool_hands_out_as_many_stacks_as_it_has_and_then_says_so() {
    let full = Arc::new(AtomicUsize::new(0));
    let seen = full.clone();
    let hook = MetricsHook::new(move |event| {
        seen.fetch_add(usize::from(matches!(event, PoolEvent::Full { .. })), SeqCst);
    });
    let pool = PagePool::stacks(PoolConfig { hook: Some(hook), ..config(16 * KIB, 100) }).expect("small");
    let mut all: Vec<_> = (0..100).map(|_| pool.page().expect("100 fit")).collect();
    let refused = pool.page().expect_err("the 101st does not");
    assert!(matches!(refused, PoolError::Full { cached: 0, .. }), "{refused:?}");
    assert!(refused.to_string().contains("1638400 in use"), "{refused}");
    assert_eq!(full.load(SeqCst), 1);
    drop(all.pop());
    all.push(pool.page().expect("one came back"));
    let memory = pool.meminfo();
    assert_eq!((memory.total, memory.in_use, memory.free), (1600 * KIB, 1600 * KIB, 0));
}

#[test]
fn a_pool_without_budget_frees_every_stack_to_the_host() {
    let pool = PagePool::stacks(PoolConfig { keep: 0, ..config(64 * KIB, 10) }).expect("it is small");
    for n in 1..20 {
        let stack = pool.page().expect("10 fit");
        touch(&stack, 1);
        let tops = tops(&[stack]);
        let stats = pool.stats();
        assert_eq!((stats.cached, stats.returned), (0, n * 64 * KIB));
        assert_eq!(resident(&tops), 0);
    }
}

#[test]
fn memory_goes_back_with_one_call_for_a_run_of_stacks() {
    let pool = stacks(32 * KIB, 512);
    let mut all: Vec<_> = (0..512).map(|_| pool.page().expect("512 fit")).collect();
    all.iter().for_each(|stack| touch(stack, 1));
    all.sort_by_key(|stack| addr(stack.bottom()));
    let tops = tops(&all);
    assert_eq!(resident(&tops), 512);
    // Each other one: no two are neighbours.
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for (n, stack) in all.into_iter().enumerate() {
        if n % 2 == 0 { kept.push(stack) } else { gone.push(stack) }
    }
    drop(gone);
    assert_eq!(pool.trim(), 256 * 32 * KIB);
    assert_eq!(pool.stats().return_calls, 256, "no two of them are neighbours");
    assert_eq!(resident(&tops), 256);
    // All together, in an order that leaves few neighbours to a piece of 256.
    kept.extend((0..256).map(|_| pool.page().expect("512 fit")));
    kept.iter().for_each(|stack| touch(stack, 1));
    assert_eq!(resident(&tops), 512);
    drop(kept);
    assert_eq!(pool.trim(), 512 * 32 * KIB);
    assert_eq!(resident(&tops), 0);
    // In the order of their addresses: stacks that go back are neighbours.
    let mut all: Vec<_> = (0..512).map(|_| pool.page().expect("512 fit")).collect();
    all.sort_by_key(|stack| addr(stack.bottom()));
    drop(all);
    let before = pool.stats().return_calls;
    pool.trim();
    let calls = pool.stats().return_calls - before;
    assert!(calls <= 16, "{calls} calls for 512 neighbours");
}

#[test]
fn a_pool_says_how_much_memory_its_stacks_take() {
    let pool = stacks(MIB, 40);
    let all: Vec<_> = (0..40).map(|_| pool.page().expect("40 fit")).collect();
    // Pages that debug builds have read.
    let before = pool.resident().expect("the host says");
    assert!(before <= 40 * 4 * KIB, "{before}");
    all.iter().for_each(|stack| touch(stack, 1));
    assert_eq!(pool.resident().expect("the host says"), before + 40 * 4 * KIB);
    // SAFETY: the upper half is the stack's.
    unsafe { all[7].top().sub(MIB / 2).write_bytes(1, MIB / 2) };
    assert_eq!(pool.resident().expect("the host says"), before + 39 * 4 * KIB + MIB / 2);
}

#[test]
fn stacks_unused_for_an_interval_go_back_and_others_stay() {
    let after = Duration::from_secs(1000);
    let pool = PagePool::stacks(PoolConfig { decay: Some(after), ..config(64 * KIB, 200) });
    let pool = pool.expect("it is small");
    let all: Vec<_> = (0..200).map(|_| pool.page().expect("200 fit")).collect();
    all.iter().for_each(|stack| touch(stack, 1));
    let tops = tops(&all);
    drop(all);
    pool.hand_over();
    let (start, resident) = (Instant::now(), || resident(&tops));
    assert_eq!(resident(), 200);
    assert_eq!(pool.decay(start + Duration::from_secs(1010)), 0, "not for a whole interval yet");
    drop((0..40).map(|_| pool.page().expect("they are kept")).collect::<Vec<_>>());
    pool.hand_over();
    let given = pool.decay(start + Duration::from_secs(2020));
    assert!(given > 0 && given <= 160 * 64 * KIB, "{given}");
    assert_eq!(resident(), 200 - given / (64 * KIB));
    pool.decay(start + Duration::from_secs(3030));
    assert_eq!((resident(), pool.stats().cached), (0, 0));
    let stats = pool.stats();
    assert!(stats.return_calls < 100, "200 neighbours went in runs: {stats:?}");
}

#[test]
fn threads_that_end_leave_their_stacks_to_the_others() {
    let pool = stacks(64 * KIB, 256);
    for _ in 0..20 {
        std::thread::scope(|s| {
            let work = || drop((0..30).map(|_| pool.page().expect("256 fit")).collect::<Vec<_>>());
            let both = [s.spawn(work), s.spawn(work)];
            // Joined, so that their thread-locals are gone, too.
            both.into_iter().for_each(|t| t.join().expect("it does not panic"));
        });
    }
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.threads, stats.cached), (0, 0, stats.misses * 64 * KIB));
    assert!(stats.misses <= 90, "{stats:?}");
    let all: Vec<_> = (0..256).map(|_| pool.page().expect("one thread reaches all")).collect();
    let different: HashSet<_> = all.iter().map(|stack| addr(stack.bottom())).collect();
    assert_eq!(different.len(), 256);
}

#[test]
fn a_stack_ends_on_another_thread_and_comes_round() {
    let pool = Arc::new(stacks(64 * KIB, 64));
    let (send, receive) = std::sync::mpsc::sync_channel::<ArcStack>(4);
    let consumer = std::thread::spawn(move || receive.into_iter().map(drop).count());
    for _ in 0..5000 {
        let stack = loop {
            match pool.arc_page() {
                Ok(stack) => break stack,
                // The missing stacks are with the other thread.
                Err(PoolError::Full { .. }) => std::thread::yield_now(),
                Err(other) => panic!("{other}"),
            }
        };
        send.send(stack).expect("the consumer waits");
    }
    drop(send);
    assert_eq!(consumer.join().expect("it does not panic"), 5000);
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.allocs), (0, 5000));
    assert!(stats.misses <= 64, "{stats:?}");
}

#[test]
fn foreign_repeated_and_wrong_stack_addresses_are_refused() {
    let (pool, other) = (stacks(64 * KIB, 8), stacks(64 * KIB, 8));
    let base = pool.page().expect("8 fit").into_raw().base();
    let in_use = pool.page().expect("8 fit");
    let refuse = |pool: &PagePool<Stacks>, base: NonNull<u8>, why: &str| {
        let before = pool.stats();
        // SAFETY: 1. no code uses any of the stacks.
        let error = unsafe { pool.try_page_from_raw(base) }.expect_err(why);
        assert!(matches!(&error, PoolError::Address(text) if text.contains(why)), "{error}");
        assert_eq!(pool.stats(), before, "nothing has changed");
    };
    refuse(&other, base, "not the base of a page of this pool");
    refuse(&pool, NonNull::dangling(), "not the base of a page of this pool");
    // SAFETY: within the stack.
    refuse(&pool, unsafe { base.add(4 * KIB) }, "not the base of a page of this pool");
    // SAFETY: within the pool's address space.
    refuse(&pool, unsafe { base.add(8 * 68 * KIB) }, "not the base of a page of this pool");
    refuse(&pool, in_use.bottom(), "not kept as an address");
    // SAFETY: 1. no code uses the stack.
    drop(unsafe { pool.try_page_from_raw(base) }.expect("it is kept as an address"));
    refuse(&pool, base, "not kept as an address");
    assert_eq!(pool.stats().in_use, 64 * KIB);
}

/// A stack that somebody else keeps.
struct Lent(StackPointer, StackPointer);

// SAFETY: the test keeps the stack, or leaves it to the pool that must keep it, while it is used.
unsafe impl CoroutineStack for Lent {
    fn base(&self) -> StackPointer {
        self.0
    }
    fn limit(&self) -> StackPointer {
        self.1
    }
}

#[test]
fn a_stack_dropped_by_code_on_it_is_never_reused() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let events = seen.clone();
    let hook = MetricsHook::new(move |event| {
        if let PoolEvent::StillInUse { base } = event {
            events.lock().expect("nobody panics").push(*base);
        }
    });
    let pool = PagePool::stacks(PoolConfig { hook: Some(hook), ..config(64 * KIB, 2) });
    let pool = Arc::new(pool.expect("it is small"));
    let stack = pool.arc_page().expect("2 fit");
    let bottom = addr(stack.bottom());
    let lent = Lent(stack.top().addr(), stack.bottom().addr());
    let mut coroutine = Coroutine::with_stack(lent, move |yielder, ()| {
        let local = std::hint::black_box([7_u64; 100]);
        drop(stack);
        yielder.suspend(());
        local.iter().sum::<u64>()
    });
    assert!(matches!(coroutine.resume(()), CoroutineResult::Yield(())));
    let stats = pool.stats();
    assert_eq!((stats.still_in_use, stats.in_use), (1, 64 * KIB));
    assert_eq!(*seen.lock().expect("nobody panics"), [bottom]);
    let another = pool.page().expect("2 fit");
    assert_ne!(addr(another.bottom()), bottom);
    assert!(matches!(pool.page(), Err(PoolError::Full { .. })), "the other one stays out");
    drop(another);
    // The pool ends before the coroutine does, and leaves its memory where it is.
    drop(Arc::into_inner(pool).expect("the stack gave its share back"));
    assert!(matches!(coroutine.resume(()), CoroutineResult::Return(700)));
}

#[test]
fn huge_pages_are_asked_for_and_stacks_are_aligned_to_them() {
    let pool = PagePool::stacks(PoolConfig { huge: HugePages::Advise, ..config(4 * MIB, 3) });
    let pool = pool.expect("the host has that much address space");
    let all: Vec<_> = (0..3).map(|_| pool.page().expect("3 fit")).collect();
    for stack in &all {
        assert!(addr(stack.bottom()).is_multiple_of(2 * MIB) && addr(stack.top()).is_multiple_of(2 * MIB));
        assert_eq!(stack.guard().len(), 2 * MIB, "which keeps the next one aligned");
        assert!(!child::is_readable(stack.guard().start) && !child::is_readable(stack.guard().end - 1));
        touch(stack, 1);
    }
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let taken = pool.resident().expect("the host says");
    if enabled.contains("[always]") || enabled.contains("[madvise]") {
        assert!(taken >= 2 * MIB, "{taken} bytes after a word in each stack");
    }
    let tops = tops(&all);
    drop(all);
    pool.trim();
    assert_eq!(pool.stats().returned, 12 * MIB);
    // In debug builds the lowest page is read, and the host has a huge page of zeroes for that.
    assert_eq!(resident(&tops), 0);
}

#[test]
fn a_host_without_the_nodes_is_counted_or_refused() {
    // A machine of one node, or of any number below 64.
    let config = PoolConfig { topology: Topology::told(64, || 0), ..config(64 * KIB, 640) };
    let pool = PagePool::stacks(config.clone()).expect("nodes are only preferred");
    assert!(pool.stats().refused > 0, "there is no node 63");
    let all: Vec<_> = (0..640).map(|_| pool.page().expect("640 fit")).collect();
    all.iter().for_each(|stack| touch(stack, 1));
    let refused = PagePool::stacks(PoolConfig { bind: Bind::Strict, ..config.clone() });
    let PoolError::Refused(refused) = refused.expect_err("there is no node 63") else { panic!("not mbind") };
    assert_eq!(refused.call(), "mbind");
    assert_eq!(refused.memory().len(), 10 * 68 * KIB, "the part of one node");
    assert!(refused.to_string().contains("Bind::FirstTouch"), "what to do: {refused}");
    let pool = PagePool::stacks(PoolConfig { bind: Bind::FirstTouch, ..config }).expect("nothing is asked");
    assert_eq!(pool.stats().refused, 0);
}

#[test]
fn what_a_pool_says_of_its_memory_adds_up_at_every_step() {
    let pool = stacks(16 * KIB, 300);
    let mut live = Vec::new();
    let check = |live: usize| {
        let memory = pool.meminfo();
        assert_eq!(memory.free + memory.in_use + memory.cached, memory.total, "{memory:?}");
        assert_eq!((memory.in_use, memory.total), (live * 16 * KIB, 300 * 16 * KIB));
        assert_eq!(memory.guards, 300 * 4 * KIB);
        assert_eq!(memory.nodes.iter().map(|node| node.total).sum::<usize>(), memory.total);
        assert!(memory.nodes[0].cached <= memory.cached && memory.cached <= memory.cached_max);
    };
    for step in 0..600_usize {
        if step % 7 < 4 || live.is_empty() {
            live.extend(pool.page());
        } else {
            drop(live.swap_remove(step % live.len()));
        }
        if step % 100 == 99 {
            pool.trim();
        }
        check(live.len());
    }
    let text = pool.meminfo().to_string();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("PoolTotal:") && lines[0].ends_with("4800 kB"), "{text}");
    assert!(lines.contains(&format!("PoolInUse:   {:>11} kB", live.len() * 16).as_str()), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("Node 0 PoolCached:")), "{text}");
}

#[test]
fn a_hook_that_panics_harms_nobody() {
    let config =
        PoolConfig { hook: Some(MetricsHook::new(|event| panic!("{event:?}"))), ..config(64 * KIB, 4) };
    let pool = PagePool::stacks(config).expect("it is small");
    let both = Barrier::new(2);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let stack = pool.page().expect("4 fit");
                both.wait();
                touch(&stack, 1);
            });
        }
    });
    pool.trim();
    assert_eq!(pool.stats().in_use, 0);
}
