//! Which slots of a kmap window have been in a hash table, as on the machine of 2001.
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Formats;
use ptarmigan::highmem::MAX_SLOTS;
use ptarmigan::tlb::{Invalidation, Mmu, NewEntry, Root, Scope, SpaceId, Structures};
use ptarmigan_replay::ReplayMmu;
use std::sync::{Mutex, MutexGuard};

/// The hash bits of a window's entries. A slot is used as soon as it is filled, by the clear or the
/// copy that it was filled for; so its page is missed, and put into the hash table. A flush takes
/// out the pages that it covers.
#[derive(Default)]
pub struct HashedSlots {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Binary logarithm of a page's bytes.
    shift: u32,
    /// Numbers of pages whose hash bit is set.
    hashed: std::collections::HashSet<u64>,
    /// For each flush of the kernel's half, the pages that it found hashed.
    found: Vec<usize>,
}

impl HashedSlots {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Returns the pages that each flush of the kernel's half has found hashed.
    pub fn found(&self) -> Vec<usize> {
        self.state().found.clone()
    }
}

// SAFETY: 1. to 3. no MMU walks the tables of a hosted machine, so no translation is ever cached.
// 4. as above. 5. one call is enough, as no CPU has a translation to forget; `entry_became_valid`
// is needed to count. 6. and 7. no root is kept, and no method unwinds.
unsafe impl Mmu for &HashedSlots {
    const FORMATS: Formats = Formats::ANY;
    // As `tlbie` does there.
    const BROADCASTS: bool = true;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = true;

    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}

    fn invalidate_kernel(&self, _: &Pinned<'_>, scope: &Scope) {
        let mut state = self.state();
        let before = state.hashed.len();
        let shift = state.shift;
        match scope.pages() {
            Some(pages) => pages.for_each(|va| _ = state.hashed.remove(&(va >> shift))),
            None => state.hashed.clear(),
        }
        let found = before - state.hashed.len();
        state.found.push(found);
    }

    fn load(&self, _: &Pinned<'_>, _: &Root) {}

    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}

    fn entry_became_valid(&self, _: &Pinned<'_>, entry: &NewEntry) {
        if entry.space.is_some() {
            return;
        }
        let mut state = self.state();
        state.shift = entry.shift;
        let inserted = state.hashed.insert(entry.va >> entry.shift);
        debug_assert!(inserted && state.hashed.len() <= MAX_SLOTS, "a slot is filled again after its flush");
    }
}

impl ReplayMmu for &HashedSlots {}
