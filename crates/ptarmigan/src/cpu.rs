//! Which CPU and node am I on, the proof that I stay there, and what each CPU has to itself.
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

/// The number of a CPU, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u16);

/// The number of a NUMA node, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u8);

/// CPUs that a [`CpuMask`] can name.
pub const MAX_CPUS: usize = 256;

/// Proof that the holder runs on this CPU and stays there while it is borrowed.
///
/// A kernel makes one by disabling preemption; hosted, a thread makes one by owning a CPU slot. It proves *where*,
/// not *alone*: an interrupt may come in between and use the same CPU, see [`PerCpu::enter`]. It is neither
/// `Send` nor `Sync`.
pub struct Pinned<'a> {
    cpu: CpuId,
    node: NodeId,
    _stay: PhantomData<(&'a (), *const ())>,
}

impl Pinned<'_> {
    /// Claims that the caller runs on `cpu`, which belongs to `node`.
    ///
    /// # Safety
    ///
    /// 1. While the result exists, the code that holds it is the only thread of execution on this CPU number,
    ///    interrupts that return before it goes on excepted.
    /// 2. `cpu` is below the number of CPUs of everything in this library that it is used with and that was made for
    ///    a number of CPUs.
    #[inline(always)]
    pub unsafe fn assume(cpu: CpuId, node: NodeId) -> Self {
        Pinned { cpu, node, _stay: PhantomData }
    }

    /// The CPU.
    #[inline(always)]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// The node the CPU belongs to.
    #[inline(always)]
    pub fn node(&self) -> NodeId {
        self.node
    }
}

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
        debug_assert!((pin.cpu.0 as usize) < self.slots.len());
        // SAFETY: the CPU of a `Pinned` is below the number of CPUs (contract of `Pinned::assume`, point 2).
        let slot = unsafe { self.slots.get_unchecked(pin.cpu.0 as usize) };
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
        unsafe { &*self.slot.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes it exclusive.
        unsafe { &mut *self.slot.value.get() }
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
/// As wide as a pointer: on 32-bit machines it wraps at 2^32.
#[derive(Default)]
pub struct Counter(AtomicUsize);

impl Counter {
    /// Zero.
    pub const fn new() -> Self {
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

const BITS: usize = usize::BITS as usize;
const WORDS: usize = MAX_CPUS / BITS;

/// A set of CPUs that anybody may change.
#[derive(Default)]
pub struct CpuMask {
    words: [AtomicUsize; WORDS],
}

impl CpuMask {
    /// The empty set.
    pub const fn new() -> Self {
        CpuMask { words: [const { AtomicUsize::new(0) }; WORDS] }
    }

    /// Adds a CPU.
    #[inline]
    pub fn set(&self, cpu: CpuId) {
        self.words[cpu.0 as usize / BITS].fetch_or(1 << (cpu.0 as usize % BITS), Ordering::SeqCst);
    }

    /// Takes a CPU out.
    #[inline]
    pub fn clear(&self, cpu: CpuId) {
        self.words[cpu.0 as usize / BITS].fetch_and(!(1 << (cpu.0 as usize % BITS)), Ordering::SeqCst);
    }

    /// Whether `cpu` is in the set.
    #[inline]
    pub fn has(&self, cpu: CpuId) -> bool {
        self.words[cpu.0 as usize / BITS].load(Ordering::SeqCst) & (1 << (cpu.0 as usize % BITS)) != 0
    }

    /// Whether nobody is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // All words, without branches: in most spaces that is asked about it is so.
        self.words.iter().fold(0, |all, w| all | w.load(Ordering::SeqCst)) == 0
    }

    /// What is in it now.
    #[inline]
    pub fn snapshot(&self) -> CpuSet {
        CpuSet { words: core::array::from_fn(|i| self.words[i].load(Ordering::SeqCst)) }
    }
}

/// A set of CPUs, as it was at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet {
    words: [usize; WORDS],
}

impl CpuSet {
    /// Whether `cpu` is in it.
    #[inline]
    pub fn has(&self, cpu: CpuId) -> bool {
        self.words[cpu.0 as usize / BITS] & (1 << (cpu.0 as usize % BITS)) != 0
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// Its members, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(i, w)| {
            let mut left = *w;
            core::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                if left == 0 {
                    return None;
                }
                left &= left - 1;
                Some(CpuId((i * BITS) as u16 + bit as u16))
            })
        })
    }

    /// Both sets together.
    pub fn or(&self, other: &CpuSet) -> CpuSet {
        CpuSet { words: core::array::from_fn(|i| self.words[i] | other.words[i]) }
    }

    /// Those that are in `self` but not in `other`.
    pub fn without(&self, other: &CpuSet) -> CpuSet {
        CpuSet { words: core::array::from_fn(|i| self.words[i] & !other.words[i]) }
    }

    /// The set with one more CPU.
    pub fn with(mut self, cpu: CpuId) -> CpuSet {
        self.words[cpu.0 as usize / BITS] |= 1 << (cpu.0 as usize % BITS);
        self
    }
}
