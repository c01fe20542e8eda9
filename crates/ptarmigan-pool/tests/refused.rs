//! Pools on hosts that refuse: each call that a pool makes fails, in a process of its own. No page
//! is lost, and the error names the call, the place and the remedy.
#![cfg(target_endian = "little")]
mod child;
use ptarmigan_pool::{Bind, MetricsHook, PagePool, PoolConfig, PoolError, PoolEvent, Refusal, Topology};
use std::os::unix::process::ExitStatusExt;
use std::sync::{Arc, Mutex};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GUARD_INSTALL: u32 = 102;

fn config(size: usize, most: usize) -> PoolConfig {
    PoolConfig { decay: None, threads: 8, topology: Topology::one(), ..PoolConfig::stacks(size, most) }
}

/// A hook, and the refusals that it heard.
fn listener() -> (MetricsHook, Arc<Mutex<Vec<Refusal>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let writes = heard.clone();
    let hook = MetricsHook::new(move |event| {
        if let PoolEvent::Refused(refusal) = event {
            writes.lock().expect("nobody panics").push(refusal.clone());
        }
    });
    (hook, heard)
}

#[test]
fn a_pool_without_address_space_is_an_error_with_its_size() {
    if child::passes("a_pool_without_address_space_is_an_error_with_its_size") {
        return;
    }
    let limit = libc::rlimit { rlim_cur: 512 << 20, rlim_max: 512 << 20 };
    // SAFETY: the limit lives until the call is over.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let refused = PagePool::stacks(config(64 * MIB, 12)).expect_err("768 MiB of 512");
    let PoolError::Refused(refusal) = &refused else { panic!("{refused:?}") };
    assert_eq!((refusal.call(), refusal.errno()), ("mmap", libc::ENOMEM));
    assert!(refusal.memory().len() >= 12 * 64 * MIB);
    assert!(refused.to_string().contains("ulimit -v"), "{refused}");
    drop(PagePool::stacks(config(64 * KIB, 100)).expect("there is room for a small one"));
}

#[test]
fn guards_without_table_support_are_mappings_that_fault() {
    let test = "guards_without_table_support_are_mappings_that_fault";
    let Some(output) = child::of(test) else {
        child::deny(libc::SYS_madvise, Some(GUARD_INSTALL), libc::EINVAL);
        let pool = PagePool::stacks(config(64 * KIB, 8)).expect("it is small");
        let all: Vec<_> = (0..8).map(|_| pool.page().expect("8 fit")).collect();
        assert!(all.iter().all(|stack| !child::is_readable(stack.guard().end - 1)));
        let maps = std::fs::read_to_string("/proc/self/maps").expect("proc is mounted");
        let guard = all[3].guard();
        let line = format!("{:x}-{:x} ---p", guard.start, guard.end);
        assert!(maps.contains(&line), "{line} in {maps}");
        drop(all);
        assert_eq!(pool.trim(), 8 * 64 * KIB, "guards between them are no obstacle");
        assert_eq!(pool.stats().return_calls, 1);
        let stack = pool.page().expect("8 fit");
        println!("guards are mappings");
        // SAFETY: broken on purpose: the process must end here.
        unsafe { stack.bottom().sub(1).write_volatile(1) };
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("guards are mappings"), "{text}");
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{text}");
}

#[test]
fn a_guard_that_is_refused_costs_no_stack() {
    if child::passes("a_guard_that_is_refused_costs_no_stack") {
        return;
    }
    let (hook, heard) = listener();
    let pool = PagePool::stacks(PoolConfig { hook: Some(hook), ..config(64 * KIB, 50) }).expect("small");
    let before: Vec<_> = (0..10).map(|_| pool.page().expect("50 fit")).collect();
    child::deny(libc::SYS_madvise, Some(GUARD_INSTALL), libc::EINVAL);
    child::deny(libc::SYS_mprotect, Some(libc::PROT_NONE as u32), libc::ENOMEM);
    for n in 1..=100 {
        let error = pool.page().expect_err("it has no guard");
        let PoolError::State(why) = &error else { panic!("{error:?}") };
        let refusal = why.downcast_ref::<Refusal>().expect("the host's refusal");
        assert_eq!((refusal.call(), refusal.errno(), refusal.memory().len()), ("mprotect", 12, 4 * KIB));
        assert!(error.to_string().contains("vm.max_map_count"), "{error}");
        let stats = pool.stats();
        assert!(stats.refused >= n, "{stats:?}");
        assert_eq!((stats.in_use, stats.cached), (10 * 64 * KIB, 0), "nothing is lost");
    }
    assert_eq!(heard.lock().expect("nobody panics").len(), pool.stats().refused);
    // Those that have guards go round.
    drop(before);
    let again: Vec<_> = (0..10).map(|_| pool.page().expect("they have their guards")).collect();
    pool.page().expect_err("the eleventh has none");
    drop(again);
    assert_eq!(pool.trim(), 10 * 64 * KIB);
    let again: Vec<_> = (0..50).map_while(|_| pool.page().ok()).collect();
    assert!(!again.is_empty(), "guards stay when memory goes back");
}

#[test]
fn memory_that_the_host_refuses_is_cleared_and_reused() {
    if child::passes("memory_that_the_host_refuses_is_cleared_and_reused") {
        return;
    }
    child::deny(libc::SYS_madvise, Some(libc::MADV_DONTNEED as u32), libc::EINVAL);
    let (hook, heard) = listener();
    let shape =
        PoolConfig { capacity: MIB, page_size: 64 * KIB, topology: Topology::one(), ..PoolConfig::default() };
    let pool = PagePool::new(PoolConfig { hook: Some(hook), decay: None, ..shape }).expect("it is small");
    for _ in 0..3 {
        let mut all: Vec<_> = (0..16).map(|_| pool.page().expect("16 fit")).collect();
        for page in &mut all {
            assert!(page.iter().all(|byte| *byte == 0));
            page.fill(7);
            // SAFETY: it is not zero, and is given back to the host: the subject of the test.
            page.fill(0);
        }
        drop(all);
        pool.trim();
        let stats = pool.stats();
        assert_eq!((stats.in_use, stats.cached, stats.returned), (0, 0, 0), "{stats:?}");
    }
    let heard = heard.lock().expect("nobody panics");
    assert!(heard.iter().all(|refusal| refusal.call() == "madvise(MADV_DONTNEED)"), "{heard:?}");
    assert!(heard.len() >= 3 && heard[0].to_string().contains("locked"), "{heard:?}");
    // Stacks that go back dirty are handed out as they are.
    let pool = PagePool::stacks(config(64 * KIB, 8)).expect("it is small");
    for _ in 0..3 {
        let mut stack = pool.page().expect("8 fit");
        // SAFETY: all of it is the stack's.
        unsafe { stack.bottom().write_bytes(7, 64 * KIB) };
        drop(stack);
        pool.trim();
        stack = pool.page().expect("8 fit");
        stack.clear(0);
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(stack.bottom().as_ptr(), 64 * KIB) };
        assert!(bytes.iter().all(|byte| *byte == 0), "it is cleared by writing");
    }
}

#[test]
fn without_numa_binding_memory_lies_where_it_is_touched() {
    if child::passes("without_numa_binding_memory_lies_where_it_is_touched") {
        return;
    }
    for errno in [libc::ENOSYS, libc::EPERM] {
        // The last filter that was made is asked first, and the highest number wins.
        std::thread::spawn(move || {
            child::deny(libc::SYS_mbind, None, errno);
            let (hook, heard) = listener();
            let two =
                PoolConfig { topology: Topology::told(2, || 0), hook: Some(hook), ..config(64 * KIB, 8) };
            let pool = PagePool::stacks(two.clone()).expect("nodes are only preferred");
            assert_eq!(pool.stats().refused, 2, "one call for each node");
            let heard = heard.lock().expect("nobody panics").clone();
            assert!(heard.iter().all(|r| (r.call(), r.errno()) == ("mbind", errno)), "{heard:?}");
            let all: Vec<_> = (0..8).map(|_| pool.page().expect("8 fit")).collect();
            drop(all);
            let strict = PagePool::stacks(PoolConfig { bind: Bind::Strict, ..two });
            assert!(matches!(strict, Err(PoolError::Refused(r)) if r.errno() == errno));
        })
        .join()
        .expect("it does not panic");
    }
    // A machine of one node makes no such call.
    child::deny(libc::SYS_mbind, None, libc::EPERM);
    let one = PagePool::stacks(PoolConfig { bind: Bind::Strict, ..config(64 * KIB, 8) }).expect("one node");
    assert_eq!(one.stats().refused, 0);
}

#[test]
fn a_host_without_huge_pages_is_counted() {
    if child::passes("a_host_without_huge_pages_is_counted") {
        return;
    }
    child::deny(libc::SYS_madvise, Some(libc::MADV_HUGEPAGE as u32), libc::EINVAL);
    let huge = PoolConfig { huge: ptarmigan_pool::HugePages::Advise, ..config(2 * MIB, 2) };
    let pool = PagePool::stacks(huge).expect("it goes without");
    assert_eq!(pool.stats().refused, 1);
    drop(pool.page().expect("2 fit"));
}
