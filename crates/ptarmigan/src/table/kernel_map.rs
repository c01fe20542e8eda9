//! The kernel's half of every top table.
//!
//! Constructed tops, live ones and ones that rest on a list, are linked through their frames' records. A change of
//! the kernel map goes along that list, and construction copies and registers under the same lock, so no top ever
//! misses a change (H2, H14, REQ-3, REQ-16).
use super::slots::{Slots, has_record};
use crate::addr::{Pfn, PhysAddr};
use crate::format::{Format, Slot};
use crate::frames::{Frames, NoFrame, Request, Use};
use crate::page::{Construct, Level};
use crate::sync::SpinLock;
use crate::window::Window;
use core::marker::PhantomData;

/// The kernel's entries, and everyone who has a copy.
pub struct KernelMap<F: Format, W> {
    window: W,
    /// A top of which only the kernel's entries are used.
    reference: PhysAddr,
    /// First registered top.
    tops: SpinLock<Pfn>,
    _format: PhantomData<F>,
}

impl<F: Format, W: Window> KernelMap<F, W> {
    const TOP: Level = F::LAYOUT.top();

    /// An empty kernel map; takes one frame for its reference table.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if there is none.
    pub fn new(frames: &Frames, window: W, request: Request) -> Result<Self, NoFrame> {
        let frame = frames.take(request)?.zeroed(&window);
        let reference = frame.into_raw().addr();
        Ok(KernelMap { window, reference, tops: SpinLock::new(Pfn::NONE), _format: PhantomData })
    }

    /// Gives the reference table's frame back.
    ///
    /// # Errors
    ///
    /// The map itself, if tops that carry a copy of it are still about.
    pub fn end(self, frames: &Frames) -> Result<(), Self> {
        if *self.tops.lock() != Pfn::NONE {
            return Err(self);
        }
        frames.meta(self.reference.pfn()).set_usage(Use::Taken);
        // SAFETY: 1. `new` took the frame, order 0, and `self` is consumed. 2. `Dirty` promises nothing.
        frames
            .give(unsafe { crate::frames::Frame::<crate::frames::Dirty>::from_raw(self.reference.pfn(), 0) });
        Ok(())
    }

    /// Entry `index` of the top, one of the kernel's.
    pub fn get(&self, index: usize) -> u64 {
        Slots::<F, W>::open(&self.window, self.reference).at(Self::TOP, index).load()
    }

    /// Sets entry `index` of every top, live and resting; indices below [`Format::USER_TOP`] are ignored. Returns
    /// how many tops there were.
    ///
    /// Tops smaller than a frame (x86 PAE) are not registered, as they have no record: their kernel entry, which links
    /// one table that all share, has to be set before the first of them is made.
    ///
    /// The caller flushes if the entry was present before.
    pub fn set(&self, frames: &Frames, index: usize, raw: u64) -> usize {
        if index < F::USER_TOP || index >= F::entries(Self::TOP) {
            return 0;
        }
        let tops = self.tops.lock();
        Slots::<F, W>::open(&self.window, self.reference).at(Self::TOP, index).store(raw);
        let (mut at, mut n) = (*tops, 0);
        while at != Pfn::NONE {
            Slots::<F, W>::open(&self.window, at.addr()).at(Self::TOP, index).store(raw);
            at = next(frames, at);
            n += 1;
        }
        n
    }

    fn kernel_entries() -> core::ops::Range<usize> {
        F::USER_TOP..F::entries(Self::TOP)
    }
}

// The registry uses what a split top leaves free of its record: the bitmap's second word, which stands for the
// kernel's half, and the chain link, which a top has no use for (a gather holds it apart).
fn next(frames: &Frames, pfn: Pfn) -> Pfn {
    Pfn(frames.meta(pfn).lines(1))
}

fn set_next(frames: &Frames, pfn: Pfn, to: Pfn) {
    frames.meta(pfn).set_lines(1, to.0);
}

impl<F: Format, W: Window> Construct for KernelMap<F, W> {
    fn construct(&self, frames: &Frames, top: PhysAddr) {
        let mut tops = self.tops.lock();
        let from = Slots::<F, W>::open(&self.window, self.reference);
        let to = Slots::<F, W>::open(&self.window, top);
        for index in Self::kernel_entries() {
            let raw = from.at(Self::TOP, index).load();
            if raw != 0 {
                to.at(Self::TOP, index).store(raw);
            }
        }
        if has_record::<F>(Self::TOP) {
            let pfn = top.pfn();
            set_next(frames, pfn, *tops);
            frames.meta(pfn).set_link(Pfn::NONE);
            if *tops != Pfn::NONE {
                frames.meta(*tops).set_link(pfn);
            }
            *tops = pfn;
        }
    }

    fn destruct(&self, frames: &Frames, top: PhysAddr) {
        let mut tops = self.tops.lock();
        let pfn = top.pfn();
        if has_record::<F>(Self::TOP) {
            let (after, before) = (next(frames, pfn), frames.meta(pfn).link());
            if before == Pfn::NONE {
                *tops = after;
            } else {
                set_next(frames, before, after);
            }
            if after != Pfn::NONE {
                frames.meta(after).set_link(before);
            }
            set_next(frames, pfn, Pfn(0));
        }
        let slots = Slots::<F, W>::open(&self.window, top);
        for index in Self::kernel_entries() {
            let slot = slots.at(Self::TOP, index);
            if slot.load() != 0 {
                slot.store(0);
            }
        }
    }
}
