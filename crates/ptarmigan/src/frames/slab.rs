//! Objects smaller than a frame, such as the 32-byte root table of x86 PAE.
//!
//! A slab is a frame cut into equal objects. Free objects are threaded through their own first
//! bytes; the frame's record counts those in use, so that an empty slab goes back at once.
use super::{AllocFlags, Dirty, End, Frame, Frames, NoFrame, Request, Use, ZoneClass};
use crate::addr::{FRAME_SHIFT, FRAME_SIZE, Pfn, PhysAddr};
use crate::cpu::NodeId;
use crate::sync::SpinLock;
use crate::window::{OpenWindow, WindowGuard};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A source of objects of 2^`shift` bytes, naturally aligned, below 4 GiB times the object size / 4
/// KiB.
pub struct Slab {
    shift: u8,
    /// First slab that has a free object.
    partial: SpinLock<Pfn>,
    /// Slabs. Written under the lock.
    slabs: AtomicU32,
}

/// Binary logarithms of the sizes of objects, in bytes: the smallest, and the largest.
pub(super) const SMALLEST: u8 = 3;
pub(super) const LARGEST: u8 = FRAME_SHIFT as u8 - 1;
/// How many sizes there are.
pub(super) const SIZES: usize = (LARGEST - SMALLEST + 1) as usize;

/// End of a slab's list of free objects.
const END: u32 = u32::MAX;

impl Slab {
    /// Makes a source of objects of 2^`shift` bytes: 3 (8 bytes) up to 11 (half a frame).
    #[cfg(not(loom))]
    pub const fn new(shift: u8) -> Self {
        Self::of(shift, SpinLock::new(Pfn::NONE))
    }

    /// Makes a source of objects of 2^`shift` bytes, in models.
    #[cfg(loom)]
    pub fn new(shift: u8) -> Self {
        Self::of(shift, SpinLock::new(Pfn::NONE))
    }

    const fn of(shift: u8, partial: SpinLock<Pfn>) -> Self {
        assert!(shift >= SMALLEST && shift <= LARGEST);
        Slab { shift, partial, slabs: AtomicU32::new(0) }
    }

    /// Returns the number of frames that objects are in.
    pub fn frames(&self) -> u32 {
        self.slabs.load(Relaxed)
    }

    fn count(&self, change: i32) {
        self.slabs.store(self.slabs.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }

    fn objects(&self) -> u32 {
        (FRAME_SIZE >> self.shift) as u32
    }

    fn at(&self, pfn: Pfn, index: u32) -> PhysAddr {
        PhysAddr(pfn.addr().0 + ((index as u64) << self.shift))
    }

    /// Takes an object, all bytes zero.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then.
    ///
    /// # Safety
    ///
    /// 1. All calls for this slab must be given the same frames, and a window that reaches those of
    ///    low memory.
    pub unsafe fn take<W: OpenWindow>(
        &self,
        frames: &Frames,
        window: &W,
        node: NodeId,
        flags: AllocFlags,
    ) -> Result<PhysAddr, NoFrame> {
        let mut head = self.partial.lock();
        if *head == Pfn::NONE {
            let request =
                Request { node, order: 0, zero: false, class: ZoneClass::Low, end: End::Low, flags };
            let pfn = frames.take(request)?.dirty().into_raw();
            for i in 0..self.objects() {
                let next = if i + 1 == self.objects() { END } else { i + 1 };
                self.set_next(window, self.at(pfn, i), next);
            }
            let meta = frames.meta(pfn);
            meta.set_usage(Use::Slab);
            meta.set_order(self.shift);
            meta.set_live(0);
            meta.set_count(0);
            meta.set_next(Pfn::NONE);
            meta.set_prev(Pfn::NONE);
            self.count(1);
            *head = pfn;
        }
        let pfn = *head;
        let meta = frames.meta(pfn);
        let at = self.at(pfn, meta.count());
        let next = self.next(window, at);
        meta.set_count(next);
        meta.set_live(meta.live_above() + 1);
        if next == END {
            self.unlink(frames, &mut head, pfn);
        }
        drop(head);
        let guard = window.open(at);
        // SAFETY: the object came off the free list just now, so it is ours; it lies within the
        // frame at `at`, for which the guard is valid (contract of `Window`, point 1).
        unsafe { guard.base().write_bytes(0, 1 << self.shift) };
        Ok(at)
    }

    /// Takes an object back.
    ///
    /// # Safety
    ///
    /// 1. `at` must have come from [`Slab::take`] of this slab, and must not have been given back
    ///    since.
    /// 2. No code and no MMU may use it any more.
    /// 3. All calls for this slab must be given the same frames, and a window that reaches those of
    ///    low memory.
    pub unsafe fn give<W: OpenWindow>(&self, frames: &Frames, window: &W, at: PhysAddr) {
        let mut head = self.partial.lock();
        let pfn = at.pfn();
        let meta = frames.meta(pfn);
        let first = meta.count();
        self.set_next(window, at, first);
        meta.set_count(((at.0 & (FRAME_SIZE as u64 - 1)) >> self.shift) as u32);
        meta.set_live(meta.live_above() - 1);
        if first == END {
            meta.set_prev(Pfn::NONE);
            meta.set_next(*head);
            if *head != Pfn::NONE {
                frames.meta(*head).set_prev(pfn);
            }
            *head = pfn;
        }
        if meta.live_above() == 0 {
            self.unlink(frames, &mut head, pfn);
            self.count(-1);
            drop(head);
            meta.set_usage(Use::Taken);
            // SAFETY: 1. `take` took the frame with `into_raw`, and no object of it is in use any
            // more, so it is this slab's to give back. 2. `Dirty` makes no promise.
            frames.give(unsafe { Frame::<Dirty>::from_raw(frames.machine(), pfn, 0) });
        }
    }

    fn unlink(&self, frames: &Frames, head: &mut Pfn, pfn: Pfn) {
        let meta = frames.meta(pfn);
        let (next, prev) = (meta.next(), meta.prev());
        if prev == Pfn::NONE {
            *head = next;
        } else {
            frames.meta(prev).set_next(next);
        }
        if next != Pfn::NONE {
            frames.meta(next).set_prev(prev);
        }
    }

    fn next<W: OpenWindow>(&self, window: &W, at: PhysAddr) -> u32 {
        let guard = window.open(at);
        // SAFETY: called for free objects of slabs under the lock only; the guard is valid for the
        // object (contracts of `take` and `give`), which is at least 8 bytes long and as aligned.
        unsafe { guard.base().cast::<u32>().read() }
    }

    fn set_next<W: OpenWindow>(&self, window: &W, at: PhysAddr, to: u32) {
        let guard = window.open(at);
        // SAFETY: as in `next`.
        unsafe { guard.base().cast::<u32>().write(to) };
    }
}
