//! Stands for the MMUs of CPUs that walk tables by themselves: models, if a sanitizer has them.
use crate::workers::machine::ReplayMmu;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Format, Formats};
use ptarmigan::quicklist::Policy;
use ptarmigan::tlb::{Invalidation, Mmu, NewEntry, Root, Scope, SpaceId, Structures};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::HostMachine;
use ptarmigan_ptsan::{Interrupting, MmuTraits, SoftMmu};

/// A hosted machine that calls its policy through a pointer. Benchmarks use it too: spaces and
/// tables are large, and compiled for each machine.
pub type ReplayHost<'h, F, W = DirectMap> = HostMachine<'h, F, &'h dyn Policy, WalkingMmu<'h, F>, W>;

/// The sanitizer's models of MMUs that are like `T`, or no MMU, which caches no translation. The
/// library treats both alike.
///
/// The choice is made at each call, not while compiling: spaces and tables are large, and compiled
/// for each MMU. Faults call it only when they flush.
pub struct WalkingMmu<'s, F: Format, T = Interrupting>(Option<&'s SoftMmu<'s, F, T>>);

impl<F: Format, T> Clone for WalkingMmu<'_, F, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Format, T> Copy for WalkingMmu<'_, F, T> {}

impl<'s, F: Format, T> WalkingMmu<'s, F, T> {
    /// No MMU walks the tables.
    pub const NONE: Self = WalkingMmu(None);

    /// Takes the models of a sanitizer, if there is one.
    pub fn new(soft: Option<&'s SoftMmu<'s, F, T>>) -> Self {
        WalkingMmu(soft)
    }
}

impl<F: Format, T: MmuTraits> ReplayMmu for WalkingMmu<'_, F, T> {}

// SAFETY: 1. to 4., 6. and 7. every call goes to a sanitizer's models, which do so, or there is no
// MMU, so that no translation is ever cached. 5. the constants are those of the models; of no MMU,
// any are true.
unsafe impl<F: Format, T: MmuTraits> Mmu for WalkingMmu<'_, F, T> {
    const FORMATS: Formats = Formats::of::<F>();
    const BROADCASTS: bool = T::BROADCASTS;
    const STRUCTURES: Structures = T::STRUCTURES;
    const NEEDS_ENTRY_VALID: bool = T::NEEDS_ENTRY_VALID;

    #[inline]
    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        if let Some(soft) = self.0 {
            soft.invalidate(pin, what);
        }
    }

    #[inline]
    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        if let Some(soft) = self.0 {
            soft.invalidate_kernel(pin, scope);
        }
    }

    #[inline]
    fn entry_became_valid(&self, pin: &Pinned<'_>, entry: &NewEntry) {
        if let Some(soft) = self.0 {
            soft.entry_became_valid(pin, entry);
        }
    }

    #[inline]
    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        if let Some(soft) = self.0 {
            soft.load(pin, root);
        }
    }

    #[inline]
    fn lazy(&self, pin: &Pinned<'_>, space: SpaceId) {
        if let Some(soft) = self.0 {
            soft.lazy(pin, space);
        }
    }

    #[inline]
    fn resume(&self, pin: &Pinned<'_>, space: SpaceId) {
        if let Some(soft) = self.0 {
            soft.resume(pin, space);
        }
    }

    #[inline]
    fn unload(&self, pin: &Pinned<'_>, space: SpaceId) {
        if let Some(soft) = self.0 {
            soft.unload(pin, space);
        }
    }
}
