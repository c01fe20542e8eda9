//! Pages and memory that kernels and devices hold: raw pages, regions, prefixes.
use ptarmigan_pool::{PagePool, PoolConfig, PoolError, RawArcPage, Topology};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;

const PAGE: usize = 64 << 10;

fn config(pages: usize) -> PoolConfig {
    PoolConfig {
        capacity: pages * PAGE,
        page_size: PAGE,
        decay: None,
        topology: Topology::one(),
        ..PoolConfig::default()
    }
}

fn pool(pages: usize) -> Arc<PagePool> {
    Arc::new(PagePool::new(config(pages)).expect("the host has that much address space"))
}

/// Whether the host has memory in the middle of the page at `base`. Debug builds read the first
/// 4 KiB again after it went back.
fn is_resident(base: NonNull<u8>) -> bool {
    let file = std::fs::File::open("/proc/self/pagemap").expect("proc is mounted");
    let mut entry = [0; 8];
    file.read_exact_at(&mut entry, ((base.addr().get() + PAGE / 2) as u64 / 4096) * 8)
        .expect("one entry a page");
    u64::from_le_bytes(entry) >> 63 == 1
}

/// Writes as a kernel would, to all of what it was lent.
fn write(buffer: NonNull<[u8]>, byte: u8) {
    // SAFETY: the tests lend it, and its memory is there.
    unsafe { buffer.cast::<u8>().write_bytes(byte, buffer.len()) };
}

#[test]
fn a_raw_page_keeps_the_memory_after_all_other_users() {
    let pool = pool(4);
    let weak = Arc::downgrade(&pool);
    let raw = pool.arc_page().expect("4 fit").into_raw_prefix(1500);
    assert_eq!(pool.stats().in_use, PAGE, "it has not been given back");
    drop(pool);
    write(raw.buffer(), 7);
    let raw = std::thread::spawn(|| raw).join().expect("it may go to any thread");
    // SAFETY: the writer has finished, and wrote to the buffer only.
    let page = unsafe { raw.into_page() };
    assert_eq!((page.dirty(), page[1499], page[1500]), (1500, 7, 0));
    let pool = weak.upgrade().expect("the page has a share");
    drop(page);
    assert_eq!(pool.stats().in_use, 0);
    assert!(pool.page().expect("4 fit").iter().all(|b| *b == 0), "it was cleared as far as it was lent");
    drop(pool);
    assert_eq!(weak.strong_count(), 0, "the share was given up once");
}

#[test]
fn a_raw_page_that_is_dropped_keeps_page_and_pool() {
    let pool = pool(1);
    let weak = Arc::downgrade(&pool);
    let raw = pool.arc_page().expect("it fits").into_raw();
    let buffer = raw.buffer();
    assert_eq!(buffer.len(), PAGE);
    drop(raw);
    assert!(matches!(pool.page().err(), Some(PoolError::Full { .. })), "no other gets it");
    drop(pool);
    assert_eq!(weak.strong_count(), 1);
    write(buffer, 1); // a completion that comes late
}

#[test]
fn a_raw_page_remembers_how_far_the_page_was_lent_before() {
    let pool = pool(1);
    let mut page = pool.arc_page().expect("it fits");
    page.prefix_mut(3000).fill(1);
    let raw = page.into_raw_prefix(10);
    assert_eq!((raw.buffer().len(), raw.index()), (10, 0));
    // SAFETY: no foreign code has it.
    let mut page = unsafe { raw.into_page() };
    assert_eq!(page.dirty(), 3000);
    assert_eq!(page.prefix_ptr(PAGE + 1).len(), PAGE, "no more than there is");
    assert_eq!(page.dirty(), PAGE);
    drop(page);
    assert!(pool.page().expect("it fits").iter().all(|b| *b == 0));
}

#[test]
fn a_raw_page_comes_back_from_one_word() {
    let pool = pool(2);
    let page = pool.arc_page().expect("2 fit");
    let (base, index) = (page.raw().base(), page.index());
    let word = page.into_raw_prefix(100).into_base();
    assert_eq!((word, Arc::strong_count(&pool)), (base, 2));
    // SAFETY: 1. and 2. it came from `into_base` of a page of this pool, just now.
    let raw = unsafe { RawArcPage::from_base(&pool, word) };
    assert_eq!((raw.index(), raw.buffer().len()), (index, PAGE), "a word does not say how much was lent");
    // SAFETY: no foreign code has it.
    drop(unsafe { raw.into_page() });
    assert_eq!((Arc::strong_count(&pool), pool.stats().in_use), (1, 0));
}

#[test]
fn a_shared_stack_that_is_raw_is_known_as_kept() {
    let pool = Arc::new(PagePool::stacks(PoolConfig::stacks(64 << 10, 4)).expect("they fit"));
    let raw = pool.arc_page().expect("4 fit").into_raw();
    let base = raw.raw().base();
    // SAFETY: no foreign code has it.
    let stack = unsafe { raw.into_page() };
    // SAFETY: 1. no code uses it.
    let refused = unsafe { pool.try_page_from_raw(base) }.err();
    assert!(matches!(refused, Some(PoolError::Address(_))), "it is no address any more: {refused:?}");
    drop(stack);
}

#[test]
fn an_addresss_memory_outlives_its_pool_and_the_rest_is_freed() {
    let pool = PagePool::new(config(4)).expect("the host has that much address space");
    let kept = pool.page().expect("4 fit").into_raw().base();
    let mut other = pool.page().expect("4 fit");
    let rests = other.raw().base();
    other.fill(1);
    drop(other);
    write(NonNull::slice_from_raw_parts(kept, PAGE), 3);
    drop(pool);
    // SAFETY: the memory stays until the process ends.
    assert_eq!(unsafe { kept.add(PAGE - 1).read() }, 3);
    assert!(is_resident(kept) && !is_resident(rests));
}

#[test]
fn a_page_s_index_is_its_place_in_the_region() {
    let guarded = PoolConfig { guard: 4096, ..config(10) };
    let on_nodes = PoolConfig { topology: Topology::told(2, || 1), ..config(10) };
    for (config, len) in
        [(config(10), 10 * PAGE), (guarded, 10 * (PAGE + 4096) - 4096), (on_nodes, 10 * PAGE)]
    {
        let pool = PagePool::new(config).expect("the host has that much address space");
        let region = pool.region().expect("this is no child");
        let pages: Vec<_> = (0..10).map(|_| pool.page().expect("10 fit")).collect();
        let mut seen: Vec<_> = pages.iter().map(|page| page.index()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        for page in &pages {
            let there = region.page(page.index()).expect("it is one of the pool's");
            assert_eq!((there.base(), there.size()), (page.raw().base(), PAGE));
            let offset = there.base().addr().get() - region.base().addr().get();
            assert!(offset + PAGE <= region.len());
        }
        assert_eq!((region.len(), region.pages().len()), (len, 10));
        assert!(region.page(10).is_none() && region.page(usize::MAX).is_none());
    }
}

#[test]
fn no_memory_goes_back_while_a_region_exists() {
    let pool = pool(4);
    let regions = [pool.arc_region(), pool.arc_region()].map(|region| region.expect("this is no child"));
    let mut page = pool.page().expect("4 fit");
    let base = page.raw().base();
    page.fill(1);
    drop(page);
    let later = std::time::Instant::now() + std::time::Duration::from_secs(1000);
    for region in regions {
        assert_eq!((pool.trim(), pool.decay(later)), (0, 0));
        assert!(is_resident(base));
        drop(region);
    }
    assert_eq!(pool.trim(), PAGE);
    assert!(!is_resident(base));
}

#[test]
fn a_pool_without_budget_clears_pages_during_a_region() {
    let pool = PagePool::new(PoolConfig { keep: 0, ..config(1) }).expect("it is small");
    let region = pool.region().expect("this is no child");
    for turn in 0..3 {
        let mut page = pool.page().expect("it fits");
        assert!(page.iter().all(|b| *b == 0), "turn {turn}");
        page.fill(1);
        let base = page.raw().base();
        drop(page);
        assert!(is_resident(base), "turn {turn}");
    }
    assert_eq!((pool.stats().returned, pool.stats().cached), (0, 0));
    drop(region);
    drop(pool.page());
    assert_eq!(pool.stats().returned, PAGE);
}

#[test]
fn a_region_that_is_forgotten_keeps_the_memory() {
    let pool = PagePool::new(config(2)).expect("it is small");
    let region = pool.region().expect("this is no child");
    let base = region.base();
    std::mem::forget(region);
    write(pool.page().expect("2 fit").prefix_ptr(1), 1);
    drop(pool);
    // SAFETY: the memory stays until the process ends.
    assert_eq!(unsafe { base.read() }, 0);
    // The kernel may still write there.
    write(NonNull::slice_from_raw_parts(base, 2 * PAGE), 1);
}
