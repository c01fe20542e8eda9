//! What a space knows of the TLBs that may know it.
use super::asid::machine_wide::SpaceAsid;
use super::id::{Generation, SpaceId};
use crate::cpu::{CpuId, CpuMask, MachineId};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What a space's TLB state is: its generation and the CPUs that have it loaded.
pub struct SpaceTlb {
    machine: MachineId,
    id: SpaceId,
    generation: AtomicUsize,
    /// Some CPU has loaded it at some time: before that the masks need not be looked at.
    pub(super) loaded: AtomicBool,
    /// Others than the holder of the space may walk its tables or load its root at any time.
    shared: AtomicBool,
    /// A flush was refused: the next one has to be of everything.
    debt: AtomicBool,
    /// The number on machines that broadcast.
    pub(super) asid: SpaceAsid,
    pub(super) active: CpuMask,
    pub(super) lazy: CpuMask,
}

impl SpaceTlb {
    /// Makes the state of a space that no CPU has loaded yet.
    pub(super) fn named(machine: MachineId, id: SpaceId, generation: Generation) -> Self {
        SpaceTlb {
            machine,
            id,
            generation: AtomicUsize::new(generation.0),
            loaded: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            debt: AtomicBool::new(false),
            asid: SpaceAsid::none(),
            active: CpuMask::new(),
            lazy: CpuMask::new(),
        }
    }

    /// Makes the state of the same space as it is when all other generations have been, for models.
    #[cfg(loom)]
    pub fn a_round_later(&self, generation: Generation) -> Self {
        Self::named(self.machine, self.id, generation)
    }

    /// Returns the machine that named the space.
    #[inline(always)]
    pub fn machine(&self) -> MachineId {
        self.machine
    }

    /// The space's name.
    #[inline(always)]
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// The current generation.
    #[inline(always)]
    pub fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::SeqCst))
    }

    /// Begins a flush: the generation that CPUs have to reach.
    #[inline(always)]
    pub(super) fn raise(&self) -> Generation {
        Generation(self.generation.fetch_add(1, Ordering::SeqCst)).next()
    }

    /// Whether no CPU may have anything of it cached, nor begin to while the holder works on it:
    /// entries may be changed with plain stores, and nothing needs to be flushed.
    #[inline]
    pub fn is_unloaded(&self) -> bool {
        !self.is_shared()
            && (!self.loaded.load(Ordering::SeqCst) || (self.active.is_empty() && self.lazy.is_empty()))
    }

    /// Whether others than the holder may walk its tables or load its root.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Says whether others may; only the sole holder of the space can.
    pub(crate) fn set_shared(&mut self, shared: bool) {
        self.shared.store(shared, Ordering::Relaxed);
    }

    /// Notes that a flush was refused, whose changes TLBs may never have been told of.
    #[cold]
    pub(crate) fn owe_flush(&self) {
        self.debt.store(true, Ordering::Relaxed);
    }

    /// Returns whether a flush was refused, or has unwound.
    #[inline(always)]
    pub(crate) fn owes_flush(&self) -> bool {
        self.debt.load(Ordering::Relaxed)
    }

    /// Returns whether a flush was refused; the caller makes up for it now.
    #[inline(always)]
    pub(crate) fn take_debt(&self) -> bool {
        self.debt.load(Ordering::Relaxed) && self.debt.swap(false, Ordering::Relaxed)
    }

    /// Whether it is active on `cpu`.
    #[inline]
    pub fn is_active_on(&self, cpu: CpuId) -> bool {
        self.active.has(cpu)
    }

    /// Whether it is active on another CPU than `cpu`: one that may use an old translation until it
    /// is flushed.
    #[inline]
    pub(crate) fn is_active_elsewhere(&self, cpu: CpuId) -> bool {
        !self.active.snapshot().except(cpu).is_empty()
    }
}
