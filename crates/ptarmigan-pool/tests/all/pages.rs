//! Pools of pages for user-space programs: state, threads, nodes, decay, failure.
use ptarmigan_pool::{
    ArcPage, Page, PagePool, PageState, PoolConfig, PoolError, RawPage, StateError, Topology,
};
use std::cell::Cell;
use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Without decay, which would make counts depend on the clock, on one node.
fn config(capacity: usize) -> PoolConfig {
    PoolConfig { capacity, decay: None, threads: 8, topology: Topology::one(), ..PoolConfig::default() }
}

fn pool(capacity: usize) -> PagePool {
    PagePool::new(config(capacity)).expect("the host has that much address space")
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}

/// Whether the host has memory behind the byte at `at`.
fn is_resident(at: *const u8) -> bool {
    let file = std::fs::File::open("/proc/self/pagemap").expect("proc is mounted");
    let mut entry = [0; 8];
    file.read_exact_at(&mut entry, (at as u64 / 4096) * 8).expect("one entry a page");
    u64::from_le_bytes(entry) >> 63 == 1
}

/// Counts pages that it makes and unmakes; refuses on demand. A constructed page begins with a
/// mark.
#[derive(Default)]
struct Marked {
    made: AtomicUsize,
    unmade: AtomicUsize,
    refuses: AtomicBool,
    panics: AtomicBool,
}

const MARK: u64 = 0x5eed_5eed_5eed_5eed;

// SAFETY: 1. and 3. only the first bytes of the page are touched, during the calls. 2. its
// protection never changes.
unsafe impl PageState for &'static Marked {
    unsafe fn construct(&self, page: RawPage) -> Result<(), StateError> {
        // SAFETY: the page is readable, writable, aligned and ours during the call.
        unsafe {
            assert_eq!(page.base().cast::<u64>().read(), 0, "a page comes zero from the host");
            page.base().cast::<u64>().write(MARK);
        }
        assert!(!self.panics.load(SeqCst), "the constructor was told to panic");
        if self.refuses.load(SeqCst) {
            return Err("the constructor was told to refuse".into());
        }
        self.made.fetch_add(1, SeqCst);
        Ok(())
    }
    unsafe fn destruct(&self, page: RawPage) {
        // SAFETY: 1. and 2. by the caller.
        assert!(unsafe { self.holds(page) });
        self.unmade.fetch_add(1, SeqCst);
    }
    unsafe fn restore(&self, _: RawPage, _: usize) {}
    unsafe fn holds(&self, page: RawPage) -> bool {
        // SAFETY: as above.
        unsafe { page.base().cast::<u64>().read() == MARK }
    }
}

fn marked() -> &'static Marked {
    Box::leak(Box::default())
}

#[test]
fn every_page_is_zero_however_its_last_user_wrote_to_it() {
    let pool = pool(MIB);
    for turn in 0..40 {
        let mut pages: Vec<Page<'_>> = (0..10).map(|_| pool.page().expect("256 fit")).collect();
        for (i, page) in pages.iter_mut().enumerate() {
            assert!(is_zero(page), "turn {turn}, page {i}");
            match i % 5 {
                0 => page.fill(1),
                1 => page.prefix_mut(100).fill(2),
                2 => page[4095] = 3,
                // SAFETY: the pointer is valid for the whole page.
                3 => unsafe { page.as_mut_ptr().add(2000).write(4) },
                _ => {}
            }
        }
    }
    assert_eq!(pool.stats().misses, 10, "the same pages all the time");
}

#[test]
fn a_page_kept_as_an_address_is_out_until_it_is_a_page_again() {
    let pool = pool(64 * KIB);
    for _ in 0..3 {
        let kept = pool.page().expect("16 fit").into_raw();
        assert_eq!(pool.stats().in_use, 4 * KIB, "it has not been given back");
        // SAFETY: the page is ours, and 4096 bytes long.
        unsafe { kept.base().as_ptr().add(2000).write(4) };
        // SAFETY: 1. it came from `into_raw` just now. 2. its address is not used any more.
        let page = unsafe { pool.page_from_raw(kept.base()) };
        assert_eq!((page.dirty(), page[2000]), (4096, 4), "nobody knows what was written");
        drop(page);
        assert!(is_zero(&pool.page().expect("16 fit")));
        assert_eq!(pool.stats().in_use, 0);
    }
}

#[test]
fn a_page_knows_how_far_it_was_lent_for_writing() {
    let pool = pool(64 * KIB);
    let mut page = pool.page().expect("16 fit");
    assert_eq!((page.dirty(), page[17]), (0, 0), "reading lends nothing");
    page.prefix_mut(100)[0] = 1;
    page.prefix_mut(10)[0] = 2;
    assert_eq!(page.dirty(), 100);
    page[5] = 3;
    assert_eq!(page.dirty(), 4096, "an index may be anywhere");
    page.fill(0);
    // SAFETY: all of it has just been cleared.
    unsafe { page.dirty_to(0) };
    assert_eq!(page.dirty(), 0);
    assert_eq!(page.prefix_mut(1 << 20).len(), 4096, "no more than there is");
}

#[test]
#[should_panic(expected = "is not in its state")]
#[cfg(debug_assertions)]
fn a_dirty_page_given_back_as_clean_panics_in_debug_builds() {
    let pool = pool(64 * KIB);
    let mut page = pool.page().expect("16 fit");
    page[3000] = 1;
    // SAFETY: it is not zero, the subject of the test; the check comes before anybody gets the
    // page.
    unsafe { page.give_back_clean() };
}

#[test]
fn threads_end_and_nothing_is_lost() {
    let pool = pool(4 * MIB);
    let all = 4 * MIB / 4096;
    for _ in 0..20 {
        // Two at once; each leaves full magazines.
        let both_at_work = Barrier::new(2);
        std::thread::scope(|s| {
            let work = || {
                let pages: Vec<_> = (0..300).map(|_| pool.page().expect("1024 fit")).collect();
                both_at_work.wait();
                drop(pages);
            };
            let both = [s.spawn(work), s.spawn(work)];
            // Joined, so that their thread-locals are gone, too.
            both.into_iter().for_each(|t| t.join().expect("it does not panic"));
        });
    }
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.threads), (0, 0));
    assert!(stats.cached > 0, "what they left is kept");
    let pages: Vec<_> = (0..all).map(|i| pool.page().unwrap_or_else(|e| panic!("page {i}: {e}"))).collect();
    assert_eq!(pages.len(), all, "every page can be had by one thread");
}

#[test]
fn a_page_is_given_back_on_another_thread_and_comes_round() {
    let pool = Arc::new(pool(256 * KIB));
    let (send, receive) = mpsc::sync_channel::<ArcPage>(8);
    let consumer =
        std::thread::spawn(move || receive.into_iter().map(|page| usize::from(page[0])).sum::<usize>());
    for _ in 0..10_000 {
        // 64 pages go round as long as they come back from the other thread's magazines.
        let mut page = pool.arc_page().expect("eight are under way, and 32 rest at the most");
        assert!(is_zero(&page));
        page.prefix_mut(1)[0] = 1;
        send.send(page).expect("the consumer waits");
    }
    drop(send);
    assert_eq!(consumer.join().expect("it does not panic"), 10_000);
    let stats = pool.stats();
    assert_eq!((stats.allocs, stats.frees, stats.in_use), (10_000, 10_000, 0));
    assert!(stats.misses <= 64, "{stats:?}");
}

#[test]
fn threads_without_slots_share_what_is_left() {
    for threads in [0, 1, 3] {
        let pool = PagePool::new(PoolConfig { threads, ..config(2 * MIB) }).expect("it is small");
        let all_at_work = Barrier::new(6);
        std::thread::scope(|s| {
            for _ in 0..6 {
                s.spawn(|| {
                    let page = pool.page().expect("512 fit");
                    all_at_work.wait();
                    assert!(pool.stats().threads <= threads);
                    drop(page);
                    for turn in 0..500 {
                        let mut some: Vec<_> = (0..turn % 7).map(|_| pool.page().expect("512 fit")).collect();
                        assert!(some.iter().all(|p| is_zero(p)));
                        some.iter_mut().for_each(|p| p.prefix_mut(8).fill(0xff));
                    }
                });
            }
        });
        assert_eq!(pool.stats().in_use, 0, "{threads} slots");
    }
}

/// Random calls of one thread on several nodes; every invariant after every step.
fn churn(seed: u64, page_size: usize, keep: usize, nodes: usize) {
    thread_local!(static NODE: Cell<usize> = const { Cell::new(0) });
    let state = marked();
    let capacity = 600 * page_size;
    let pool = PagePool::with_state(
        PoolConfig {
            page_size,
            keep,
            topology: Topology::told(nodes, || NODE.get()),
            decay: Some(Duration::from_secs(5)),
            ..config(capacity)
        },
        state,
    )
    .expect("the host has that much address space");
    let capacity = capacity / page_size / nodes * nodes * page_size;
    let mut now = Instant::now();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut live: Vec<Page<'_, _>> = Vec::new();
    let mut out = HashSet::new();
    let mut grows = true;
    for step in 0..6000 {
        NODE.set(rng.u64(..50 * nodes as u64) as usize % nodes);
        match rng.u64(..100) {
            0 => {
                now += Duration::from_secs(rng.u64(..10));
                pool.decay(now);
            }
            1 if rng.u64(..5) == 0 => {
                pool.trim();
            }
            2 => pool.hand_over(),
            3 if rng.u64(..10) == 0 => grows = !grows,
            n if (n < 70) == grows => match pool.page() {
                Ok(page) => {
                    let at = page.raw().base().as_ptr() as usize;
                    assert!(at.is_multiple_of(page_size) && out.insert(at), "step {step}: {page:?}");
                    // SAFETY: 1. `page` owns it. 2. it came from the pool in its state.
                    assert!(unsafe { (&state).holds(page.raw()) }, "step {step}");
                    live.push(page);
                }
                Err(PoolError::Full { in_use, .. }) => {
                    assert_eq!(in_use, live.len() * page_size);
                    assert_eq!(in_use, capacity, "one thread reaches all there is, step {step}");
                    grows = false;
                }
                Err(other) => panic!("step {step}: {other}"),
            },
            _ if live.is_empty() => {}
            _ => {
                let page = live.swap_remove(rng.usize(..live.len()));
                out.remove(&(page.raw().base().as_ptr() as usize));
            }
        }
        let stats = pool.stats();
        assert_eq!(stats.in_use, live.len() * page_size, "step {step}");
        assert!(stats.cached <= keep, "step {step}: {stats:?}");
        assert_eq!(stats.allocs - stats.frees, live.len());
        assert_eq!(stats.allocs, stats.hits + stats.refills + stats.misses);
        let (made, unmade) = (state.made.load(SeqCst), state.unmade.load(SeqCst));
        assert_eq!((made, unmade), (stats.constructed, stats.destructed));
        assert_eq!((made - unmade) * page_size, stats.in_use + stats.cached, "step {step}");
        assert_eq!(unmade * page_size, stats.returned);
    }
    drop(live);
    drop(pool);
    assert_eq!(state.made.load(SeqCst), state.unmade.load(SeqCst), "what is made is unmade");
}

#[test]
fn random_calls_keep_every_count_every_state_and_the_budget() {
    for seed in 0..12 {
        let page_size = 4096 << (seed % 3 * 4).min(9);
        let keep = [usize::MAX, 0, 100 * page_size, 3 * page_size][seed as usize % 4];
        churn(seed + 1, page_size, keep, 1 + seed as usize % 3);
    }
}

#[test]
fn what_nobody_needed_for_an_interval_goes_back_to_the_host() {
    let (pages, size) = (256, 64 * KIB);
    let pool = PagePool::new(PoolConfig {
        page_size: size,
        decay: Some(Duration::from_secs(1000)),
        ..config(pages * size)
    })
    .expect("the host has that much address space");
    let mut out: Vec<_> = (0..pages).map(|_| pool.page().expect("so many fit")).collect();
    out.iter_mut().for_each(|page| page.fill(1));
    // Not the first 4 KiB of each: debug builds read them again.
    let inside: Vec<_> = out.iter().map(|page| page[size / 2..].as_ptr()).collect();
    let resident = || inside.iter().filter(|at| is_resident(**at)).count();
    assert_eq!(resident(), pages);
    drop(out);
    pool.hand_over();
    let start = Instant::now();
    let at = |secs| start + Duration::from_secs(secs);
    assert_eq!(pool.decay(at(500)), 0, "the interval is not over");
    assert_eq!(pool.decay(at(1010)), 0, "they have not lain for a whole interval");
    // Some are needed in the second interval: the others decay.
    let needed: Vec<_> = (0..50).map(|_| pool.page().expect("they are kept")).collect();
    drop(needed);
    pool.hand_over();
    let given = pool.decay(at(2020));
    assert!(given > 0 && given <= (pages - 50) * size, "{given} bytes");
    assert_eq!(pool.stats().returned, given);
    assert_eq!(resident(), pages - given / size, "and the host has them");
    assert_eq!(pool.stats().cached, pages * size - given);
    pool.decay(at(3030));
    assert_eq!((resident(), pool.stats().cached), (0, 0), "nobody needs the rest either");
    assert!((0..pages).all(|_| is_zero(&pool.page().expect("all is there again"))));
}

#[test]
fn slow_paths_alone_give_back_what_decayed() {
    let pool = PagePool::new(PoolConfig { decay: Some(Duration::from_millis(1)), ..config(8 * MIB) });
    let pool = pool.expect("it is small");
    drop((0..2000).map(|_| pool.page().expect("2048 fit")).collect::<Vec<_>>());
    let patience = Instant::now() + Duration::from_secs(60);
    // Few pages go to and fro; most rest.
    while pool.stats().cached > 1000 * 4096 {
        drop((0..300).map(|_| pool.page().expect("2048 fit")).collect::<Vec<_>>());
        assert!(Instant::now() < patience, "{:?}", pool.stats());
    }
}

#[test]
fn a_full_pool_says_so_and_recovers() {
    let pool = pool(64 * KIB);
    let mut pages: Vec<_> = (0..16).map(|_| pool.page().expect("16 fit")).collect();
    let full = pool.page().expect_err("the 17th does not");
    assert!(matches!(full, PoolError::Full { capacity: 65536, in_use: 65536, cached: 0 }), "{full:?}");
    assert!(full.to_string().contains("65536 in use"), "{full}");
    assert_eq!(pool.stats().in_use, 65536, "nothing has changed");
    drop(pages.pop());
    pages.push(pool.page().expect("one came back"));
    pool.page().expect_err("and is taken");
}

#[test]
fn a_constructor_that_fails_costs_nothing() {
    let state = marked();
    let pool = PagePool::with_state(config(64 * KIB), state).expect("it is small");
    let first = pool.page().expect("16 fit");
    for how in [&state.refuses, &state.panics] {
        how.store(true, SeqCst);
        for _ in 0..40 {
            let error = pool.page().expect_err("it was told to fail");
            assert!(matches!(&error, PoolError::State(_)), "{error}");
        }
        how.store(false, SeqCst);
    }
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.cached, stats.constructed), (4096, 0, 1));
    let rest: Vec<_> = (0..15).map(|_| pool.page().expect("16 fit")).collect();
    drop((first, rest));
    drop(pool);
    assert_eq!((state.made.load(SeqCst), state.unmade.load(SeqCst)), (16, 16));
}

#[test]
fn a_page_goes_round_constructed_once() {
    let state = marked();
    let pool = PagePool::with_state(config(MIB), state).expect("it is small");
    for _ in 0..1000 {
        let page = pool.page().expect("256 fit");
        // SAFETY: 1. `page` owns it. 2. it came from the pool in its state.
        assert!(unsafe { (&state).holds(page.raw()) });
    }
    assert_eq!((state.made.load(SeqCst), state.unmade.load(SeqCst)), (1, 0));
    assert_eq!(pool.trim(), 4096);
    assert_eq!(state.unmade.load(SeqCst), 1);
}

#[test]
fn pages_of_threads_that_live_on_are_destructed_with_the_pool() {
    let state = marked();
    let pool = PagePool::with_state(config(4 * MIB), state).expect("it is small");
    let (ready, go) = (Barrier::new(3), Barrier::new(3));
    std::thread::scope(|s| {
        let pool = Arc::new(pool);
        for _ in 0..2 {
            let pool = pool.clone();
            let (ready, go) = (&ready, &go);
            s.spawn(move || {
                drop((0..100).map(|_| pool.page().expect("1024 fit")).collect::<Vec<_>>());
                drop(pool);
                ready.wait();
                go.wait();
            });
        }
        ready.wait();
        drop(Arc::into_inner(pool).expect("the others have dropped theirs"));
        let (made, unmade) = (state.made.load(SeqCst), state.unmade.load(SeqCst));
        // They end after the pool.
        go.wait();
        assert!(made >= 100);
        assert_eq!(made, unmade, "while both threads waited");
    });
}

#[test]
fn a_page_freed_on_a_foreign_node_goes_home() {
    thread_local!(static NODE: Cell<usize> = const { Cell::new(0) });
    let pool = PagePool::new(PoolConfig { topology: Topology::told(2, || NODE.get()), ..config(8 * MIB) });
    let pool = pool.expect("it is small");
    let start = pool.page().expect("2048 fit").raw().base().as_ptr() as usize;
    let node_of = |page: &Page<'_>| usize::from(page.raw().base().as_ptr() as usize >= start + 4 * MIB);
    let pages: Vec<_> = (0..500).map(|_| pool.page().expect("2048 fit")).collect();
    assert!(pages.iter().all(|p| node_of(p) == 0), "memory of the thread's own node");
    std::thread::scope(|s| {
        let other = s.spawn(|| {
            NODE.set(1);
            let own = pool.page().expect("2048 fit");
            assert_eq!(node_of(&own), 1);
            drop(pages);
            let misses = pool.stats().misses;
            let more: Vec<_> = (0..100).map(|_| pool.page().expect("2048 fit")).collect();
            assert!(more.iter().all(|p| node_of(p) == 1), "not those that it has just freed");
            assert_eq!(pool.stats().misses, misses + 100);
        });
        other.join().expect("it does not panic");
    });
    let misses = pool.stats().misses;
    let again: Vec<_> = (0..500).map(|_| pool.page().expect("they are kept")).collect();
    assert!(again.iter().all(|p| node_of(p) == 0));
    assert_eq!(pool.stats().misses, misses, "all of them were at home");
    // A thread that moves takes no page along.
    drop(again);
    NODE.set(1);
    let moved: Vec<_> = (0..500).map(|_| pool.page().expect("they are kept")).collect();
    let late = moved.iter().filter(|p| node_of(p) == 0).count();
    assert!(late <= 128, "{late} pages after the first slow path");
    drop(moved);
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn a_node_without_memory_takes_that_of_others() {
    let pool = PagePool::new(PoolConfig { topology: Topology::told(2, || 1), ..config(64 * KIB) });
    let pool = pool.expect("it is small");
    let pages: Vec<_> = (0..16).map(|_| pool.page().expect("8 on each node")).collect();
    pool.page().expect_err("all 16 are in use");
    drop(pages);
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn the_host_s_description_of_its_nodes_is_read() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = directory.path().to_owned();
    let node = |n: u32, cpus: &str| {
        let dir = root.join(format!("node{n}"));
        std::fs::create_dir_all(&dir).expect("a directory of the test's own");
        std::fs::write(dir.join("cpulist"), cpus).expect("a file of the test's own");
    };
    node(0, "0-1,4\n");
    std::fs::create_dir_all(root.join("power")).expect("as Linux has");
    assert_eq!(Topology::read(&root).expect("one node").nodes(), 1);
    node(2, "2-3,5\n");
    node(3, "\n");
    let two = Topology::read(&root).expect("two nodes with CPUs");
    assert_eq!(two.nodes(), 2, "node 3 has memory only");
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 99].map(|cpu| two.node_of(cpu)), [0, 0, 1, 1, 0, 1, 0, 0]);
    let here = PagePool::new(PoolConfig { topology: two, ..config(MIB) }).expect("it is small");
    drop(here.page().expect("whatever CPU this is"));
    node(2, "2-x\n");
    let error = Topology::read(&root).expect_err("x is no CPU");
    assert!(error.to_string().contains("2-x"), "{error}");
    directory.close().expect("the test's own");
    assert!(Topology::read(&root).is_err());
    assert!(Topology::detect().nodes() >= 1);
}

#[test]
fn numbers_out_of_range_are_named_with_their_range() {
    let text = |config| match PagePool::new(config) {
        Err(PoolError::OutOfRange(text)) => text,
        other => panic!("{other:?}"),
    };
    let with = config(MIB);
    assert!(text(PoolConfig { page_size: 5000, ..with.clone() }).contains("4096 to 67108864"));
    assert!(text(PoolConfig { page_size: 2048, ..with.clone() }).contains("4096 to 67108864"));
    assert!(text(PoolConfig { page_size: 128 * MIB, ..with.clone() }).contains("4096 to 67108864"));
    assert!(text(PoolConfig { capacity: 4095, ..with.clone() }).contains(if usize::BITS > 32 {
        "4096 to 1099511627776"
    } else {
        "4096 to 1073741824"
    }));
    assert!(text(PoolConfig { capacity: usize::MAX, ..with.clone() }).contains("4096 to"));
    assert!(text(PoolConfig { magazine: 65, ..with.clone() }).contains("0 to 64"));
    assert!(text(PoolConfig { threads: 5000, ..with.clone() }).contains("0 to 4096"));
    let two = Topology::told(2, || 0);
    assert!(text(PoolConfig { capacity: 4096, topology: two, ..with }).contains("8192 to"));
}

#[test]
fn pages_of_two_mebibytes_are_aligned_and_zero() {
    let pool = PagePool::new(PoolConfig { page_size: 2 * MIB, ..config(16 * MIB) }).expect("it is small");
    let mut pages: Vec<_> = (0..8).map(|_| pool.page().expect("8 fit")).collect();
    for page in &mut pages {
        assert!((page.as_ptr() as usize).is_multiple_of(2 * MIB) && is_zero(page));
        page[2 * MIB - 1] = 1;
    }
    drop(pages);
    assert!(is_zero(&pool.page().expect("8 fit")));
}

#[test]
fn several_pools_of_one_thread_keep_apart() {
    let pools: Vec<_> = (0..9).map(|_| pool(MIB)).collect();
    for turn in 0..50 {
        let mut pages: Vec<_> = pools.iter().map(|p| p.page().expect("256 fit")).collect();
        pages.iter_mut().for_each(|page| page.prefix_mut(1)[0] = turn + 1);
    }
    for pool in &pools {
        let stats = pool.stats();
        assert_eq!((stats.allocs, stats.misses, stats.cached, stats.threads), (50, 1, 4096, 1));
    }
}

#[test]
fn a_threads_slots_in_two_pools_are_not_confused() {
    let pools: Vec<_> = (0..32).map(|_| pool(MIB)).collect();
    let (ours, theirs) = pools.split_at(16);
    // This thread comes first in one half, the other one in the other half.
    ours.iter().for_each(|pool| drop(pool.page().expect("256 fit")));
    std::thread::scope(|s| {
        s.spawn(|| {
            for pool in ours {
                theirs.iter().for_each(|pool| drop(pool.page().expect("256 fit")));
                let page = pool.page().expect("256 fit");
                assert_eq!(pool.stats().misses, 2, "not {page:?} from the other thread's magazine");
            }
        });
    });
}

#[test]
fn statistics_are_readable_while_threads_are_at_work() {
    let pool = pool(2 * MIB);
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let work = || {
            for turn in 0..3000 {
                drop((0..turn % 40).map(|_| pool.page().expect("512 fit")).collect::<Vec<_>>());
            }
        };
        let both = [s.spawn(work), s.spawn(work)];
        s.spawn(|| {
            while !done.load(SeqCst) {
                let stats = pool.stats();
                assert!(stats.in_use <= stats.capacity && stats.cached <= stats.capacity, "{stats:?}");
            }
        });
        both.into_iter().for_each(|t| t.join().expect("it does not panic"));
        done.store(true, SeqCst);
    });
}
