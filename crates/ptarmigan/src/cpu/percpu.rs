//! What each CPU has to itself.
use super::Pinned;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::sync::cell::UnsafeCell;
use core::cell::Cell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

/// One `T` for each CPU, each on cache lines of its own; beside it an `S` that others may look at, such as counts.
pub struct PerCpu<T, S = ()> {
    slots: BootSlice<Slot<T, S>>,
}

#[repr(align(128))]
struct Slot<T, S> {
    state: State,
    shown: S,
    value: UnsafeCell<T>,
}

/// Whether a slot's value is in use, and a word that belongs to the value: side by side, so that whoever leaves stores both at
/// once. What a CPU does on a path of forty instructions is bound by its stores.
#[repr(C, align(8))]
struct State {
    word: Cell<u32>,
    busy: Cell<u32>,
}

impl State {
    const fn free() -> Self {
        State { word: Cell::new(0), busy: Cell::new(0) }
    }

    /// Not in use any more, and the word is `word`: at once, or first the one and then the other, so that an interrupt that
    /// finds the value free finds the word that goes with it.
    #[inline(always)]
    fn leave(&self, word: u32) {
        #[cfg(target_pointer_width = "64")]
        {
            let both = if cfg!(target_endian = "little") { u64::from(word) } else { u64::from(word) << 32 };
            let state: *const State = self;
            // SAFETY: it is 8 bytes, aligned to 8, all of them in cells, so that a shared reference may write there; only the
            // CPU that the slot belongs to reads or writes them.
            unsafe { state.cast::<u64>().cast_mut().write(both) };
        }
        #[cfg(not(target_pointer_width = "64"))]
        {
            self.word.set(word);
            compiler_fence(Ordering::Release);
            self.busy.set(0);
        }
    }
}

// SAFETY: `enter` gives a reference to a slot's value only to the holder of that CPU's `Pinned`, which exists on one
// thread at a time (contract of `Pinned::assume`), and only once at a time (busy flag, which nobody else touches); so
// values are moved between threads, not shared. What is shared is `S`.
unsafe impl<T: Send, S: Sync> Sync for PerCpu<T, S> {}
// SAFETY: it owns its slots.
unsafe impl<T: Send, S: Send> Send for PerCpu<T, S> {}

impl<T, S: Default> PerCpu<T, S> {
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
        let slot = |i| Slot { state: State::free(), shown: S::default(), value: UnsafeCell::new(make(i)) };
        Ok(PerCpu { slots: boot.take(cpus, slot)? })
    }
}

impl<T, S> PerCpu<T, S> {
    /// Bytes of boot memory for `cpus` CPUs.
    pub const fn bytes(cpus: usize) -> usize {
        BootMemory::bytes::<Slot<T, S>>(cpus)
    }

    /// What the CPUs show, in order.
    pub fn shown(&self) -> impl Iterator<Item = &S> {
        self.slots.iter().map(|slot| &slot.shown)
    }

    /// What the CPU that the caller is pinned to shows.
    #[inline(always)]
    pub fn own_shown(&self, pin: &Pinned<'_>) -> &S {
        &self.slot(pin).shown
    }

    #[inline(always)]
    fn slot(&self, pin: &Pinned<'_>) -> &Slot<T, S> {
        debug_assert!((pin.cpu().0 as usize) < self.slots.len());
        // SAFETY: the CPU of a `Pinned` is below the number of CPUs (contract of `Pinned::assume`, point 2).
        unsafe { self.slots.get_unchecked(pin.cpu().0 as usize) }
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
    pub fn enter<'a>(&'a self, pin: &'a Pinned<'_>) -> Option<Guard<'a, T, S>> {
        let slot = self.slot(pin);
        if slot.state.busy.get() != 0 {
            return None;
        }
        slot.state.busy.set(1);
        compiler_fence(Ordering::Acquire);
        Some(Guard { slot, word: slot.state.word.get(), _stay: PhantomData })
    }
}

/// Exclusive use of one CPU's value.
pub struct Guard<'a, T, S = ()> {
    slot: &'a Slot<T, S>,
    word: u32,
    _stay: PhantomData<*const ()>,
}

impl<'a, T, S> Guard<'a, T, S> {
    /// The value, and a word that belongs to it, 0 in the beginning. The guard has it in a register and stores it when it
    /// is dropped.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&mut T, &mut u32) {
        // SAFETY: as in `deref`, and `&mut self` makes it exclusive.
        (self.slot.value.with_mut(|p| unsafe { &mut *p }), &mut self.word)
    }

    /// What the CPU shows to others.
    #[inline(always)]
    pub fn shown(&self) -> &'a S {
        &self.slot.shown
    }
}

impl<T, S> Deref for Guard<'_, T, S> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `enter` found the slot not in use and marked it; this guard is its only user.
        self.slot.value.with(|p| unsafe { &*p })
    }
}

impl<T, S> DerefMut for Guard<'_, T, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.parts().0
    }
}

impl<T, S> Drop for Guard<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::Release);
        self.slot.state.leave(self.word);
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
