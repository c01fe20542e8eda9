//! Mapping frames.
use super::cell::{FrameCell, Full};
use super::config::{PoolError, Turn};
use super::mapped::{Mapped, Orphan, User};
use super::queue::map_or_sleep;
use super::sleep::{MaySleep, Wake};
use super::{ORPHAN, Pool};
use crate::addr::Pfn;
use crate::cpu::Pinned;
use crate::highmem::slots::{Install, Slots};
use crate::sync::atomic::Ordering;
use crate::tlb::{NewEntry, Shootdown};
use crate::window::{OpenWindow, WindowGuard};
use core::mem::forget;

impl<S: Shootdown, L: Slots, K: Wake> Pool<'_, S, L, K> {
    /// Maps a frame, from a context that may not sleep.
    ///
    /// # Errors
    ///
    /// [`PoolError`].
    #[inline]
    pub fn try_map(&self, pin: &Pinned<'_>, pfn: Pfn) -> Result<Mapped<'_, K>, PoolError> {
        self.map_in(pin, pfn, Turn::Newcomer)
    }

    /// Maps a frame, and sleeps for a slot if there is none. A pin that the caller holds is of no
    /// use here: the call pins the caller by itself, and not while it sleeps (REQ-6).
    ///
    /// ```compile_fail,E0502
    /// # use ptarmigan::{addr::Pfn, highmem::{Slots, pool::*}, tlb::Shootdown};
    /// # use ptarmigan_hosted::Sleeper;
    /// fn sleeps_with_a_pin<S: Shootdown, L: Slots>(pool: &Pool<'_, S, L>, mut here: Sleeper<'_, S>) {
    ///     let pin = here.pin();
    ///     let page = pool.map(&mut here, Pfn(1)); // `here` is borrowed by the pin
    ///     drop(pin);
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`PoolError::TimedOut`] in place of [`PoolError::Exhausted`], when `context` will not wait
    /// any longer; others at once.
    pub fn map(&self, context: &mut impl MaySleep, pfn: Pfn) -> Result<Mapped<'_, K>, PoolError> {
        let queue = || &self.colors[self.color(pfn)].queue;
        map_or_sleep(queue, self.wake, context, |pin, turn| self.map_in(pin, pfn, turn))
    }

    #[inline]
    fn map_in(&self, pin: &Pinned<'_>, pfn: Pfn, turn: Turn) -> Result<Mapped<'_, K>, PoolError> {
        pin.check(self.machine)?;
        let cell = self.cells.of(self.frames, pfn).ok_or(PoolError::NoSuchFrame(pfn))?;
        if pfn.addr().0 < self.low.limit() {
            return Ok(Mapped { base: self.low.open(pfn.addr()).base(), _user: None });
        }
        // The function is the caller's and may unwind: it is called before anything is taken.
        let color = self.color(pfn);
        match cell.join() {
            Ok(Some(slot)) => Ok(self.mapped(cell, color, slot)),
            Ok(None) => self.map_new(pin, cell, pfn, color, turn),
            Err(Full) => Err(PoolError::TooManyUsers(pfn)),
        }
    }

    /// Maps a frame that was not mapped a moment ago.
    fn map_new<'a>(
        &'a self,
        pin: &Pinned<'_>,
        cell: &'a FrameCell,
        pfn: Pfn,
        color: usize,
        turn: Turn,
    ) -> Result<Mapped<'a, K>, PoolError> {
        let queue = &self.colors[color].queue;
        // Two numbers stand for something else in place of a slot's frame.
        if pfn.0 >= ORPHAN {
            return Err(PoolError::NoSuchFrame(pfn));
        }
        loop {
            let index = self.acquire(pin, color, turn)?;
            let slot = self.slot(color, index);
            // SAFETY: 1. and 2. it was in the set of free slots, and is in no set now. 3. it has a
            // cell, so it is one of the frames that the slots were made for (contract of `new`).
            let raw = match self.slots.install(unsafe { Install::new(slot, pfn) }) {
                Ok(raw) => raw,
                Err(e) => {
                    self.colors[color].give(index);
                    queue.notify(self.wake);
                    return Err(e.into());
                }
            };
            let shown = Orphan { owner: &self.owners[slot], queue, wake: self.wake };
            let entry = NewEntry::of_kernel(self.slots.page(slot), self.slots.shift(), raw);
            // SAFETY: 1. `map_in` has compared the machines. 2. `raw` is the entry that the slots
            // have just put there, for a frame that they may show.
            unsafe { self.tlb.entry_became_valid(pin, &entry) };
            if cell.publish(slot) {
                forget(shown);
                // After the word: until then no sweep takes the slot.
                self.owners[slot].store(pfn.0, Ordering::Release);
                return Ok(self.mapped(cell, color, slot));
            }
            drop(shown);
            // Another CPU was faster.
            match cell.join() {
                Ok(Some(slot)) => return Ok(self.mapped(cell, color, slot)),
                Ok(None) => {}
                Err(Full) => return Err(PoolError::TooManyUsers(pfn)),
            }
        }
    }

    #[inline]
    fn mapped<'a>(&'a self, cell: &'a FrameCell, color: usize, slot: usize) -> Mapped<'a, K> {
        let queue = &self.colors[color].queue;
        Mapped { base: self.slots.address(slot), _user: Some(User { cell, queue, wake: self.wake }) }
    }
}
