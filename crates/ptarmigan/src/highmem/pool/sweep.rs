//! Finds free slots: those at hand, the shared set, and sweeps.
//!
//! ```text
//!  owner of a slot    NOTHING ──── skipped
//!                     ORPHAN ───── compare_exchange ─> NOTHING ─┐
//!                     a frame ──── cell.expire ──────> NOTHING ─┴─> remove ─> flush ─> free
//!                       │ it has users: pinned                                  │ refused, unwound
//!                       └─> stays                                               └─> owed
//! ```
//!
//! # Why
//!
//! A flush of all CPUs costs about as much for one slot as for hundreds, so that a sweep takes all
//! slots of a chunk that have no users. The frame's word is cleared before the entry is removed.
//! Otherwise a user could join an empty slot. The lock of the chunk is not held during the flush,
//! because a CPU that waits for that lock could be one that the flush waits for. A sweep ahead of
//! need begins when few slots are left: a caller that may not sleep would fail at the last one.
use super::Pool;
use super::chunk::{Chunk, SlotBits};
use super::color::Color;
use super::config::{PoolError, Turn};
use super::counts::SweepCounts;
use super::sleep::Wake;
use super::{NOTHING, ORPHAN};
use crate::addr::Pfn;
use crate::cpu::Pinned;
use crate::highmem::slots::{Remove, Slots};
use crate::sync::atomic::Ordering;
use crate::tlb::{Facts, Shootdown, SlotSet, TlbRefusal};
use core::mem::ManuallyDrop;

/// Times that a caller waits for the sweeps of other CPUs before it gives up.
const ROUNDS: usize = 8;

impl<S: Shootdown, L: Slots, K: Wake> Pool<'_, S, L, K> {
    /// Takes a slot of `color`, as its index among those; nothing shows there.
    #[inline]
    pub(super) fn acquire(&self, pin: &Pinned<'_>, color: usize, turn: Turn) -> Result<usize, PoolError> {
        let its = &self.colors[color];
        if turn == Turn::Newcomer
            && !its.queue.is_waited_on()
            && let Some(slot) = its.pop(pin)
        {
            return Ok(slot);
        }
        self.refill(pin, color, turn)
    }

    #[inline(never)]
    fn refill(&self, pin: &Pinned<'_>, color: usize, turn: Turn) -> Result<usize, PoolError> {
        let its = &self.colors[color];
        let exhausted = Err(PoolError::Exhausted { slots: self.slots_of_color() });
        let waited_on = its.queue.is_waited_on();
        if waited_on && its.give_back(pin) && turn == Turn::Newcomer {
            its.queue.notify(self.wake);
        }
        if waited_on && turn == Turn::Newcomer {
            return exhausted;
        }
        let most = if waited_on { 1 } else { self.config.batch };
        // Before a slot is taken, which would be lost if the flush unwinds.
        self.sweep_ahead(pin, color);
        for round in 0..=ROUNDS {
            if let Some(slot) = its.take(pin, most) {
                return Ok(slot);
            }
            self.tlb.may_flush(pin)?;
            for chunk in 0..its.chunks() {
                if self.sweep(pin, color, its.home(pin) + chunk)?.stale > 0
                    && let Some(slot) = its.take(pin, most)
                {
                    return Ok(slot);
                }
            }
            if round == ROUNDS || !its.others_sweep(pin) {
                break;
            }
            let mut turns = 0;
            while its.others_sweep(pin) && its.available() == 0 {
                turns += 1;
                self.tlb.pause(pin, turns);
            }
        }
        // A sweep may have ended after the last look at the set, and before that at the sweeps.
        its.take(pin, most).map_or(exhausted, Ok)
    }

    /// Sweeps a chunk if few slots are left. A CPU that cannot flush now leaves it to others.
    fn sweep_ahead(&self, pin: &Pinned<'_>, color: usize) {
        let its = &self.colors[color];
        if its.available() < self.config.low_water {
            let next = self.cursor.fetch_add(1, Ordering::Relaxed);
            let _ = self.sweep(pin, color, next);
        }
    }

    /// Collects the slots of a chunk that have no users, has every CPU forget them, and makes them
    /// free.
    pub(super) fn sweep(
        &self,
        pin: &Pinned<'_>,
        color: usize,
        chunk: usize,
    ) -> Result<SweepCounts, PoolError> {
        self.tlb.may_flush(pin)?;
        let its = &self.colors[color];
        let Some(_begun) = its.sweep(pin) else { return Ok(SweepCounts::default()) };
        let (chunk, first) = its.chunk(chunk);
        let mut swept = Swept { chunk, slots: chunk.take_owed() };
        let mut counts = SweepCounts::default();
        for index in 0..chunk.len() {
            let slot = self.slot(color, first + index);
            let owner = &self.owners[slot];
            let frame = owner.load(Ordering::Acquire);
            match frame {
                NOTHING => continue,
                ORPHAN => {
                    if owner.compare_exchange(ORPHAN, NOTHING, Ordering::SeqCst, Ordering::Relaxed).is_err() {
                        continue;
                    }
                }
                _ => {
                    let pfn = Pfn(frame);
                    let cell = self.cells.of(self.frames, pfn);
                    if !cell.is_some_and(|cell| cell.expire(slot)) {
                        counts.pinned += 1;
                        continue;
                    }
                    owner.store(NOTHING, Ordering::Relaxed);
                }
            }
            // SAFETY: 1. a slot of the pool, which this sweep has taken out of the frame's cell, or
            // from an owner that gave it up; so it is nobody else's. 2. without users nothing uses
            // its address, and no user can join any more.
            match self.slots.remove(unsafe { Remove::new(slot) }) {
                Ok(()) => swept.slots.insert(index),
                Err(_) => {
                    // It shows the frame still. A later sweep tries again.
                    owner.store(ORPHAN, Ordering::SeqCst);
                    counts.pinned += 1;
                }
            }
        }
        counts.stale = swept.slots.len();
        counts.free = chunk.len() - counts.stale - counts.pinned;
        if !swept.slots.is_empty() {
            self.flush(pin, color, first, &swept.slots, counts.pinned)?;
            swept.end();
            its.queue.notify(self.wake);
        }
        self.tally.add(counts);
        Ok(counts)
    }

    /// Has every CPU forget slots of a chunk whose first is `first`, and no others if that is not
    /// cheaper. `pinned` slots of the chunk are in use.
    ///
    /// A chunk lies within as many slots as a set names. If their pages do not lie one after
    /// another, each stretch of 1,024 pages is flushed on its own.
    fn flush(
        &self,
        pin: &Pinned<'_>,
        color: usize,
        first: usize,
        slots: &SlotBits,
        pinned: usize,
    ) -> Result<(), TlbRefusal> {
        // Between slots of one colour are those of others, of which the sweep knows nothing.
        let live = (self.config.colors == 1).then_some(pinned as u64);
        let facts = Facts { live, ..Facts::UNKNOWN };
        let shift = self.slots.shift();
        let pages = slots.iter().map(|index| self.slots.page(self.slot(color, first + index)));
        let mut stale: Option<SlotSet> = None;
        for page in pages {
            let at = |set: &SlotSet| (page.wrapping_sub(set.address(0)) >> shift) as usize;
            match &mut stale {
                Some(set) if at(set) < SlotSet::SLOTS => set.insert(at(set)),
                full => {
                    if let Some(full) = full {
                        self.tlb.flush_kernel_slots(pin, full, &facts)?;
                    }
                    full.insert(SlotSet::new(page, shift)).insert(0);
                }
            }
        }
        stale.map_or(Ok(()), |stale| self.tlb.flush_kernel_slots(pin, &stale, &facts))
    }

    /// Returns the slots of each colour.
    pub(super) fn slots_of_color(&self) -> usize {
        self.owners.len() / self.config.colors
    }

    /// The number of slot `index` of a colour.
    #[inline]
    pub(super) fn slot(&self, color: usize, index: usize) -> usize {
        index * self.config.colors + color
    }

    /// The slots of a colour, for a CPU that has nothing to run.
    pub(super) fn rest(&self, pin: &Pinned<'_>, color: &Color, index: usize) {
        if color.give_back(pin) {
            color.queue.notify(self.wake);
        }
        self.sweep_ahead(pin, index);
    }
}

/// Slots that a sweep has taken, and that show nothing. If the flush does not happen, the next
/// sweep of the chunk flushes them.
struct Swept<'a> {
    chunk: &'a Chunk,
    slots: SlotBits,
}

impl Swept<'_> {
    /// Every CPU has forgotten them.
    fn end(self) {
        let this = ManuallyDrop::new(self);
        this.chunk.give_flushed(&this.slots);
    }
}

impl Drop for Swept<'_> {
    fn drop(&mut self) {
        if !self.slots.is_empty() {
            self.chunk.owe(&self.slots);
        }
    }
}
