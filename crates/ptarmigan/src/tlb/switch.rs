//! Switches the root that a CPU has loaded: of a space it runs in, of a space it keeps lazily, or
//! the kernel's own.
//!
//! ```text
//!             activate(A)            rest
//!   kernel ───────────────> active ─────────> lazy
//!     ^                     │    ^              │
//!     │      deactivate     │    └── activate ──┤  no load if the generation is the same
//!     └─────────────────────┴───────────────────┘
//! ```
//!
//! # Why lazy CPUs stay in a mask
//!
//! An idle CPU keeps the root loaded, because the task that runs next is often of the same space,
//! and a load would empty a TLB without numbers. The flush skips it, so that nobody interrupts an
//! idle CPU. But an MMU may walk ahead at any time: a flush that frees tables must find the CPU in
//! one of the two masks. So the bit of the mask to come is set before the old one is cleared.
//!
//! # Interrupts in the middle
//!
//! Each call has the CPU's [`Loaded`](super::state::Loaded) for itself from its first store to a
//! mask on. A request that comes in between finds it in use and stays unanswered: a request about
//! the space could not be judged by a state that is half old and half new. The call serves it when
//! it is done; until then the CPU that asks waits.
//!
//! # A load that unwinds
//!
//! It is unknown then whether the CPU walks the root that it had before or the new one, and which
//! translations its TLB holds under the number that it was to use. So the CPU loads the kernel's
//! root, and translations under the number count as another space's.
use super::asid::machine_wide::Chosen;
use super::error::TlbRefusal;
use super::hardware::Shootdown;
use super::id::{Generation, SpaceId};
use super::request::Root;
use super::space::SpaceTlb;
use super::state::{KERNEL, Loaded, Tlb};
use crate::addr::PhysAddr;
use crate::cpu::Pinned;
use crate::sync::atomic::Ordering;

impl<S: Shootdown> Tlb<S> {
    /// Makes this CPU run in `space`, whose root table is at `root`. A CPU that kept the space
    /// lazily only catches up with its generation.
    ///
    /// The space that the CPU had loaded before should have been left by
    /// [`deactivate`](Self::deactivate). If it was not, it goes on asking this CPU to flush, which
    /// costs time and does no harm.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] for a pin or a space of another machine, and in the middle of another switch.
    ///
    /// # Safety
    ///
    /// 1. `root` must be the root of the space's tables, which stay tables until the space has
    ///    ended: that every CPU has left it.
    pub unsafe fn activate(
        &self,
        pin: &Pinned<'_>,
        space: &SpaceTlb,
        root: PhysAddr,
    ) -> Result<(), TlbRefusal> {
        self.switch(pin, space, |loaded| self.load(pin, loaded, space, root))
    }

    /// Says that this CPU runs no code that needs a user space; the root of `space` stays loaded.
    ///
    /// # Errors
    ///
    /// As for [`activate`](Self::activate).
    pub fn rest(&self, pin: &Pinned<'_>, space: &SpaceTlb) -> Result<(), TlbRefusal> {
        self.switch(pin, space, |loaded| {
            if loaded.space != Some(space.id()) || loaded.lazy {
                return;
            }
            // Lazy before it is no longer active: a flush that frees tables must find it in one of
            // the masks. Active until the MMU knows: other flushes leave lazy CPUs out.
            loaded.lazy = true;
            space.lazy.set(pin.cpu());
            self.hardware.lazy(pin, space.id());
            space.active.clear(pin.cpu());
        })
    }

    /// Makes this CPU load the kernel's root, if it has `space` loaded. If the TLB tags spaces, its
    /// translations of this one may still be valid when the CPU comes back.
    ///
    /// # Errors
    ///
    /// As for [`activate`](Self::activate).
    pub fn deactivate(&self, pin: &Pinned<'_>, space: &SpaceTlb) -> Result<(), TlbRefusal> {
        self.switch(pin, space, |loaded| {
            if loaded.space == Some(space.id()) {
                self.unload(pin, loaded, space.id());
            }
            space.active.clear(pin.cpu());
            space.lazy.clear(pin.cpu());
        })
    }

    /// Runs `change` on the CPU's state, and serves the requests that came in meanwhile.
    #[inline]
    fn switch(
        &self,
        pin: &Pinned<'_>,
        space: &SpaceTlb,
        change: impl FnOnce(&mut Loaded),
    ) -> Result<(), TlbRefusal> {
        self.accept(pin)?;
        self.machine.accept(space.machine())?;
        change(&mut *self.own(pin)?);
        self.serve(pin);
        Ok(())
    }

    fn load(&self, pin: &Pinned<'_>, loaded: &mut Loaded, space: &SpaceTlb, root: PhysAddr) {
        let cpu = pin.cpu();
        if !space.loaded.load(Ordering::SeqCst) {
            space.loaded.store(true, Ordering::SeqCst);
        }
        // Into the mask first, then look at the generation: a flush either sees us, or we see its
        // generation.
        space.active.set(cpu);
        // The epoch before the generation: pages that have an epoch up to this one were unlinked by
        // a flush whose generation is seen here, so that nothing older is kept.
        let now = self.readers.now();
        let generation = space.generation();
        if loaded.space == Some(space.id()) && loaded.generation == generation {
            if loaded.lazy {
                loaded.lazy = false;
                space.lazy.clear(cpu);
                self.hardware.resume(pin, space.id());
            }
            return;
        }
        let (generation, asid, keep, forget_all) = if const { !S::HAS_ASIDS } {
            (generation, 0, false, false)
        } else if S::BROADCASTS {
            let Chosen { asid, forget_all } = self.common_asids.choose(cpu, &space.asid);
            // Once more: a flush either sees the number, or we see its generation.
            (space.generation(), asid, asid != 0, forget_all)
        } else {
            // SAFETY: 1. `loaded` is this CPU's, and its guard keeps interrupts that come here out.
            let (asid, keep) = unsafe {
                if loaded.space.is_some() {
                    self.asids.reached(cpu, loaded.asid, loaded.generation);
                }
                self.asids.choose(cpu, space.id(), generation)
            };
            (generation, asid, keep, false)
        };
        let unfinished = UnfinishedLoad { tlb: self, pin, loaded: &mut *loaded, space };
        self.hardware.load(pin, &Root { space: space.id(), at: root, asid, keep, forget_all });
        core::mem::forget(unfinished);
        *loaded = Loaded { space: Some(space.id()), generation, asid, lazy: false };
        space.lazy.clear(cpu);
        self.readers.cleaned(cpu, now);
    }

    /// Loads the kernel's root.
    pub(super) fn unload(&self, pin: &Pinned<'_>, loaded: &mut Loaded, space: SpaceId) {
        let now = self.readers.now();
        let unsure = Unsure(&mut *loaded);
        self.hardware.unload(pin, space);
        core::mem::forget(unsure);
        if const { S::HAS_ASIDS } {
            // SAFETY: 1. `loaded` is this CPU's, borrowed from its guard.
            unsafe { self.asids.reached(pin.cpu(), loaded.asid, loaded.generation) };
        }
        *loaded = KERNEL;
        self.readers.cleaned(pin.cpu(), now);
    }
}

/// A root that is being unloaded. If that unwinds, either root may be loaded: the CPU is taken for
/// one that has missed a flush, so that it loads the root again before it uses the space.
struct Unsure<'t>(&'t mut Loaded);

impl Drop for Unsure<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.generation = Generation(self.0.generation.0.wrapping_sub(1));
    }
}

/// A load that has not returned. It is dropped if the load unwinds, forgotten otherwise.
struct UnfinishedLoad<'t, 'p, S: Shootdown> {
    tlb: &'t Tlb<S>,
    pin: &'t Pinned<'p>,
    loaded: &'t mut Loaded,
    space: &'t SpaceTlb,
}

impl<S: Shootdown> Drop for UnfinishedLoad<'_, '_, S> {
    #[cold]
    fn drop(&mut self) {
        let UnfinishedLoad { tlb, pin, loaded, space } = self;
        let cpu = pin.cpu();
        tlb.unload(pin, loaded, space.id());
        if S::BROADCASTS {
            tlb.common_asids.fall_behind(cpu);
        } else {
            // SAFETY: 1. `loaded` is this CPU's, borrowed from its guard.
            unsafe { tlb.asids.forget(cpu, space.id()) };
        }
        space.active.clear(cpu);
        space.lazy.clear(cpu);
    }
}
