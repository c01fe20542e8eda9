//! The pool of pages for programs: code of the caller unwinds or fails at the k-th pass, or the
//! pool is full at the k-th page. No page is lost, none is handed out twice.
use crate::child;
use ptarmigan_pool::{
    MetricsHook, PagePool, PageState, PoolConfig, PoolError, RawPage, StateError, Topology,
};
use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Where a call fails or unwinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    PageConstruct,
    PageDestruct,
    PageRestore,
    Hook,
    Here,
}

thread_local! {
    /// The point, and how many passes of it are left.
    static ARMED: Cell<Option<(Point, usize)>> = const { Cell::new(None) };
}

/// Passes a point; whether this is the time to fail.
fn fails(point: Point) -> bool {
    let Some((_, left)) = ARMED.get().filter(|(armed, _)| *armed == point) else { return false };
    ARMED.set((left > 1).then_some((point, left - 1)));
    left == 1
}

/// Runs `scenario` for every k, the k-th pass of the point in which fails, until no call comes to a
/// k-th pass. Returns how many times a call failed.
fn for_every_k_at(point: Point, scenario: impl Fn(&mut dyn FnMut(&mut dyn FnMut()))) -> usize {
    let mut k = 1;
    loop {
        let failed = Cell::new(false);
        scenario(&mut |call| {
            ARMED.set(Some((point, k)));
            let _ = catch_unwind(AssertUnwindSafe(call));
            failed.set(failed.get() | ARMED.take().is_none());
        });
        if !failed.get() {
            return k - 1;
        }
        k += 1;
    }
}

const SIZE: usize = 4096;
/// Pages of the pool.
const PAGES: usize = 24;
const MARK: u64 = 0x5e_ed0f_9a9e;

/// Marks pages, and may fail or unwind.
#[derive(Default)]
struct Marks {
    made: AtomicUsize,
    unmade: AtomicUsize,
}

thread_local! {
    /// The constructor refuses where it would have unwound.
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: 1. and 3. only the first bytes of the page are touched, during the calls. 2. its
// protection never changes.
unsafe impl PageState for &'static Marks {
    unsafe fn construct(&self, page: RawPage) -> Result<(), StateError> {
        let word = page.base().cast::<u64>();
        // SAFETY: the page is readable, writable, aligned and ours during the call.
        unsafe {
            assert_eq!(word.read(), 0, "a page comes zero from the host");
            word.write(1);
        }
        if fails(Point::PageConstruct) {
            assert!(REFUSES.get(), "the constructor fails");
            return Err("the constructor refuses".into());
        }
        // SAFETY: as above.
        unsafe { word.write(MARK) };
        self.made.fetch_add(1, Relaxed);
        Ok(())
    }
    unsafe fn destruct(&self, page: RawPage) {
        // SAFETY: 1. and 2. by the caller.
        assert!(unsafe { self.holds(page) });
        self.unmade.fetch_add(1, Relaxed);
        assert!(!fails(Point::PageDestruct), "the destructor fails");
    }
    unsafe fn restore(&self, page: RawPage, _: usize) {
        assert!(!fails(Point::PageRestore), "a page cannot be restored");
        // SAFETY: the page is the caller's.
        unsafe { page.base().cast::<u64>().write(MARK) };
    }
    unsafe fn holds(&self, page: RawPage) -> bool {
        // SAFETY: as above.
        unsafe { page.base().cast::<u64>().read() == MARK }
    }
}

fn config() -> PoolConfig {
    let hook = MetricsHook::new(|_| assert!(!fails(Point::Hook), "the hook fails"));
    let topology = Topology::told(2, || {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        assert!(!fails(Point::Here), "the topology does not know");
        CALLS.fetch_add(1, Relaxed) % 2
    });
    let capacity = PAGES * SIZE;
    PoolConfig { capacity, hook: Some(hook), topology, ..PoolConfig::default() }
}

/// Takes pages, gives some back, here and on another thread, and has memory go back to the host.
fn work(pool: &PagePool<&'static Marks>) {
    for n in [3, PAGES + 1, 7] {
        let pages: Vec<_> = (0..n).map_while(|_| pool.page().ok()).collect();
        let at: HashSet<_> = pages.iter().map(|page| page.raw().base()).collect();
        assert_eq!(at.len(), pages.len(), "a page is handed out twice");
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for (n, page) in pages.into_iter().enumerate() {
            if n % 3 == 0 { there.push(page) } else { here.push(page) }
        }
        here.into_iter().rev().for_each(drop);
        std::thread::scope(|s| s.spawn(move || drop(there)).join().unwrap());
        pool.trim();
    }
}

/// Runs [`work`] with a failure at the k-th pass of a point, for every k. `out` is how many pages
/// that may keep out of the pool.
fn for_every_k(point: Point, out: usize) -> usize {
    for_every_k_at(point, |attempt| {
        let marks: &'static Marks = Box::leak(Box::default());
        let pool = PagePool::with_state(config(), marks).unwrap();
        attempt(&mut || work(&pool));
        work(&pool);
        let missing = pool.stats().in_use / SIZE;
        assert!(missing <= out, "{missing} pages are out");
        let all: Vec<_> = (0..PAGES - missing).map(|_| pool.page().unwrap()).collect();
        let at: HashSet<_> = all.iter().map(|page| page.raw().base()).collect();
        assert_eq!(at.len(), all.len(), "a page is handed out twice");
        assert!(matches!(pool.page().err(), Some(PoolError::Full { .. })));
        drop(all);
        drop(pool);
        assert_eq!(marks.made.load(Relaxed), marks.unmade.load(Relaxed) + missing);
    })
}

#[test]
fn a_pool_loses_no_page_when_callers_fail_or_unwind() {
    for refuses in [false, true] {
        REFUSES.set(refuses);
        assert!(for_every_k(Point::PageConstruct, 0) > 20);
    }
    assert!(for_every_k(Point::PageDestruct, 0) > 20);
    assert!(for_every_k(Point::Hook, 0) > 20, "a hook that unwinds is heard of by nobody");
    assert!(for_every_k(Point::Here, 0) > 20);
    // A page of which nobody knows the state stays out.
    assert!(for_every_k(Point::PageRestore, 1) > 20);
}

/// The host refuses memory from the k-th page on.
#[test]
fn a_pool_whose_host_takes_no_memory_back_loses_no_page() {
    if child::passes("unwinding::a_pool_whose_host_takes_no_memory_back_loses_no_page") {
        return;
    }
    let marks: &'static Marks = Box::leak(Box::default());
    let pool = PagePool::with_state(config(), marks).unwrap();
    work(&pool);
    child::deny(libc::SYS_madvise, None, libc::ENOMEM);
    work(&pool);
    let again = catch_unwind(AssertUnwindSafe(|| work(&pool)));
    assert!(again.is_ok());
    assert_eq!(pool.stats().in_use, 0);
    assert_eq!((0..PAGES).map_while(|_| pool.page().ok()).collect::<Vec<_>>().len(), PAGES);
    drop(pool);
    assert_eq!(marks.made.load(Relaxed), marks.unmade.load(Relaxed));
}
