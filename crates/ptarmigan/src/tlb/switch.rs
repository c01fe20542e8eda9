//! Which root a CPU has loaded: a space it runs in, one it keeps while it runs none, or the kernel's own.
use super::hardware::Shootdown;
use super::request::{Root, SpaceId};
use super::space::SpaceTlb;
use super::state::{KERNEL, Loaded, Tlb};
use crate::addr::PhysAddr;
use crate::cpu::Pinned;
use crate::sync::atomic::Ordering;

impl<S: Shootdown> Tlb<S> {
    /// This CPU begins to run in `space`. A CPU that kept it loaded lazily only catches up with the generation.
    ///
    /// Whatever space the CPU had loaded before should have been left by [`deactivate`](Self::deactivate); if it was not,
    /// it goes on asking this CPU to flush, which costs time and does no harm.
    /// # Safety
    ///
    /// 1. `root` is the root of the space's tables.
    pub unsafe fn activate(
        &self,
        pin: &Pinned<'_>,
        space: &SpaceTlb,
        root: PhysAddr,
    ) -> Result<(), crate::cpu::WrongMachine> {
        self.activate_old(pin, space, root);
        Ok(())
    }
    fn activate_old(&self, pin: &Pinned<'_>, space: &SpaceTlb, root: PhysAddr) {
        let cpu = pin.cpu();
        if !space.loaded.load(Ordering::SeqCst) {
            space.loaded.store(true, Ordering::SeqCst);
        }
        // Into the mask first, then look at the generation: a flush either sees us, or we see its generation.
        space.active.set(cpu);
        let generation = space.generation();
        let Some(mut loaded) = self.loaded.enter(pin) else { return };
        if loaded.space == Some(space.id()) && loaded.generation == generation {
            if loaded.lazy {
                loaded.lazy = false;
                space.lazy.clear(cpu);
                self.hardware.resume(pin, space.id());
            }
            return;
        }
        let now = self.readers.now();
        // SAFETY: 1. `loaded` is this CPU's, and its guard keeps interrupts that come here out.
        let (asid, keep) = unsafe {
            if loaded.space.is_some() {
                self.asids.reached(cpu, loaded.asid, loaded.generation);
            }
            self.asids.choose(cpu, space.id(), generation)
        };
        self.hardware.load(pin, &Root { space: space.id(), at: root, asid, keep });
        *loaded = Loaded { space: Some(space.id()), generation, asid, lazy: false };
        space.lazy.clear(cpu);
        self.readers.cleaned(cpu, now);
    }

    /// This CPU runs something that needs no user space; the root stays loaded.
    pub fn rest(&self, pin: &Pinned<'_>, space: &SpaceTlb) -> Result<(), crate::cpu::WrongMachine> {
        self.rest_old(pin, space);
        Ok(())
    }
    fn rest_old(&self, pin: &Pinned<'_>, space: &SpaceTlb) {
        let Some(mut loaded) = self.loaded.enter(pin) else { return };
        if loaded.space != Some(space.id()) || loaded.lazy {
            return;
        }
        // Lazy before it is no longer active: a flush that frees tables must find it in one of the masks.
        loaded.lazy = true;
        space.lazy.set(pin.cpu());
        space.active.clear(pin.cpu());
        self.hardware.lazy(pin, space.id());
    }

    /// This CPU switches to another root and forgets the space, or may use what it knows of it when it comes back to it
    /// if it is tagged.
    pub fn deactivate(&self, pin: &Pinned<'_>, space: &SpaceTlb) -> Result<(), crate::cpu::WrongMachine> {
        self.deactivate_old(pin, space);
        Ok(())
    }
    fn deactivate_old(&self, pin: &Pinned<'_>, space: &SpaceTlb) {
        if let Some(mut loaded) = self.loaded.enter(pin)
            && loaded.space == Some(space.id())
        {
            self.unload(pin, &mut loaded, space.id());
        }
        space.active.clear(pin.cpu());
        space.lazy.clear(pin.cpu());
    }

    pub(super) fn unload(&self, pin: &Pinned<'_>, loaded: &mut Loaded, space: SpaceId) {
        let now = self.readers.now();
        self.hardware.unload(pin, space);
        // SAFETY: 1. `loaded` is this CPU's, borrowed from its guard.
        unsafe { self.asids.reached(pin.cpu(), loaded.asid, loaded.generation) };
        *loaded = KERNEL;
        self.readers.cleaned(pin.cpu(), now);
    }
}
