//! The kernel's half of spaces' roots, where they have one.
use crate::addr::PhysAddr;
use crate::format::Format;
use crate::frames::Frames;
use crate::page::Construct;
use crate::table::KernelMap;
use crate::window::OpenWindow;

/// What roots of spaces are constructed with.
pub enum KernelHalf<F: Format, W> {
    /// The kernel's entries, which each root has a copy of.
    Copied(KernelMap<F, W>),
    /// Nothing: the kernel has a root of its own.
    None,
}

impl<F: Format, W: OpenWindow> KernelHalf<F, W> {
    /// Returns the map, if there is one.
    pub fn map(&self) -> Option<&KernelMap<F, W>> {
        match self {
            KernelHalf::Copied(map) => Some(map),
            KernelHalf::None => None,
        }
    }
}

// SAFETY: 1. to 3. are promises of `KernelMap`; without one, roots stay all zero, nothing is written
// and nothing is kept.
unsafe impl<F: Format, W: OpenWindow> Construct for KernelHalf<F, W> {
    unsafe fn construct(&self, frames: &Frames, root: PhysAddr) {
        if let KernelHalf::Copied(map) = self {
            // SAFETY: 1. and 2. passed on.
            unsafe { map.construct(frames, root) };
        }
    }

    unsafe fn destruct(&self, frames: &Frames, root: PhysAddr) {
        if let KernelHalf::Copied(map) = self {
            // SAFETY: 1. passed on.
            unsafe { map.destruct(frames, root) };
        }
    }
}
