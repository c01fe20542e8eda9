//! Data frames that are known to be zero: a short stack of each CPU's, beside its list.
//!
//! It is filled when the CPU is idle, from the **newest** end of the list, and with ordinary
//! stores. The frame freed last is in the cache, so clearing it is cheap, and the frame cleared
//! last, which is taken first, is in the cache when its user comes. Frames at the old end would
//! have to be brought in by their users, which frame by frame is dearer (docs/results.md; whole
//! replays do not tell the two apart). Zero frames from the zones come here only when the list is
//! empty: then all there is is cold, and zero is the better kind of cold.
//!
//! Requests for frames that need not be zero do not come by here, and no frame is cleared that is
//! not asked for: the gate is that of the zones (`frames/demand.rs`), for each CPU.
use super::zeros::Shown;
use super::{DataError, DataFrame, DataFrames, OwnRing, TakenData};
use crate::addr::Pfn;
use crate::cpu::{Counter, Pinned};
use crate::frames::{AllocFlags, Dirty, Frame, Frames, NoFrame, Zero, ZeroCounts};
use crate::window::OpenWindow;
use core::sync::atomic::Ordering::Relaxed;

impl OwnRing<'_> {
    /// The zero frame that was put here last.
    #[inline]
    pub(super) fn pop_zero(&mut self) -> Option<Pfn> {
        let n = self.shown().zero.load(Relaxed).checked_sub(1)?;
        self.shown().zero.store(n, Relaxed);
        self.limit += 1;
        Some(self.zeros.items.get(n))
    }

    /// False if there is no room within the CPU's limit.
    pub(super) fn push_zero(&mut self, pfn: Pfn) -> bool {
        let n = self.shown().zero.load(Relaxed);
        if n >= self.zeros.most || self.n() >= self.limit {
            return false;
        }
        self.zeros.items.set(n, pfn);
        self.shown().zero.store(n + 1, Relaxed);
        self.limit -= 1;
        true
    }
}

impl DataFrames {
    /// Takes a data frame that is going to be zero. True if it is known to be; otherwise the
    /// caller clears it.
    ///
    /// # Errors
    ///
    /// [`DataError`]; the lists are unchanged then.
    pub fn take_zero(
        &self,
        frames: &Frames,
        pin: &Pinned<'_>,
        flags: AllocFlags,
    ) -> Result<(DataFrame, bool), DataError> {
        self.check(frames, pin)?;
        // SAFETY: 1. just checked.
        let TakenData { pfn, is_zero } = unsafe { self.take_zero_raw(frames, pin, flags)? };
        // SAFETY: 1. the reference has just been made.
        Ok((unsafe { DataFrame::from_raw(self.machine(), pfn) }, is_zero))
    }

    /// Takes a data frame as [`take_zero`](Self::take_zero) does, with one reference as a number.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then.
    ///
    /// # Safety
    ///
    /// 1. `frames` and `pin` must be of the machine that this was made for.
    #[inline]
    pub unsafe fn take_zero_raw(
        &self,
        frames: &Frames,
        pin: &Pinned<'_>,
        flags: AllocFlags,
    ) -> Result<TakenData, NoFrame> {
        // SAFETY: 1. passed on.
        let taken = match unsafe { self.on_cpu(pin) } {
            Some(taken) => taken,
            None => self.refill(frames, pin, flags, true)?,
        };
        // SAFETY: 1. passed on.
        let shown = unsafe { self.lists.own_shown_unchecked(pin) };
        shown.asked.add(1);
        shown.found.add(usize::from(taken.is_zero));
        Self::begin(frames, taken.pfn, self.order);
        Ok(taken)
    }

    /// The frames of the CPU: zero frames first, as the last that were cleared are in its cache;
    /// then the last given back.
    ///
    /// # Safety
    ///
    /// 1. `pin` must be of the machine that this was made for.
    #[inline]
    unsafe fn on_cpu(&self, pin: &Pinned<'_>) -> Option<TakenData> {
        // SAFETY: 1. passed on.
        let mut list = unsafe { self.lists.enter_unchecked(pin) }?;
        list.zeros.demand.asked(1);
        match list.pop_zero() {
            Some(pfn) => Some(TakenData { pfn, is_zero: true }),
            None => list.pop().map(|pfn| TakenData { pfn, is_zero: false }),
        }
    }

    /// A zero frame, where no other frame is left on this CPU and in its node's zones, for a
    /// request that may not have asked for one.
    pub(super) fn last_resort(&self, pin: &Pinned<'_>, want_zero: bool) -> Option<Pfn> {
        let mut list = self.lists.enter(pin)?;
        let pfn = list.pop_zero()?;
        if !want_zero {
            list.zeros.demand.wasted(1);
            list.shown().wasted.add(1);
        }
        Some(pfn)
    }

    /// Clears frames of the calling CPU's list ahead, the newest first, for faults to come: about
    /// `budget` frames of 4 KiB, in whole data frames, and no more than the faults since the last
    /// idle time give reason for (the gate, see `frames/demand.rs`); how many. 0 while the node is
    /// short of memory.
    ///
    /// For a CPU that is idle. Frames are cleared one by one and are on no list meanwhile, so an
    /// interrupt may take and give frames at any time.
    ///
    /// # Safety
    ///
    /// 1. `frames` and `pin` must be of the machine that this was made for.
    /// 2. The window must reach these frames.
    pub unsafe fn refill_zero<W: OpenWindow>(
        &self,
        frames: &Frames,
        pin: &Pinned<'_>,
        budget: u32,
        window: &W,
    ) -> u32 {
        let mut made = 0;
        while made < budget && !frames.pressed(pin.node()) {
            let Some(pfn) = self.pop_to_clear(pin) else { break };
            // SAFETY: 1. it came off this CPU's list just now, where frames rest one by one.
            // 2. `Dirty` makes no promise.
            let frame = unsafe { Frame::<Dirty>::from_raw(frames.machine(), pfn, self.order) };
            // SAFETY: 1. passed on (2.).
            let frame = unsafe { frame.clear(window) };
            made += 1 << self.order;
            if self.lists.enter(pin).is_some_and(|mut list| list.push_zero(frame.pfn())) {
                // The list has it now.
                let _ = frame.into_raw();
            } else {
                // An interrupt found the list in use, or filled it.
                frames.give(frame);
            }
        }
        if let Some(shown) = self.lists.own_shown(pin) {
            shown.ahead.add(made as usize >> self.order);
        }
        made
    }

    /// The newest frame of the list, if there should be more that are zero.
    fn pop_to_clear(&self, pin: &Pinned<'_>) -> Option<Pfn> {
        let mut list = self.lists.enter(pin)?;
        let (stock, most) = (list.shown().zero.load(Relaxed) as u32, list.zeros.most as u32);
        if list.zeros.demand.missing(stock, most) == 0 {
            return None;
        }
        let pfn = list.pop()?;
        list.zeros.demand.cleared(1);
        Some(pfn)
    }

    /// Gives the CPU's zero frames back to the zones, known to be zero.
    pub(super) fn drain_zeros(&self, frames: &Frames, pin: &Pinned<'_>, count: &mut impl FnMut(Pfn) -> Pfn) {
        while let Some(pfn) = self.lists.enter(pin).and_then(|mut list| list.pop_zero()) {
            // SAFETY: 1. it came off the stack just now. 2. only frames that are zero come there,
            // and no code writes to them.
            frames.give(unsafe { Frame::<Zero>::from_raw(frames.machine(), count(pfn), self.order) });
        }
    }

    /// The requests for zero frames on all CPUs, and the zero frames that were ready.
    pub fn zero_counts(&self) -> ZeroCounts {
        let count = |counter: &Counter| counter.get() as u64;
        let of = |shown: &Shown| ZeroCounts {
            asked: count(&shown.asked),
            found: count(&shown.found),
            ahead: count(&shown.ahead),
            wasted: count(&shown.wasted),
        };
        self.lists.shown().map(of).sum()
    }
}
