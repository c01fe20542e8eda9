//! Spin locks, with interrupts masked as a kernel would.
use ptarmigan::sync::{AlreadyInstalled, InterruptMask, SpinLock, install_interrupt_mask};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Masked; whether it was already.
    Save(bool),
    /// Masked as before: whether that is masked.
    Restore(bool),
}

thread_local! {
    /// This thread is a CPU: whether its interrupts are masked.
    static MASKED: Cell<bool> = const { Cell::new(false) };
    static EVENTS: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
    /// A further action of `save`.
    static ON_SAVE: Cell<Option<fn()>> = const { Cell::new(None) };
    /// The check in `restore`: whether a lock is free by then.
    static PROBE: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

static MASK: InterruptMask = InterruptMask {
    save: || {
        let before = MASKED.replace(true);
        if let Some(f) = ON_SAVE.get() {
            f();
        }
        EVENTS.with_borrow_mut(|events| events.push(Event::Save(before)));
        usize::from(before)
    },
    restore: |before| {
        if let Some(is_free) = PROBE.get() {
            assert!(is_free(), "interrupts are back and the lock is held");
        }
        MASKED.set(before != 0);
        EVENTS.with_borrow_mut(|events| events.push(Event::Restore(before != 0)));
    },
};

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: 1. and 2. they mask no real interrupt. 3. tests take locks after this only.
        unsafe { install_interrupt_mask(&MASK) }.expect("the first");
    });
}

fn events() -> Vec<Event> {
    EVENTS.take()
}

#[test]
fn interrupts_are_masked_before_the_lock_and_back_after_it() {
    install();
    static LOCK: SpinLock<u32> = SpinLock::new(1);
    static FREE: AtomicBool = AtomicBool::new(false);
    // Another thread gets the lock while this one is in `restore`: so it was released before.
    PROBE.set(Some(|| {
        std::thread::scope(|s| {
            s.spawn(|| {
                install();
                *LOCK.lock() += 1;
                FREE.store(true, SeqCst);
            });
        });
        FREE.load(SeqCst)
    }));
    assert!(!MASKED.get());
    let mut guard = LOCK.lock();
    assert!(MASKED.get());
    assert_eq!(events(), [Event::Save(false)]);
    *guard += 1;
    drop(guard);
    PROBE.set(None);
    assert!(!MASKED.get());
    assert_eq!(events(), [Event::Restore(false)]);
    assert_eq!(*LOCK.lock(), 3);
}

#[test]
fn a_lock_is_waited_for_with_interrupts_masked() {
    install();
    static LOCK: SpinLock<()> = SpinLock::new(());
    let held = LOCK.lock();
    static WAITER_MASKED: AtomicBool = AtomicBool::new(false);
    std::thread::scope(|s| {
        let waiter = s.spawn(|| {
            ON_SAVE.set(Some(|| WAITER_MASKED.store(true, SeqCst)));
            drop(LOCK.lock());
            events()
        });
        let start = Instant::now();
        while !WAITER_MASKED.load(SeqCst) && start.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        let masked = WAITER_MASKED.load(SeqCst);
        drop(held);
        assert!(masked, "it waits for the lock with interrupts as they were");
        assert_eq!(waiter.join().expect("no panic"), [Event::Save(false), Event::Restore(false)]);
    });
}

#[test]
fn locks_nest_and_the_last_one_unmasks() {
    install();
    let (outer, inner) = (SpinLock::new(1), SpinLock::new(2));
    events();
    let a = outer.lock();
    let b = inner.lock();
    drop(b);
    assert!(MASKED.get());
    drop(a);
    assert!(!MASKED.get());
    let expected = [Event::Save(false), Event::Save(true), Event::Restore(true), Event::Restore(false)];
    assert_eq!(events(), expected);
}

#[test]
fn a_panic_releases_the_lock_and_unmasks() {
    install();
    let lock = SpinLock::new(1);
    events();
    let died = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = lock.lock();
        *guard = 2;
        panic!("with the lock held");
    }));
    assert!(died.is_err());
    assert!(!MASKED.get());
    assert_eq!(events(), [Event::Save(false), Event::Restore(false)]);
    assert_eq!(*lock.lock(), 2);
}

#[test]
fn a_second_pair_of_functions_is_refused() {
    install();
    static OTHER: InterruptMask = InterruptMask { save: || unreachable!(), restore: |_| unreachable!() };
    // SAFETY: it is refused.
    assert_eq!(unsafe { install_interrupt_mask(&OTHER) }, Err(AlreadyInstalled));
    drop(SpinLock::new(()).lock());
}

#[test]
fn a_guard_is_shared_where_its_value_may_be() {
    install();
    let lock = SpinLock::new([1u64; 64]);
    let guard = lock.lock();
    let shared = &guard;
    let sums: Vec<u64> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..2).map(|_| s.spawn(move || shared.iter().sum())).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    assert_eq!(sums, [64, 64]);
}
