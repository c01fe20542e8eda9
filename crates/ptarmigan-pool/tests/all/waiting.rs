//! Futures that wait for a page: order, cancellation, pages that rest, and many tasks at once.
use ptarmigan_pool::{
    Acquire, ArcAcquire, ArcPage, Page, PagePool, PageState, PoolConfig, PoolError, RawPage, StateError,
    Topology,
};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

fn config(pages: usize) -> PoolConfig {
    PoolConfig {
        capacity: pages * PAGE,
        decay: None,
        threads: 8,
        topology: Topology::one(),
        ..PoolConfig::default()
    }
}

fn pool(pages: usize) -> PagePool {
    PagePool::new(config(pages)).expect("the host has that much address space")
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A future with a waker of its own.
struct Waiter<'p, S: PageState = ptarmigan_pool::Zeroed> {
    future: Acquire<'p, S>,
    woken: Arc<Woken>,
}

impl<'p, S: PageState> Waiter<'p, S> {
    fn new(pool: &'p PagePool<S>) -> Self {
        Waiter { future: pool.acquire(), woken: Arc::default() }
    }

    /// One that waits.
    fn waiting(pool: &'p PagePool<S>) -> Self {
        let mut waiter = Waiter::new(pool);
        assert!(waiter.poll().is_pending(), "the pool is full");
        waiter
    }

    fn poll(&mut self) -> Poll<Result<Page<'p, S>, PoolError>> {
        let waker = Waker::from(self.woken.clone());
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(SeqCst) > 0
    }

    fn page(&mut self) -> Page<'p, S> {
        match self.poll() {
            Poll::Ready(Ok(page)) => page,
            other => panic!("a page was due: {other:?}"),
        }
    }
}

#[test]
fn futures_get_pages_in_the_order_in_which_they_began_to_wait() {
    let pool = pool(2);
    let mut out = vec![pool.page().expect("2 fit"), Waiter::new(&pool).page()];
    let mut waiters: Vec<_> = (0..3).map(|_| Waiter::waiting(&pool)).collect();
    assert_eq!((pool.stats().waiting, waiters[0].is_woken()), (3, false));
    for turn in 0..3 {
        drop(out.remove(0));
        let woken: Vec<_> = waiters.iter().map(Waiter::is_woken).collect();
        assert_eq!(woken, [true, turn > 0, turn > 1], "turn {turn}");
        // One that comes now does not overtake them, and one that leaves is not missed.
        assert!(Waiter::new(&pool).poll().is_pending(), "turn {turn}");
        out.push(waiters[turn].page());
    }
    let stats = pool.stats();
    assert_eq!((stats.waiting, stats.passed_on, stats.in_use), (0, 3, 2 * PAGE));
    assert_eq!((stats.allocs, stats.frees), (5, 3), "pages that were passed on are counted as both");
}

#[test]
fn a_future_that_is_dropped_passes_its_turn_on() {
    let pool = pool(1);
    let only = pool.page().expect("it fits");
    let [unwoken, woken] = [(); 2].map(|()| Waiter::waiting(&pool));
    let mut last = Waiter::waiting(&pool);
    drop(unwoken);
    drop(only);
    assert!(woken.is_woken() && !last.is_woken());
    drop(woken);
    assert!(last.is_woken(), "the page that the other did not take is its own");
    drop(last.page());
    assert_eq!((pool.stats().in_use, pool.stats().waiting), (0, 0));
    // The last of all that leaves with a page gives it back.
    let only = pool.page().expect("it came back");
    let woken = Waiter::waiting(&pool);
    drop((only, woken));
    assert_eq!(pool.stats().in_use, 0);
    drop(pool.page().expect("it came back"));
}

#[test]
fn a_future_may_move_to_another_task_which_alone_is_woken() {
    let pool = pool(1);
    let only = pool.page().expect("it fits");
    let mut waiter = Waiter::waiting(&pool);
    let old = std::mem::take(&mut waiter.woken);
    assert!(waiter.poll().is_pending());
    drop(only);
    assert!(waiter.is_woken() && old.0.load(SeqCst) == 0);
}

#[test]
#[should_panic(expected = "polled after it was ready")]
fn a_future_has_one_page() {
    let pool = pool(2);
    let mut waiter = Waiter::new(&pool);
    drop(waiter.page());
    let _ = waiter.poll();
}

/// Runs `work` on a thread that has pages in its magazines and is idle until then, while all others
/// are out and a future waits; says whether the future got one.
fn is_served_by(work: impl FnOnce(&PagePool) + Send) -> bool {
    let pool = pool(64);
    let (rested, is_resting) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let (worked, has_worked) = mpsc::channel();
    let (end, may_end) = mpsc::channel::<()>();
    std::thread::scope(|s| {
        let pool = &pool;
        // Until the test has looked, as a thread that ends serves futures, too.
        let _end = end;
        s.spawn(move || {
            drop((0..8).map(|_| pool.page().expect("64 fit")).collect::<Vec<_>>());
            rested.send(()).expect("the test waits");
            may_go.recv().expect("the test goes on");
            work(pool);
            worked.send(()).expect("the test waits");
            let _ = may_end.recv();
        });
        is_resting.recv().expect("the thread is there");
        let all: Vec<_> = std::iter::from_fn(|| pool.page().ok()).collect();
        assert!((32..64).contains(&all.len()), "some rest with the other thread: {}", 64 - all.len());
        let mut waiter = Waiter::waiting(pool);
        go.send(()).expect("the thread waits");
        has_worked.recv().expect("the thread works");
        let is_woken = waiter.is_woken();
        assert_eq!(waiter.poll().is_ready(), is_woken, "woken if and only if there is a page");
        is_woken
    })
}

#[test]
fn an_idle_threads_pages_serve_a_future_at_its_next_call() {
    assert!(is_served_by(PagePool::hand_over));
    assert!(is_served_by(|pool| drop(pool.page().expect("it has some"))));
    assert!(is_served_by(|pool| {
        pool.trim();
    }));
    assert!(!is_served_by(|_| ()), "otherwise they rest");
}

#[test]
fn a_thread_that_ends_serves_futures_with_its_pages() {
    let pool = pool(64);
    let (rested, is_resting) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    std::thread::scope(|s| {
        let pool = &pool;
        let thread = s.spawn(move || {
            drop((0..8).map(|_| pool.page().expect("64 fit")).collect::<Vec<_>>());
            rested.send(()).expect("the test waits");
            let _ = may_go.recv();
        });
        is_resting.recv().expect("the thread is there");
        let _all: Vec<_> = std::iter::from_fn(|| pool.page().ok()).collect();
        let mut waiter = Waiter::waiting(pool);
        drop(go);
        thread.join().expect("it does not panic");
        assert!(waiter.is_woken());
        drop(waiter.page());
    });
}

#[test]
fn at_least_half_of_the_pages_of_a_full_pool_are_with_its_users() {
    for (pages, threads) in
        [(1, 1), (4, 3), (8, 1), (64, 1), (130, 1), (200, 1), (300, 1), (16, 4), (64, 8), (200, 6), (1000, 3)]
    {
        let pool = pool(pages);
        let all_at_rest = std::sync::Barrier::new(threads + 1);
        let all_seen = std::sync::Barrier::new(threads + 1);
        std::thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(|| {
                    for _ in 0..50 {
                        drop(std::iter::from_fn(|| pool.page().ok()).take(pages).collect::<Vec<_>>());
                    }
                    all_at_rest.wait();
                    all_seen.wait();
                });
            }
            all_at_rest.wait();
            let out = std::iter::from_fn(|| pool.page().ok()).collect::<Vec<_>>().len();
            all_seen.wait();
            assert!(2 * out >= pages, "{out} of {pages} with {threads} idle threads");
        });
    }
}

/// Refuses to make pages on demand.
#[derive(Default)]
struct Refusing(AtomicBool);

// SAFETY: 1. to 3. no page is touched.
unsafe impl PageState for &'static Refusing {
    unsafe fn construct(&self, _: RawPage) -> Result<(), StateError> {
        if self.0.load(SeqCst) { Err("told to refuse".into()) } else { Ok(()) }
    }
    unsafe fn destruct(&self, _: RawPage) {}
    unsafe fn restore(&self, _: RawPage, _: usize) {}
}

#[test]
fn a_future_hears_of_a_constructor_that_fails() {
    let state: &'static Refusing = Box::leak(Box::default());
    let pool = PagePool::with_state(config(64), state).expect("the host has that much");
    let (rested, is_resting) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let (worked, has_worked) = mpsc::channel();
    std::thread::scope(|s| {
        let pool = &pool;
        s.spawn(move || {
            drop((0..8).map(|_| pool.page().expect("64 fit")).collect::<Vec<_>>());
            rested.send(()).expect("the test waits");
            may_go.recv().expect("the test goes on");
            pool.trim();
            worked.send(()).expect("the test waits");
        });
        is_resting.recv().expect("the thread is there");
        let mut all: Vec<_> = std::iter::from_fn(|| pool.page().ok()).collect();
        let mut waiters = [(); 2].map(|()| Waiter::waiting(pool));
        state.0.store(true, SeqCst);
        // The pages go to the host, so a future's has to be made anew.
        go.send(()).expect("the thread waits");
        has_worked.recv().expect("the thread works");
        for waiter in &mut waiters {
            assert!(matches!(waiter.poll(), Poll::Ready(Err(PoolError::State(_)))), "{:?}", pool.stats());
        }
        // A page that is there needs no constructor.
        let mut waiter = Waiter::new(pool);
        assert!(matches!(waiter.poll(), Poll::Ready(Err(PoolError::State(_)))));
        state.0.store(false, SeqCst);
        drop(all.pop());
        drop(Waiter::new(pool).page());
    });
}

#[test]
fn a_waker_that_ends_the_pool_is_called_outside_its_locks() {
    /// Drops its future when it is woken, and the last share of the pool with it.
    #[derive(Default)]
    struct Ends(Mutex<Option<ArcAcquire>>);
    impl Wake for Ends {
        fn wake(self: Arc<Self>) {
            let future = self.0.lock().expect("no thread panics").take();
            drop(future);
        }
    }
    let pool = Arc::new(pool(64));
    let weak = Arc::downgrade(&pool);
    let (rested, is_resting) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let thread = std::thread::spawn({
        let pool = pool.clone();
        move || {
            drop((0..8).map(|_| pool.page().expect("64 fit")).collect::<Vec<_>>());
            drop(pool);
            rested.send(()).expect("the test waits");
            let _ = may_go.recv();
        }
    });
    is_resting.recv().expect("the thread is there");
    while let Ok(page) = pool.page() {
        page.into_raw();
    }
    let ends = Arc::new(Ends::default());
    let mut future = pool.arc_acquire();
    drop(pool);
    let waits = Pin::new(&mut future).poll(&mut Context::from_waker(&Waker::from(ends.clone())));
    assert!(waits.is_pending());
    *ends.0.lock().expect("no thread panics") = Some(future);
    // The thread that ends wakes it.
    drop(go);
    let patience = Instant::now() + Duration::from_secs(20);
    while !thread.is_finished() {
        assert!(Instant::now() < patience, "the thread waits for itself");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(weak.strong_count(), 0, "the pool has ended");
}

/// An executor: tasks in a queue, run by threads until all have ended.
#[derive(Default)]
struct Executor {
    ready: Mutex<VecDeque<Arc<Task>>>,
    is_ready: Condvar,
    left: AtomicUsize,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    work: Mutex<Option<Work>>,
    executor: Arc<Executor>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let executor = self.executor.clone();
        executor.ready.lock().expect("no thread panics").push_back(self);
        executor.is_ready.notify_one();
    }
}

impl Executor {
    fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.left.fetch_add(1, SeqCst);
        Arc::new(Task { work: Mutex::new(Some(Box::pin(work))), executor: self.clone() }).wake();
    }

    /// Runs tasks until all have ended, and calls `idle` before the thread sleeps. False if no task
    /// became ready for a long time.
    fn run(&self, idle: impl Fn()) -> bool {
        while self.left.load(SeqCst) > 0 {
            let next = self.ready.lock().expect("no thread panics").pop_front();
            let Some(task) = next else {
                idle();
                let ready = self.ready.lock().expect("no thread panics");
                let since = Instant::now();
                if ready.is_empty() {
                    drop(self.is_ready.wait_timeout(ready, Duration::from_secs(10)));
                }
                if since.elapsed() >= Duration::from_secs(10) && self.left.load(SeqCst) > 0 {
                    return false;
                }
                continue;
            };
            let mut work = task.work.lock().expect("no thread panics");
            let waker = Waker::from(task.clone());
            let Some(future) = work.as_mut() else { continue };
            if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                *work = None;
                if self.left.fetch_sub(1, SeqCst) == 1 {
                    self.is_ready.notify_all();
                }
            }
        }
        true
    }
}

/// Ready the second time.
#[derive(Default)]
struct Yield(bool);

impl Future for Yield {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Ready when either is; the other is dropped.
struct Race(ArcAcquire, Yield);

impl Future for Race {
    type Output = Option<ArcPage>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ArcPage>> {
        if let Poll::Ready(page) = Pin::new(&mut self.0).poll(cx) {
            return Poll::Ready(Some(page.expect("a future does not find the pool full")));
        }
        Pin::new(&mut self.1).poll(cx).map(|()| None)
    }
}

/// Tasks that take pages, keep them over turns, and give up waiting; each page has one owner at a
/// time and is zero.
fn stress(pages: usize, threads: usize, tasks: usize, turns: usize) {
    let pool = Arc::new(pool(pages));
    let owned: Arc<Vec<AtomicBool>> = Arc::new((0..pages).map(|_| AtomicBool::new(false)).collect());
    let executor = Arc::new(Executor::default());
    for task in 0..tasks {
        let (pool, owned) = (pool.clone(), owned.clone());
        executor.spawn(async move {
            for turn in 0..turns {
                let page = match (task + turn) % 4 {
                    0 => Race(pool.arc_acquire(), Yield::default()).await,
                    _ => Some(pool.arc_acquire().await.expect("a future does not find the pool full")),
                };
                let Some(mut page) = page else { continue };
                assert!(!owned[page.index()].swap(true, SeqCst), "it has two owners");
                assert!(page.iter().all(|b| *b == 0));
                page.prefix_mut(8).fill(0xff);
                for _ in 0..turn % 3 {
                    Yield::default().await;
                }
                owned[page.index()].store(false, SeqCst);
            }
        });
    }
    std::thread::scope(|s| {
        let run = || assert!(executor.run(|| pool.hand_over()), "no task is ready: {:?}", pool.stats());
        (0..threads).for_each(|_| drop(s.spawn(run)));
    });
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.waiting), (0, 0), "{stats:?}");
    assert_eq!(stats.allocs, stats.frees);
    assert!(tasks <= pages || stats.passed_on > 0, "{stats:?}");
}

#[test]
fn many_tasks_share_few_pages_without_starvation() {
    stress(1, 3, 16, 300);
    stress(5, 4, 40, 300);
    stress(40, 3, 64, 300);
    stress(64, 2, 64, 300);
}

#[test]
fn one_thread_runs_tasks_that_wait_for_each_other() {
    stress(1, 1, 8, 200);
    stress(20, 1, 50, 100);
}

/// A waker that unwinds.
struct Unwinds;

impl Wake for Unwinds {
    fn wake(self: Arc<Self>) {
        panic!("the waker unwinds");
    }
}

#[test]
fn a_waker_that_unwinds_keeps_no_other_future_from_being_woken() {
    let pool = pool(8);
    let (rests, resting) = mpsc::channel();
    let (go, going) = mpsc::channel();
    std::thread::scope(|scope| {
        // Three pages rest with another thread, until two futures wait.
        let other = scope.spawn({
            let pool = &pool;
            move || {
                drop((0..3).map(|_| pool.page().unwrap()).collect::<Vec<_>>());
                rests.send(()).unwrap();
                going.recv().unwrap();
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.hand_over())).is_err()
            }
        });
        resting.recv().unwrap();
        let held: Vec<_> = std::iter::from_fn(|| pool.page().ok()).collect();
        let mut first = pool.acquire();
        let unwinds = Waker::from(Arc::new(Unwinds));
        assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&unwinds)).is_pending());
        let mut second = Waiter::waiting(&pool);
        go.send(()).unwrap();
        assert!(other.join().unwrap(), "the panic goes on");
        assert_eq!(second.woken.0.load(SeqCst), 1);
        assert!(second.poll().is_ready());
        drop((held, first, second));
    });
    assert_eq!(pool.stats().in_use, 0);
}
