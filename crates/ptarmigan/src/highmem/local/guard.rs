//! Scopes and the guards in them.
use super::LocalMaps;
use super::error::LocalError;
use super::stack::{FORGOTTEN, LIVE, MAX_DEPTH, Stack};
use crate::addr::{FRAME_SIZE, Pfn, PhysAddr};
use crate::cpu::{Pinned, WrongMachine};
use crate::highmem::slots::Slots;
use crate::tlb::Shootdown;
use crate::window::{OpenWindow, Window, WindowGuard};
use core::cell::Cell;

impl<'m, S: Shootdown, L: Slots> LocalMaps<'m, S, L> {
    /// Runs `f` with a scope in which frames can be mapped.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] for a pin of another machine; `f` has not run then.
    pub fn scope<R>(
        &self,
        pin: &Pinned<'_>,
        f: impl FnOnce(&mut LocalScope<'_, 'm, S, L>) -> R,
    ) -> Result<R, WrongMachine> {
        pin.check(self.tlb.machine())?;
        let Some(stack) = self.stacks.own_shown(pin) else {
            return Err(WrongMachine { called: self.tlb.machine(), given: pin.machine() });
        };
        let scope = OpenScope { stack, taken: Cell::new(0) };
        Ok(f(&mut LocalScope { maps: self, scope: &scope, pin }))
    }

    fn guard<'a>(
        &'a self,
        pin: &'a Pinned<'a>,
        scope: &'a OpenScope<'a>,
        pfn: Pfn,
    ) -> Result<LocalGuard<'a, 'm, S, L>, LocalError> {
        let Some((at, raw)) = self.push(pin, scope.stack, pfn)? else {
            let base = self.low.open(pfn.addr()).base();
            return Ok(LocalGuard { maps: self, pin, scope, at: None, base });
        };
        scope.taken.set(scope.taken.get() | 1 << at);
        let base = self.slots.address(self.slot(pin.cpu(), at));
        let guard = LocalGuard { maps: self, pin, scope, at: Some(at), base };
        // If this unwinds, the guard gives the slot back.
        self.tell(pin, at, raw);
        Ok(guard)
    }
}

/// A scope that has not ended.
struct OpenScope<'a> {
    stack: &'a Stack,
    /// The slots of guards that were made in it, a bit for each.
    taken: Cell<u32>,
}

const _: () = assert!(MAX_DEPTH <= u32::BITS as usize);

impl Drop for OpenScope<'_> {
    fn drop(&mut self) {
        // Its guards have gone by now, but for those that were forgotten. Slots above and below
        // them may be those of other scopes, whose guards live.
        let mut taken = self.taken.get();
        while taken != 0 {
            let at = taken.trailing_zeros() as usize;
            taken &= taken - 1;
            if self.stack.state(at) == LIVE {
                self.stack.set_state(at, FORGOTTEN);
            }
        }
    }
}

/// Where frames can be mapped on the CPU that the caller is pinned to.
pub struct LocalScope<'a, 'm, S: Shootdown, L> {
    maps: &'a LocalMaps<'m, S, L>,
    scope: &'a OpenScope<'a>,
    pin: &'a Pinned<'a>,
}

impl<'m, S: Shootdown, L: Slots> LocalScope<'_, 'm, S, L> {
    /// Maps a frame.
    ///
    /// # Errors
    ///
    /// [`LocalError`].
    #[inline]
    pub fn map(&mut self, pfn: Pfn) -> Result<LocalGuard<'_, 'm, S, L>, LocalError> {
        self.maps.guard(self.pin, self.scope, pfn)
    }

    /// Returns the scope as a [`Window`], whose guards may go in any order.
    pub fn window(&mut self) -> LocalWindow<'_, 'm, S, L> {
        LocalWindow { maps: self.maps, scope: self.scope, pin: self.pin }
    }
}

/// A frame that is mapped on this CPU; not any more when dropped.
pub struct LocalGuard<'a, 'm, S: Shootdown, L: Slots> {
    maps: &'a LocalMaps<'m, S, L>,
    pin: &'a Pinned<'a>,
    scope: &'a OpenScope<'a>,
    /// `None` for a frame that needs no slot.
    at: Option<usize>,
    base: *mut u8,
}

impl<'m, S: Shootdown, L: Slots> LocalGuard<'_, 'm, S, L> {
    /// Maps another frame, for no longer than this one. The pointer of this guard, taken before,
    /// may be used meanwhile.
    ///
    /// # Errors
    ///
    /// [`LocalError`].
    #[inline]
    pub fn map(&mut self, pfn: Pfn) -> Result<LocalGuard<'_, 'm, S, L>, LocalError> {
        self.maps.guard(self.pin, self.scope, pfn)
    }
}

impl<S: Shootdown, L: Slots> Drop for LocalGuard<'_, '_, S, L> {
    #[inline]
    fn drop(&mut self) {
        if let Some(at) = self.at {
            self.scope.taken.set(self.scope.taken.get() & !(1 << at));
            self.maps.pop(self.pin, self.scope.stack, at);
        }
    }
}

// SAFETY: the slot shows the frame until the guard is dropped, and the guard stays on its CPU.
unsafe impl<S: Shootdown, L: Slots> WindowGuard for LocalGuard<'_, '_, S, L> {
    #[inline]
    fn base(&self) -> *mut u8 {
        self.base
    }
}

/// A [`LocalScope`] as a window, for frames one by one.
pub struct LocalWindow<'a, 'm, S: Shootdown, L> {
    maps: &'a LocalMaps<'m, S, L>,
    scope: &'a OpenScope<'a>,
    pin: &'a Pinned<'a>,
}

// SAFETY: it is for memory that is handed out frame by frame. 1. a slot shows the whole frame while
// its guard lives. 2. slots of one frame reach the same frame. 3. the offset of `at` in its frame
// is added by shifting the base, and slots are as aligned as frames.
unsafe impl<'m, S: Shootdown, L: Slots> Window for LocalWindow<'_, 'm, S, L> {
    type Guard<'a>
        = LocalGuard<'a, 'm, S, L>
    where
        Self: 'a;
    type Error = LocalError;

    #[inline]
    fn map(&self, at: PhysAddr) -> Result<Self::Guard<'_>, LocalError> {
        let mut guard = self.maps.guard(self.pin, self.scope, at.pfn())?;
        guard.base = guard.base.wrapping_add(at.0 as usize % FRAME_SIZE);
        Ok(guard)
    }
}
