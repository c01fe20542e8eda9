//! Holds the TLB state of a space.
//!
//! # Why
//!
//! A flush and a CPU that loads the space meet without a lock: a lock would be taken at every
//! switch of tasks. Each side *writes* its own part before it *looks* at the other's. Both are
//! `SeqCst`, because with weaker orders each could miss the other's store: the flush would skip the
//! CPU, and the CPU would keep the old translation.
//!
//! ```text
//!  flush                          load
//!  raise generation  ──┐   ┌──    set bit in active
//!                       ╳
//!  look at active    <─┘   └─>    look at generation
//! ```
//!
//! # Debt
//!
//! A flush that is refused or unwinds leaves translations that no later flush would name. So the
//! space counts it as a *debt*, and the next flush forgets everything. The count must change with
//! each failure. Otherwise a flush that began before a second failure would settle that one too.
use super::asid::machine_wide::SpaceAsid;
use super::id::{Generation, SpaceId};
use crate::addr::Pfn;
use crate::cpu::{CpuId, CpuMask, MachineId};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// The TLB state of a space: its generation and the CPUs that have it loaded.
pub struct SpaceTlb {
    machine: MachineId,
    id: SpaceId,
    generation: AtomicUsize,
    /// Some CPU has loaded it at some time: before that the masks need not be looked at.
    pub(super) loaded: AtomicBool,
    /// Others than the holder of the space may walk its tables or load its root at any time.
    shared: AtomicBool,
    /// Bit 0: a flush was refused or has unwound, and no flush of everything has ended since. The
    /// other bits count them, so that a flush does not make up for one that failed after it began.
    debt: AtomicUsize,
    /// The number on machines that broadcast.
    pub(super) asid: SpaceAsid,
    /// The frame of its root, where the hash table is filled from its tables.
    hashed_root: AtomicU32,
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
            debt: AtomicUsize::new(0),
            asid: SpaceAsid::none(),
            hashed_root: AtomicU32::new(Pfn::NONE.0),
            active: CpuMask::default(),
            lazy: CpuMask::default(),
        }
    }

    /// Makes the state of the same space as it is when all other generations have been, for models.
    #[cfg(loom)]
    pub fn a_round_later(&self, generation: Generation) -> Self {
        Self::named(self.machine, self.id, generation)
    }

    /// Notes the frame of the root from whose tables the hash table is filled.
    pub(crate) fn set_hashed_root(&self, root: Pfn) {
        self.hashed_root.store(root.0, Ordering::Relaxed);
    }

    /// That frame.
    pub(crate) fn hashed_root(&self) -> Pfn {
        Pfn(self.hashed_root.load(Ordering::Relaxed))
    }

    /// Returns the machine that named the space.
    #[inline]
    pub fn machine(&self) -> MachineId {
        self.machine
    }

    /// The space's name.
    #[inline]
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// The current generation.
    #[inline]
    pub fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::SeqCst))
    }

    /// Begins a flush: the generation that CPUs have to reach.
    #[inline]
    pub(super) fn raise(&self) -> Generation {
        Generation(self.generation.fetch_add(1, Ordering::SeqCst)).next()
    }

    /// Whether no CPU may have anything of it cached, nor begin to while the holder works on it:
    /// entries may be changed with plain stores, and no flush is needed.
    #[inline]
    pub fn is_unloaded(&self) -> bool {
        !self.is_shared()
            && (!self.loaded.load(Ordering::SeqCst) || (self.active.is_empty() && self.lazy.is_empty()))
    }

    /// Whether others than the holder may walk its tables or load its root.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Says whether others may; only the sole holder of the space can.
    pub(crate) fn set_shared(&mut self, shared: bool) {
        self.shared.store(shared, Ordering::Relaxed);
    }

    /// Notes that a flush was refused or has unwound, whose changes TLBs may never have been told
    /// of.
    #[cold]
    pub(crate) fn owe_flush(&self) {
        // Counted first: the value that `settle_debt` compares has changed before the bit is set
        // again.
        self.debt.fetch_add(2, Ordering::SeqCst);
        self.debt.fetch_or(OWED, Ordering::SeqCst);
    }

    /// Returns whether a flush was refused or has unwound, and no later flush has made up for it
    /// yet.
    #[inline]
    pub(crate) fn owes_flush(&self) -> bool {
        // The effects of the flush that made up for it have happened before.
        self.debt.load(Ordering::Acquire) & OWED != 0
    }

    /// Returns the flushes that were refused or have unwound, if the caller has to make up for
    /// them: with a flush of everything, and then [`settle_debt`](Self::settle_debt).
    #[inline]
    pub(crate) fn debt(&self) -> Option<Debt> {
        let debt = self.debt.load(Ordering::Acquire);
        (debt & OWED != 0).then_some(Debt(debt))
    }

    /// Notes that a flush of everything, which began after `debt` was read, has ended. If another
    /// flush has failed meanwhile, the debt stays.
    #[cold]
    pub(crate) fn settle_debt(&self, debt: Debt) {
        let _ = self.debt.compare_exchange(debt.0, debt.0 & !OWED, Ordering::SeqCst, Ordering::Relaxed);
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
        self.active.has_others(cpu)
    }
}

/// A flush that has not ended. Dropping it has the next flush of the space be one of everything.
pub(crate) struct Owed<'s>(&'s SpaceTlb);

impl<'s> Owed<'s> {
    /// One of `space`.
    #[inline]
    pub fn of(space: &'s SpaceTlb) -> Self {
        Owed(space)
    }
}

impl Drop for Owed<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.owe_flush();
    }
}

/// Flushes of a space that were refused or have unwound, as they were at one moment.
pub(crate) struct Debt(usize);

/// The bit of [`SpaceTlb::debt`] that says that there are some.
const OWED: usize = 1;
