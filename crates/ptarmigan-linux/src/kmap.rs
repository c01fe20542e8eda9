//! The pool as Linux has it, for comparison: one lock, and one flush of the whole window.
//!
//! # Protocol
//!
//! 1. All states are guarded by one lock, which mapping and unmapping take.
//! 2. A slot is looked for from the last one on. When the search comes to slot 0, all slots without
//!    users are swept, and one range flush covers the whole window, even for one slot.
//! 3. Frames are looked up in 128 hash buckets, whose nodes are made in advance, one for each slot.
//! 4. A slot that was emptied is *owed* until a flush has ended. If the flush is refused or
//!    unwinds, the slot stays owed, is not handed out, and the next sweep flushes it. A slot that
//!    cannot be emptied keeps its frame, and the sweep goes on with the next one.
//! 5. A caller that may sleep waits in a queue until a slot loses its last user, and then looks
//!    again, first for the frame itself: another caller may have mapped it meanwhile.
//!
//! ```text
//!  map     lock ── bucket: the frame has a slot ──> count + 1
//!                   └─ last + 1, last + 2, … usable? ──> install
//!                       └─ at slot 0: sweeping = true, unlock ── flush of the window ── lock
//!  unmap   lock ── count - 1 ── no user left: wakes the first of the queue
//! ```
//!
//! # Why
//!
//! The comparison is with a release, so the rules must follow its `mm/highmem.c`; a [`FlushRule`]
//! says of which release. Two things differ. Linux flushes with the lock held. Here a CPU that
//! waits for the lock would not answer the flush, so the lock is released and the pool marked as
//! being swept; others wait for that mark as they would for the lock. And Linux wakes all sleepers
//! at once; here they are woken one after the other, first come first served, because only one of
//! them can have the slot.
use core::mem::ManuallyDrop;
use ptarmigan::addr::Pfn;
use ptarmigan::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::Frames;
use ptarmigan::highmem::pool::{MaySleep, PoolCounts, PoolError, SlotQueue, SweepCounts, Wake};
use ptarmigan::highmem::{Install, MAX_SLOTS, Remove, SlotError, Slots};
use ptarmigan::sync::{SpinLock, SpinLockGuard};
use ptarmigan::tlb::{NewEntry, Runs, Shootdown, Tlb};
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};

/// Buckets of the hash from frames to slots.
const BUCKETS: usize = 128;
/// The end of a bucket's list.
const END: u16 = u16::MAX;

/// A slot: its state, its frame, and the next one of its bucket.
#[derive(Clone, Copy)]
struct Slot {
    /// 0: usable, if it is not owed. 1: no user, but CPUs may know it. n: n - 1 users.
    count: u32,
    frame: Pfn,
    next: u16,
    /// It is empty, and CPUs may know the frame that it showed: no flush has ended since.
    owed: bool,
}

impl Slot {
    const USABLE: Self = Slot { count: 0, frame: Pfn::NONE, next: END, owed: false };
    /// A count that is not raised further.
    const FULL: u32 = u16::MAX as u32;

    fn is_usable(&self) -> bool {
        self.count == 0 && !self.owed
    }
}

struct State {
    slots: BootSlice<Slot>,
    buckets: BootSlice<u16>,
    last: usize,
    /// A flush is under way: nobody may change anything.
    sweeping: bool,
    swept: PoolCounts,
}

/// When a search that comes to slot 0 flushes the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushRule {
    /// If a slot has been emptied since the last flush: Linux 6.1.
    #[default]
    Stale,
    /// Always, even if no slot has been emptied: Linux 2.4, and 2.6.11.
    EveryRound,
}

/// A pool of slots with one lock.
pub struct LinuxPool<'m, S: Shootdown, L, K: ?Sized = ()> {
    tlb: &'m Tlb<S>,
    frames: &'m Frames,
    low: DirectMap,
    slots: L,
    state: SpinLock<State>,
    rule: FlushRule,
    waiting: SlotQueue,
    wake: &'m K,
}

impl<'m, S: Shootdown, L: Slots> LinuxPool<'m, S, L> {
    /// Makes a pool of `slots` for the frames from the limit of `low` on, with the flushes of Linux
    /// 6.1. Tasks that sleep look now and then, and are not woken.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the states do not fit; slots from [`MAX_SLOTS`] - 1 on are not used.
    ///
    /// # Safety
    ///
    /// 1. The slots must be made for the memory of `frames`, and `low` must reach the frames below
    ///    its limit. All must be of the machine of `tlb`.
    /// 2. No other code may use the slots. They must be empty, and every CPU must have
    ///    forgotten their last frames.
    pub unsafe fn new(
        boot: &mut BootMemory,
        tlb: &'m Tlb<S>,
        frames: &'m Frames,
        low: DirectMap,
        slots: L,
    ) -> Result<Self, BootMemoryShort> {
        let n = slots.len().min(MAX_SLOTS - 1);
        let state = State {
            slots: boot.take(n, |_| Slot::USABLE)?,
            buckets: boot.take(BUCKETS, |_| END)?,
            last: 0,
            sweeping: false,
            swept: PoolCounts::default(),
        };
        let (state, rule, waiting) = (SpinLock::new(state), FlushRule::Stale, SlotQueue::default());
        Ok(LinuxPool { tlb, frames, low, slots, state, rule, waiting, wake: &() })
    }

    /// Returns the bytes of boot memory that a pool of `slots` slots takes at most.
    pub const fn bytes(slots: usize) -> usize {
        BootMemory::bytes::<Slot>(slots) + BootMemory::bytes::<u16>(BUCKETS)
    }

    /// Has tasks that sleep for a slot woken by `wake`.
    #[must_use]
    pub fn woken_by<K: Wake + ?Sized>(self, wake: &'m K) -> LinuxPool<'m, S, L, K> {
        let LinuxPool { tlb, frames, low, slots, state, rule, waiting, .. } = self;
        LinuxPool { tlb, frames, low, slots, state, rule, waiting, wake }
    }
}

impl<'m, S: Shootdown, L: Slots, K: Wake + ?Sized> LinuxPool<'m, S, L, K> {
    /// Sets when a round flushes.
    #[must_use]
    pub fn with_rule(self, rule: FlushRule) -> Self {
        LinuxPool { rule, ..self }
    }

    /// Takes the lock, and waits until no flush is under way. A CPU that is in the middle of a
    /// switch or a flush of its own is refused instead: the flush may be that one, or wait for it.
    fn lock(&self, pin: &Pinned<'_>) -> Result<SpinLockGuard<'_, State>, PoolError> {
        let mut turns = 0;
        loop {
            let state = self.state.lock();
            if !state.sweeping {
                return Ok(state);
            }
            drop(state);
            self.tlb.may_flush(pin)?;
            turns += 1;
            self.tlb.pause(pin, turns);
        }
    }

    /// Maps a frame, and returns its address. Where no slot can be had, sleeps until one can, or
    /// until another caller has mapped the frame. The call pins the caller by itself, and not while
    /// it sleeps.
    ///
    /// # Errors
    ///
    /// [`PoolError::TimedOut`] in place of [`PoolError::Exhausted`], when `context` will not wait
    /// any longer; others at once, as of [`try_map`](Self::try_map).
    pub fn map(&self, context: &mut impl MaySleep, pfn: Pfn) -> Result<*mut u8, PoolError> {
        self.waiting.sleep_until(self.wake, context, |pin| self.try_map(pin, pfn))
    }

    /// Maps a frame, and returns its address, from a context that may not sleep.
    ///
    /// # Errors
    ///
    /// [`PoolError`]; nothing has changed then, but that stale slots may have been flushed.
    pub fn try_map(&self, pin: &Pinned<'_>, pfn: Pfn) -> Result<*mut u8, PoolError> {
        pin.check(self.tlb.machine())?;
        if self.frames.record(pfn).is_none() {
            return Err(PoolError::NoSuchFrame(pfn));
        }
        if pfn.addr().0 < self.low.limit() {
            return Ok(self.low.open(pfn.addr()).base());
        }
        let mut state = self.lock(pin)?;
        let index = match state.find(pfn) {
            Some(index) => index,
            None => {
                let (mut locked, index) = self.new_slot(pin, state)?;
                // Another CPU may have mapped the frame during a flush.
                if locked.find(pfn).is_none() {
                    // SAFETY: 1. and 2. it is usable, and the lock is held: it is empty, and
                    // every CPU has forgotten the frame that it showed. 3. it has a record.
                    let raw = self.slots.install(unsafe { Install::new(index, pfn) })?;
                    locked.slots[index] = Slot { count: 1, frame: pfn, ..Slot::USABLE };
                    locked.link(index);
                    let (va, shift) = (self.slots.page(index), self.slots.shift());
                    let entry = NewEntry::of_kernel(va, shift, raw);
                    // SAFETY: 1. compared above. 2. `raw` is the entry that the slots have just put
                    // there, for a frame that they may show.
                    unsafe { self.tlb.entry_became_valid(pin, &entry) };
                }
                let index = locked.find(pfn).unwrap_or(index);
                state = locked;
                index
            }
        };
        if state.slots[index].count == Slot::FULL {
            return Err(PoolError::TooManyUsers(pfn));
        }
        state.slots[index].count += 1;
        Ok(self.slots.address(index))
    }

    /// Unmaps a frame that [`try_map`](Self::try_map) has mapped. False if it has no users.
    ///
    /// # Errors
    ///
    /// [`PoolError::WrongMachine`], and [`PoolError::Refused`] if another CPU sweeps and this one
    /// is in the middle of a switch or a flush. The frame is mapped still then.
    ///
    /// # Safety
    ///
    /// 1. The caller must have mapped the frame, for a use that no other call has ended, and must
    ///    not use the address any more.
    pub unsafe fn unmap(&self, pin: &Pinned<'_>, pfn: Pfn) -> Result<bool, PoolError> {
        pin.check(self.tlb.machine())?;
        if pfn.addr().0 < self.low.limit() {
            return Ok(true);
        }
        let mut state = self.lock(pin)?;
        let Some(index) = state.find(pfn).filter(|index| state.slots[*index].count > 1) else {
            return Ok(false);
        };
        state.slots[index].count -= 1;
        let is_unused = state.slots[index].count == 1;
        drop(state);
        if is_unused {
            self.waiting.notify(self.wake);
        }
        Ok(true)
    }

    /// Looks for a usable slot.
    fn new_slot<'a>(
        &'a self,
        pin: &Pinned<'_>,
        mut state: SpinLockGuard<'a, State>,
    ) -> Result<(SpinLockGuard<'a, State>, usize), PoolError> {
        let n = state.slots.len();
        let mut budget = n;
        let mut swept = false;
        let mut failed = None;
        while budget > 0 {
            state.last = (state.last + 1) % n;
            if state.last == 0 {
                let kept;
                (state, kept) = self.sweep(pin, state)?;
                failed = kept;
                // The budget begins anew, once: if all slots are pinned there is no end.
                if !swept {
                    budget = n;
                }
                swept = true;
            }
            let last = state.last;
            if state.slots[last].is_usable() {
                return Ok((state, last));
            }
            budget -= 1;
        }
        Err(failed.map_or(PoolError::Exhausted { slots: n }, PoolError::Slot))
    }

    /// Makes all slots without users usable, with one flush of the whole window. Returns the error
    /// of the last slot that kept its frame, if there was one.
    fn sweep<'a>(
        &'a self,
        pin: &Pinned<'_>,
        mut state: SpinLockGuard<'a, State>,
    ) -> Result<(SpinLockGuard<'a, State>, Option<SlotError>), PoolError> {
        self.tlb.may_flush(pin)?;
        let mut counts = SweepCounts::default();
        let mut failed = None;
        for index in 0..state.slots.len() {
            let slot = state.slots[index];
            if slot.count == 1 {
                // SAFETY: 1. the lock is held. 2. it has no users.
                match self.slots.remove(unsafe { Remove::new(index) }) {
                    Ok(()) => {
                        state.unlink(index);
                        state.slots[index] = Slot { owed: true, ..Slot::USABLE };
                    }
                    // It shows the frame still. A later sweep tries again.
                    Err(e) => failed = Some(e),
                }
            }
            match state.slots[index] {
                Slot { owed: true, .. } => counts.stale += 1,
                Slot { count: 0, .. } => counts.free += 1,
                _ => counts.pinned += 1,
            }
        }
        if counts.stale > 0 || self.rule == FlushRule::EveryRound {
            state.sweeping = true;
            drop(state);
            let sweeping = Sweeping(&self.state);
            let (first, last) = (self.slots.page(0), self.slots.page(self.slots.len() - 1));
            let shift = self.slots.shift();
            let whole = Runs::one(first, last.wrapping_add(1 << shift), shift);
            self.tlb.flush_kernel(pin, &whole)?;
            state = sweeping.end();
        }
        state.count(counts);
        Ok((state, failed))
    }

    /// Sweeps now, as Linux does before attributes change.
    ///
    /// # Errors
    ///
    /// [`PoolError`]. With [`PoolError::Slot`], one slot shows its frame still, and all others
    /// without users have been flushed.
    pub fn flush_unused(&self, pin: &Pinned<'_>) -> Result<(), PoolError> {
        pin.check(self.tlb.machine())?;
        let state = self.lock(pin)?;
        let (_, failed) = self.sweep(pin, state)?;
        failed.map_or(Ok(()), |e| Err(e.into()))
    }

    /// Returns the slots.
    pub fn all_slots(&self) -> &L {
        &self.slots
    }

    /// Returns the state of a slot: 0, 1 or n. A slot that waits for its flush counts as 1.
    pub fn state(&self, slot: usize) -> u32 {
        self.state.lock().slots.get(slot).map_or(0, |slot| slot.count.max(slot.owed.into()))
    }

    /// Returns what the sweeps have found.
    pub fn counts(&self) -> PoolCounts {
        self.state.lock().swept
    }
}

/// A flush of the slots that are owed. If it is dropped before its end, they stay owed; in either
/// case others may go on.
struct Sweeping<'a>(&'a SpinLock<State>);

impl<'a> Sweeping<'a> {
    /// Makes the slots usable: every CPU has forgotten them.
    fn end(self) -> SpinLockGuard<'a, State> {
        let lock = ManuallyDrop::new(self).0;
        let mut state = lock.lock();
        state.slots.iter_mut().for_each(|slot| slot.owed = false);
        state.sweeping = false;
        state
    }
}

impl Drop for Sweeping<'_> {
    fn drop(&mut self) {
        self.0.lock().sweeping = false;
    }
}

impl State {
    /// Counts a sweep that has ended.
    fn count(&mut self, found: SweepCounts) {
        let PoolCounts { sweeps, idle_sweeps, total } = &mut self.swept;
        *sweeps += 1;
        *idle_sweeps += usize::from(found.stale == 0);
        total.stale += found.stale;
        total.pinned += found.pinned;
        total.free += found.free;
    }

    fn bucket(pfn: Pfn) -> usize {
        (pfn.0.wrapping_mul(0x9e37_79b1) >> 25) as usize % BUCKETS
    }

    fn find(&self, pfn: Pfn) -> Option<usize> {
        let mut at = self.buckets[Self::bucket(pfn)];
        while at != END {
            let slot = &self.slots[usize::from(at)];
            if slot.frame == pfn {
                return Some(usize::from(at));
            }
            at = slot.next;
        }
        None
    }

    fn link(&mut self, index: usize) {
        let bucket = Self::bucket(self.slots[index].frame);
        self.slots[index].next = self.buckets[bucket];
        self.buckets[bucket] = index as u16;
    }

    fn unlink(&mut self, index: usize) {
        let bucket = Self::bucket(self.slots[index].frame);
        let next = self.slots[index].next;
        if self.buckets[bucket] == index as u16 {
            self.buckets[bucket] = next;
            return;
        }
        let mut at = self.buckets[bucket];
        while at != END {
            let before = usize::from(at);
            at = self.slots[before].next;
            if at == index as u16 {
                self.slots[before].next = next;
                return;
            }
        }
    }
}
