//! Gives each CPU a value of its own.
//!
//! # Why
//!
//! A handler of an interrupt and the code that it interrupts want the same value. Masking
//! interrupts around each use would cost tens of cycles on a path of forty instructions, and
//! programs cannot. An atomic flag would cost two read-modify-writes. Both run on one CPU, so that
//! a plain store and a compiler fence are enough.
//!
//! ```text
//!  code      busy = 1 ── takes a page ───┐              ┌── puts it ── busy = 0, word (one store)
//!                                        │  interrupt   │
//!  handler                               └─ enter: None ┘  takes the slow path: depot, allocator
//! ```
//!
//! [`PerCpu`] has the rules of re-entry.
use super::{MachineId, Pinned};
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::sync::cell::UnsafeCell;
use core::cell::Cell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

/// One `T` for each CPU of a machine, each on cache lines of its own; beside it an `S` that other
/// CPUs may read, such as counts.
///
/// # Re-entry
///
/// A handler of an interrupt runs on the same CPU as the code it interrupts, and both may want the
/// CPU's value. No interrupts are masked for that. Instead, each slot has a busy flag:
///
/// 1. [`enter`](Self::enter) sets the flag before it reads the slot, and the guard clears it after
///    its last write.
/// 2. A handler that finds the flag set gets `None` and takes a path of its own, without waiting:
///    the interrupted code cannot go on before the handler returns.
/// 3. A handler drops its guards before it returns. So between two steps of the interrupted code a
///    handler runs as a whole, and a plain load and store of the flag suffice.
pub struct PerCpu<T, S = ()> {
    machine: MachineId,
    slots: BootSlice<CpuSlot<T, S>>,
}

#[repr(align(128))]
struct CpuSlot<T, S> {
    state: SlotState,
    shown: S,
    value: UnsafeCell<T>,
}

impl<T, S: Default> CpuSlot<T, S> {
    // A function of its own: not optimised, each copy on the way takes stack, and no function is to
    // take too much of it.
    fn new(value: T) -> Self {
        CpuSlot { state: SlotState::free(), shown: S::default(), value: UnsafeCell::new(value) }
    }
}

/// Whether a slot's value is in use, and a word that belongs to the value: side by side, so that
/// leaving stores both at once. A path of forty instructions is bound by its stores.
#[repr(C, align(8))]
struct SlotState {
    word: Cell<u32>,
    busy: Cell<u32>,
}

impl SlotState {
    const fn free() -> Self {
        SlotState { word: Cell::new(0), busy: Cell::new(0) }
    }

    /// Not in use any more, and the word is `word`: at once, or first the one and then the other,
    /// so that an interrupt that finds the value free finds the word that goes with it.
    #[inline]
    fn leave(&self, word: u32) {
        #[cfg(target_pointer_width = "64")]
        {
            let both = if cfg!(target_endian = "little") { u64::from(word) } else { u64::from(word) << 32 };
            let state: *const SlotState = self;
            // SAFETY: it is 8 bytes, aligned to 8, all of them in cells, so that a shared reference
            // may write there; only the CPU that the slot belongs to reads or writes them.
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

// SAFETY: `enter` gives a reference to a slot's value only to the holder of the pin of that CPU of
// that machine, which exists on one thread at a time (contract of `Pinned::assume`), and only once
// at a time (busy flag, which no other code touches); so values are moved between threads, not
// shared. Only `S` is shared.
unsafe impl<T: Send, S: Sync> Sync for PerCpu<T, S> {}
// SAFETY: it owns its slots.
unsafe impl<T: Send, S: Send> Send for PerCpu<T, S> {}

impl<T, S: Default> PerCpu<T, S> {
    /// Makes the slots of the `cpus` CPUs of `machine`.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if they do not fit.
    pub fn new(
        boot: &mut BootMemory,
        machine: MachineId,
        cpus: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<Self, BootMemoryShort> {
        Self::new_with(boot, machine, cpus, |_, i| Ok(make(i)))
    }

    /// Makes the slots of the `cpus` CPUs of `machine`, whose values need arrays of their own,
    /// which `make` carves from the rest.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if they do not fit, or if `make` says so.
    pub fn new_with(
        boot: &mut BootMemory,
        machine: MachineId,
        cpus: usize,
        mut make: impl FnMut(&mut BootMemory, usize) -> Result<T, BootMemoryShort>,
    ) -> Result<Self, BootMemoryShort> {
        Ok(PerCpu { machine, slots: boot.take_with(cpus, |boot, i| Ok(CpuSlot::new(make(boot, i)?)))? })
    }
}

impl<T, S> PerCpu<T, S> {
    /// Returns the bytes of boot memory that `cpus` CPUs take.
    pub const fn bytes(cpus: usize) -> usize {
        BootMemory::bytes::<CpuSlot<T, S>>(cpus)
    }

    /// Returns the machine whose CPUs these are.
    #[inline]
    pub fn machine(&self) -> MachineId {
        self.machine
    }

    /// Returns the number of CPUs.
    pub fn cpus(&self) -> usize {
        self.slots.len()
    }

    /// Iterates over the values of all CPUs, in order.
    pub(crate) fn each_mut(&mut self) -> impl Iterator<Item = &mut T> {
        // SAFETY: the slot is borrowed for as long as the value, and no other code reaches it.
        self.slots.iter_mut().map(|slot| slot.value.with_mut(|value| unsafe { &mut *value }))
    }

    /// Iterates over the shared parts of the CPUs, in order.
    pub fn shown(&self) -> impl Iterator<Item = &S> {
        self.slots.iter().map(|slot| &slot.shown)
    }

    /// Returns the shared part of the CPU of `pin`; `None` for a pin of another machine.
    #[inline]
    pub fn own_shown(&self, pin: &Pinned<'_>) -> Option<&S> {
        self.slot(pin).map(|slot| &slot.shown)
    }

    /// Returns the shared part of the CPU of `pin`, unchecked.
    ///
    /// # Safety
    ///
    /// 1. The pin must be of the machine that this value was made for, with all its CPUs.
    #[inline(always)]
    pub unsafe fn own_shown_unchecked(&self, pin: &Pinned<'_>) -> &S {
        // SAFETY: 1. passed on.
        unsafe { &self.slot_unchecked(pin).shown }
    }

    /// Takes the value of the CPU of `pin`. Returns `None` for a pin of another machine, and while
    /// the value is in use: the caller is the handler of an interrupt that came in between, and
    /// takes its slow path.
    ///
    /// There is no atomic operation and no masking of interrupts; see [Re-entry](Self#re-entry).
    #[inline(always)]
    pub fn enter<'a>(&'a self, pin: &'a Pinned<'_>) -> Option<Guard<'a, T, S>> {
        Guard::new(self.slot(pin)?)
    }

    /// Takes the value of the CPU of `pin` as [`enter`](Self::enter) does, but does not check the
    /// pin.
    ///
    /// # Safety
    ///
    /// 1. The pin must be of the machine that this value was made for, with all its CPUs.
    #[inline(always)]
    pub unsafe fn enter_unchecked<'a>(&'a self, pin: &'a Pinned<'_>) -> Option<Guard<'a, T, S>> {
        // SAFETY: 1. passed on.
        Guard::new(unsafe { self.slot_unchecked(pin) })
    }

    #[inline]
    fn slot(&self, pin: &Pinned<'_>) -> Option<&CpuSlot<T, S>> {
        if !self.machine.matches(pin.machine()) {
            return None;
        }
        // A value made for fewer CPUs than the machine has: refused as well.
        self.slots.get(pin.cpu().0 as usize)
    }

    /// # Safety
    ///
    /// 1. The pin must be of the machine that this value was made for, with all its CPUs.
    #[inline]
    unsafe fn slot_unchecked(&self, pin: &Pinned<'_>) -> &CpuSlot<T, S> {
        debug_assert!(self.slot(pin).is_some(), "CPU {} of {:?}", pin.cpu().0, pin.machine());
        // SAFETY: the CPU of a pin is below the number of its machine's CPUs (contract of
        // `Pinned::assume`, point 2), and there is a slot for each of them (1.).
        unsafe { self.slots.get_unchecked(pin.cpu().0 as usize) }
    }
}

/// Exclusive use of one CPU's value.
pub struct Guard<'a, T, S = ()> {
    slot: &'a CpuSlot<T, S>,
    word: u32,
    _stay: PhantomData<*const ()>,
}

impl<'a, T, S> Guard<'a, T, S> {
    /// Marks a slot as in use, unless it is.
    #[inline]
    fn new(slot: &'a CpuSlot<T, S>) -> Option<Self> {
        if slot.state.busy.get() != 0 {
            return None;
        }
        slot.state.busy.set(1);
        compiler_fence(Ordering::Acquire);
        Some(Guard { slot, word: slot.state.word.get(), _stay: PhantomData })
    }

    /// Returns the value, and a word that belongs to it, 0 in the beginning. The guard keeps the
    /// word in a register and stores it when it is dropped.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&mut T, &mut u32) {
        // SAFETY: as in `deref`, and `&mut self` makes it exclusive.
        (self.slot.value.with_mut(|p| unsafe { &mut *p }), &mut self.word)
    }

    /// Returns the part that the CPU shares with others.
    #[inline(always)]
    pub fn shown(&self) -> &'a S {
        &self.slot.shown
    }
}

impl<T, S> Deref for Guard<'_, T, S> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `enter` found the slot not in use and marked it; this guard is its only user.
        self.slot.value.with(|p| unsafe { &*p })
    }
}

impl<T, S> DerefMut for Guard<'_, T, S> {
    #[inline]
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

/// A count that one CPU writes and any CPU may read: load and store, no read-modify-write.
///
/// It is as wide as a pointer: on 32-bit machines it wraps at 2^32. No decision depends on it, so
/// models leave it alone.
///
/// # Interrupts
///
/// Where the compiler adds to memory in one instruction, as on x86, no count is lost. Elsewhere an
/// interrupt may come between the load and the store. Only additions of its handler to the same
/// counter meanwhile are lost: an interrupt loses at most the counts of its own handler. Code that
/// wants exact counts, and whose handlers use these counters, masks interrupts around these calls.
/// For a policy that is asked for anyway ([`Policy`](crate::quicklist::Policy)).
#[derive(Default)]
pub struct Counter(AtomicUsize);

impl Counter {
    /// Makes a count of zero.
    pub fn new() -> Self {
        Counter(AtomicUsize::new(0))
    }

    /// Adds `n`. Only the CPU that owns the counter may call it.
    #[inline]
    pub fn add(&self, n: usize) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Returns the count; it may lag behind operations of other CPUs.
    #[inline]
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
