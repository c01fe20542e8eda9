//! Stands for the MMUs of CPUs that walk tables by themselves: models, if a sanitizer has them.
use crate::workers::machine::ReplayMmu;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Format;
use ptarmigan::quicklist::Policy;
use ptarmigan::tlb::{Invalidation, Mmu, Root, Scope, SpaceId, Structures};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{HostMachine, NoTlb};
use ptarmigan_ptsan::SoftMmu;

/// A hosted machine that calls its policy through a pointer. Benchmarks use it too: spaces and
/// tables are large, and compiled for each machine.
pub type ReplayHost<'h, F, W = DirectMap> = HostMachine<'h, F, &'h dyn Policy, WalkingMmu<'h, F>, W>;

/// The sanitizer's models of MMUs, or [`NoTlb`].
///
/// The choice is made at each call, not while compiling: spaces and tables are large, and compiled
/// for each MMU. Faults call it only when they flush.
pub struct WalkingMmu<'s, F: Format>(Option<&'s SoftMmu<'s, F>>);

impl<F: Format> Clone for WalkingMmu<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Format> Copy for WalkingMmu<'_, F> {}

impl<'s, F: Format> WalkingMmu<'s, F> {
    /// No MMU walks the tables.
    pub const NONE: Self = WalkingMmu(None);

    /// Takes the models of a sanitizer, if there is one.
    pub fn new(soft: Option<&'s SoftMmu<'s, F>>) -> Self {
        WalkingMmu(soft)
    }
}

impl<F: Format> ReplayMmu for WalkingMmu<'_, F> {}

// The constants below describe both.
const _: () = {
    use ptarmigan_ptsan::{Interrupting, MmuTraits};
    assert!(matches!(NoTlb::STRUCTURES, Structures::AnyInvalidation));
    assert!(matches!(Interrupting::STRUCTURES, Structures::AnyInvalidation));
    assert!(!NoTlb::NEEDS_ENTRY_VALID && !Interrupting::NEEDS_ENTRY_VALID);
    assert!(!NoTlb::BROADCASTS && !Interrupting::BROADCASTS);
};

// SAFETY: 1. to 4., 6. and 7. every call goes to a sanitizer's models, which do so, or there is no
// MMU, so that no translation is ever cached. 5. the constants are those of both.
unsafe impl<F: Format> Mmu for WalkingMmu<'_, F> {
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

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
