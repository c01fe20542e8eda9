//! Atomics for models: loom's, with sequentially consistent accesses as the language defines them.
//!
//! loom takes `SeqCst` accesses for `AcqRel` ones (its fences are right), and so lets both sides of
//! "store mine, then look at yours" miss each other, on which activation, the space lock and the
//! readers rely. One rule is missing: a sequentially consistent load reads no store that is older
//! than one which an earlier sequentially consistent access to the same place wrote or read. No
//! other access is made stronger: with either access of such a pair relaxed, the model still finds
//! both sides missing each other.
//!
//! The limits of this: a relaxed store is made as a swap (see `store`), which carries on the
//! release sequence that it would end; and an order that rests on a fence on one side and a
//! sequentially consistent access on the other is not seen, which errs on the safe side.
//!
//! So a value is kept together with the number of the store that wrote it; the order in which
//! stores were executed is noted beside. A load that came upon a store that is too old takes the
//! newest instead, which any load may read.
use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::cell::RefCell;
use std::vec::Vec;

/// Bits of the number of a store: a number comes again after so many stores, far more than one
/// execution of a model makes.
const NUMBER: u32 = 20;

struct Stores {
    next: u64,
    executed: u64,
    /// When each store was executed, by its number.
    when: Vec<u64>,
}

std::thread_local! {
    // An execution of a model, all its threads included, runs on one thread of the host.
    static STORES: RefCell<Stores> =
        RefCell::new(Stores { next: 0, executed: 0, when: std::vec![0; 1 << NUMBER] });
}

/// Gives `value` a number, for a store to come.
fn numbered(value: i64) -> u64 {
    assert!(value << NUMBER >> NUMBER == value, "{value:#x} is too wide for a model");
    STORES.with_borrow_mut(|s| {
        s.next = (s.next + 1) % (1 << NUMBER);
        (value << NUMBER) as u64 | s.next
    })
}

/// The store of `raw` has just been executed.
fn executed(raw: u64) {
    STORES.with_borrow_mut(|s| {
        s.executed += 1;
        let now = s.executed;
        s.when[raw as usize % (1 << NUMBER)] = now;
    });
}

/// When the store of `raw` was executed.
fn when(raw: u64) -> u64 {
    STORES.with_borrow(|s| s.when[raw as usize % (1 << NUMBER)])
}

fn value(raw: u64) -> i64 {
    raw as i64 >> NUMBER
}

#[derive(Debug)]
struct Atomic {
    inner: loom::sync::atomic::AtomicU64,
    /// The last store: a guess for read-modify-writes, which are made of compare-and-exchange.
    last: Cell<u64>,
    /// The last store that a sequentially consistent access wrote or read was executed then.
    floor: Cell<u64>,
}

// SAFETY: an execution of a model runs on one thread of the host, and is interrupted inside of
// `inner` only.
unsafe impl Sync for Atomic {}

impl Atomic {
    fn new(to: i64) -> Self {
        let raw = numbered(to);
        executed(raw);
        let inner = loom::sync::atomic::AtomicU64::new(raw);
        Atomic { inner, last: Cell::new(raw), floor: Cell::new(0) }
    }

    fn ordered(&self, raw: u64, order: Ordering) {
        if order == Ordering::SeqCst {
            self.floor.set(self.floor.get().max(when(raw)));
        }
    }

    fn load(&self, order: Ordering) -> i64 {
        let mut raw = if order == Ordering::SeqCst && self.floor.get() == when(self.last.get()) {
            self.newest(Ordering::Acquire)
        } else {
            self.inner.load(order)
        };
        if order == Ordering::SeqCst {
            if when(raw) < self.floor.get() {
                raw = self.newest(Ordering::Acquire);
            }
            self.ordered(raw, order);
        }
        value(raw)
    }

    /// Reads the newest store, which any load may read: as a read-modify-write that fails.
    fn newest(&self, order: Ordering) -> u64 {
        // No store has this number with this value.
        let nothing = !self.last.get();
        match self.inner.compare_exchange(nothing, nothing, order, order) {
            Ok(found) | Err(found) => found,
        }
    }

    fn store(&self, to: i64, order: Ordering) {
        // loom lets a store and a read-modify-write that came before it be in either order, so that
        // a lock that was released stays taken for a thread that tried in between. As a swap, each
        // store follows those executed before.
        self.swap(to, order);
    }

    fn stored(&self, raw: u64, order: Ordering) {
        executed(raw);
        self.last.set(raw);
        self.ordered(raw, order);
    }

    fn swap(&self, to: i64, order: Ordering) -> i64 {
        let raw = numbered(to);
        let old = self.inner.swap(raw, order);
        self.stored(raw, order);
        value(old)
    }

    /// Replaces the value by the result of `change`, if it has one; returns the former value, and
    /// whether it was replaced.
    fn update(
        &self,
        success: Ordering,
        failure: Ordering,
        change: impl Fn(i64) -> Option<i64>,
    ) -> Result<i64, i64> {
        let mut guess = self.last.get();
        loop {
            let Some(to) = change(value(guess)) else {
                guess = self.newest(failure);
                if change(value(guess)).is_none() {
                    return Err(value(guess));
                }
                continue;
            };
            let raw = numbered(to);
            // A guess that turns out wrong reads no value that is used.
            match self.inner.compare_exchange(guess, raw, success, Ordering::Relaxed) {
                Ok(old) => {
                    self.stored(raw, success);
                    return Ok(value(old));
                }
                Err(found) => guess = found,
            }
        }
    }

    fn modify(&self, order: Ordering, change: impl Fn(i64) -> i64) -> i64 {
        match self.update(order, Ordering::Relaxed, |v| Some(change(v))) {
            Ok(old) | Err(old) => old,
        }
    }
}

macro_rules! integers {
    ($($name:ident $type:ty;)*) => { $(
        #[doc = concat!("A `", stringify!($type), "` in a model.")]
        #[derive(Debug)]
        pub struct $name(Atomic);

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }

        #[allow(missing_docs, dead_code, reason = "the interface of `core`, as far as it is used")]
        impl $name {
            fn wide(v: $type) -> i64 {
                v as i64
            }
            fn narrow(v: i64) -> $type {
                v as $type
            }
            pub fn new(v: $type) -> Self {
                $name(Atomic::new(Self::wide(v)))
            }
            pub fn load(&self, order: Ordering) -> $type {
                Self::narrow(self.0.load(order))
            }
            pub fn store(&self, v: $type, order: Ordering) {
                self.0.store(Self::wide(v), order);
            }
            pub fn swap(&self, v: $type, order: Ordering) -> $type {
                Self::narrow(self.0.swap(Self::wide(v), order))
            }
            pub fn fetch_add(&self, v: $type, order: Ordering) -> $type {
                Self::narrow(self.0.modify(order, |old| Self::wide(Self::narrow(old).wrapping_add(v))))
            }
            pub fn fetch_sub(&self, v: $type, order: Ordering) -> $type {
                Self::narrow(self.0.modify(order, |old| Self::wide(Self::narrow(old).wrapping_sub(v))))
            }
            pub fn fetch_or(&self, v: $type, order: Ordering) -> $type {
                Self::narrow(self.0.modify(order, |old| Self::wide(Self::narrow(old) | v)))
            }
            pub fn fetch_and(&self, v: $type, order: Ordering) -> $type {
                Self::narrow(self.0.modify(order, |old| Self::wide(Self::narrow(old) & v)))
            }
            pub fn compare_exchange(
                &self,
                current: $type,
                new: $type,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$type, $type> {
                let change = |old| (Self::narrow(old) == current).then_some(Self::wide(new));
                self.0.update(success, failure, change).map(Self::narrow).map_err(Self::narrow)
            }
        }
    )* };
}
integers! {
    AtomicU8 u8;
    AtomicU16 u16;
    AtomicU32 u32;
    AtomicU64 u64;
    AtomicUsize usize;
}

/// A `bool` in a model.
#[derive(Debug)]
pub struct AtomicBool(Atomic);

#[allow(missing_docs, reason = "the interface of `core`, as far as it is used")]
impl AtomicBool {
    pub fn new(v: bool) -> Self {
        AtomicBool(Atomic::new(v.into()))
    }
    pub fn load(&self, order: Ordering) -> bool {
        self.0.load(order) != 0
    }
    pub fn store(&self, v: bool, order: Ordering) {
        self.0.store(v.into(), order);
    }
    pub fn swap(&self, v: bool, order: Ordering) -> bool {
        self.0.swap(v.into(), order) != 0
    }
}

/// loom's fence.
pub fn fence(order: Ordering) {
    loom::sync::atomic::fence(order);
}
