//! What each CPU has to itself.
use super::Pinned;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::sync::cell::UnsafeCell;
use core::cell::Cell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

/// One `T` for each CPU, each on cache lines of its own.
pub struct PerCpu<T> {
    slots: BootSlice<Slot<T>>,
}

#[repr(align(128))]
struct Slot<T> {
    busy: Cell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: `enter` gives a reference to a slot only to the holder of that CPU's `Pinned`, which exists on one
// thread at a time (contract of `Pinned::assume`), and only once at a time (busy flag); so slots are moved
// between threads, not shared.
unsafe impl<T: Send> Sync for PerCpu<T> {}
// SAFETY: it owns its slots.
unsafe impl<T: Send> Send for PerCpu<T> {}

impl<T> PerCpu<T> {
    /// Makes the slots of `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if they do not fit.
    pub fn new(
        boot: &mut BootMemory,
        cpus: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<Self, BootMemoryShort> {
        Ok(PerCpu {
            slots: boot.take(cpus, |i| Slot { busy: Cell::new(false), value: UnsafeCell::new(make(i)) })?,
        })
    }

    /// Bytes of boot memory for `cpus` CPUs.
    pub const fn bytes(cpus: usize) -> usize {
        BootMemory::bytes::<Slot<T>>(cpus)
    }

    /// How many CPUs there are.
    pub fn cpus(&self) -> usize {
        self.slots.len()
    }

    /// The value of the CPU that the caller is pinned to; `None` while it is in use already: an interrupt came in
    /// while the CPU was at work on it, and must take the slow path.
    ///
    /// No atomic operation and no interrupt masking: a plain flag and compiler fences, as the interrupt runs on
    /// the same CPU and returns before the interrupted code goes on.
    #[inline(always)]
    pub fn enter<'a>(&'a self, pin: &'a Pinned<'_>) -> Option<Guard<'a, T>> {
        debug_assert!((pin.cpu().0 as usize) < self.slots.len());
        // SAFETY: the CPU of a `Pinned` is below the number of CPUs (contract of `Pinned::assume`, point 2).
        let slot = unsafe { self.slots.get_unchecked(pin.cpu().0 as usize) };
        if slot.busy.get() {
            return None;
        }
        slot.busy.set(true);
        compiler_fence(Ordering::Acquire);
        Some(Guard { slot, _stay: PhantomData })
    }
}

/// Exclusive use of one CPU's value.
pub struct Guard<'a, T> {
    slot: &'a Slot<T>,
    _stay: PhantomData<*const ()>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `enter` found the slot not in use and marked it; this guard is its only user.
        self.slot.value.with(|p| unsafe { &*p })
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes it exclusive.
        self.slot.value.with_mut(|p| unsafe { &mut *p })
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::Release);
        self.slot.busy.set(false);
    }
}

/// A count that one CPU writes and anybody may read: load and store, no read-modify-write.
///
/// As wide as a pointer: on 32-bit machines it wraps at 2^32. Nothing is decided by it, so models leave it alone.
#[derive(Default)]
pub struct Counter(AtomicUsize);

impl Counter {
    /// Zero.
    pub fn new() -> Self {
        Counter(AtomicUsize::new(0))
    }

    /// Adds `n`. Only the CPU that owns the counter may call it.
    #[inline(always)]
    pub fn add(&self, n: usize) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// The count; may lag behind what other CPUs are doing this instant.
    #[inline(always)]
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
