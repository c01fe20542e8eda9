//! The kernel's half of every root table.
//!
//! Constructed roots, live ones and ones that rest on a list, are linked through their frames'
//! records. A change of the kernel map goes along that list, and construction copies and registers
//! under the same lock, so no root ever misses a change (H2, H14, REQ-3, REQ-16).
use super::node::{read, set_kernel};
use crate::addr::{Pfn, PhysAddr};
use crate::cpu::MachineId;
use crate::format::{Format, check};
use crate::frames::{Frames, NoFrame, Request, Use};
use crate::page::{Construct, Level};
use crate::sync::SpinLock;
use crate::window::OpenWindow;
use core::marker::PhantomData;

/// The kernel's entries, and everyone who has a copy.
pub struct KernelMap<F: Format, W> {
    machine: MachineId,
    window: W,
    /// A root of which only the kernel's entries are used.
    reference: PhysAddr,
    /// First registered root.
    roots: SpinLock<Pfn>,
    _format: PhantomData<F>,
}

impl<F: Format, W: OpenWindow> KernelMap<F, W> {
    const ROOT: Level = F::LAYOUT.root();

    /// An empty kernel map; takes one frame for its reference table.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if there is none.
    ///
    /// # Safety
    ///
    /// 1. The window reaches all of `frames`.
    pub unsafe fn new(frames: &Frames, window: W, request: Request) -> Result<Self, NoFrame> {
        const { check::<F>() };
        // SAFETY: 1. passed on.
        let frame = unsafe { frames.take(request)?.zeroed(&window) };
        let reference = frame.into_raw().addr();
        Ok(KernelMap {
            machine: frames.machine(),
            window,
            reference,
            roots: SpinLock::new(Pfn::NONE),
            _format: PhantomData,
        })
    }

    /// Gives the reference table's frame back.
    ///
    /// # Errors
    ///
    /// The map itself, if roots that carry a copy of it are still about, or `frames` are another
    /// machine's.
    pub fn end(self, frames: &Frames) -> Result<(), Self> {
        if !frames.machine().matches(self.machine) || *self.roots.lock() != Pfn::NONE {
            return Err(self);
        }
        frames.meta(self.reference.pfn()).set_usage(Use::Taken);
        // SAFETY: 1. `new` took the frame, order 0, and `self` is consumed. 2. `Dirty` promises
        // nothing.
        frames.give(unsafe {
            crate::frames::Frame::<crate::frames::Dirty>::from_raw(self.machine, self.reference.pfn(), 0)
        });
        Ok(())
    }

    /// Returns entry `index` of the root; `None` if that is not one of the kernel's.
    pub fn get(&self, index: usize) -> Option<u64> {
        Self::kernel_entries().contains(&index).then(|| self.read(self.reference, index))
    }

    fn read(&self, at: PhysAddr, index: usize) -> u64 {
        read::<F, W>(&self.window, Self::ROOT, at, index)
    }

    fn write(&self, at: PhysAddr, index: usize, raw: u64) {
        set_kernel::<F, W>(&self.window, at, index, raw);
    }

    /// Sets entry `index` of every root, live and cached; an index that is not the kernel's is
    /// ignored. Returns how many roots there were.
    ///
    /// Roots smaller than a frame (x86 PAE) are not registered, as they have no record: their
    /// kernel entry, which links one table that all share, has to be set before the first of them
    /// is made.
    ///
    /// The caller flushes if the entry was present before.
    ///
    /// # Safety
    ///
    /// 1. `raw` is none, or an entry of a root: every access that the MMU lets through by it is the
    ///    kernel's own, and a table that it links stays a table until no root has the entry any
    ///    more and all TLBs have been flushed.
    pub unsafe fn set(&self, frames: &Frames, index: usize, raw: u64) -> usize {
        if !Self::kernel_entries().contains(&index) {
            return 0;
        }
        let roots = self.roots.lock();
        self.write(self.reference, index, raw);
        let (mut at, mut n) = (*roots, 0);
        while at != Pfn::NONE {
            self.write(at.addr(), index, raw);
            at = next(frames, at);
            n += 1;
        }
        n
    }

    fn kernel_entries() -> core::ops::Range<usize> {
        F::USER_ROOT_ENTRIES..F::entries(Self::ROOT)
    }
}

// The registry uses what a root leaves free of its record: the second word of the map of touched
// lines, of which a root needs the first alone however the root is split, and the chain link, which
// a root has no use for (a gather holds it apart).
fn next(frames: &Frames, pfn: Pfn) -> Pfn {
    Pfn(frames.meta(pfn).lines(1))
}

fn set_next(frames: &Frames, pfn: Pfn, to: Pfn) {
    frames.meta(pfn).set_lines(1, to.0);
}

impl<F: Format, W: OpenWindow> Construct for KernelMap<F, W> {
    unsafe fn construct(&self, frames: &Frames, root: PhysAddr) {
        let mut roots = self.roots.lock();
        for index in Self::kernel_entries() {
            let raw = self.read(self.reference, index);
            if !F::is_none(raw) {
                self.write(root, index, raw);
            }
        }
        if !F::LAYOUT.is_small(Self::ROOT) {
            let pfn = root.pfn();
            set_next(frames, pfn, *roots);
            frames.meta(pfn).set_link(Pfn::NONE);
            if *roots != Pfn::NONE {
                frames.meta(*roots).set_link(pfn);
            }
            *roots = pfn;
        }
    }

    unsafe fn destruct(&self, frames: &Frames, root: PhysAddr) {
        let mut roots = self.roots.lock();
        let pfn = root.pfn();
        if !F::LAYOUT.is_small(Self::ROOT) {
            let (after, before) = (next(frames, pfn), frames.meta(pfn).link());
            if before == Pfn::NONE {
                *roots = after;
            } else {
                set_next(frames, before, after);
            }
            if after != Pfn::NONE {
                frames.meta(after).set_link(before);
            }
            set_next(frames, pfn, Pfn(0));
        }
        for index in Self::kernel_entries() {
            if !F::is_none(self.read(root, index)) {
                self.write(root, index, 0);
            }
        }
    }
}
