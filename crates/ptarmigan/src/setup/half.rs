//! The kernel's half of spaces' roots, where they have one.
use crate::addr::PhysAddr;
use crate::format::Format;
use crate::frames::Frames;
use crate::page::Construct;
use crate::table::KernelMap;
use crate::window::OpenWindow;

/// Constructs roots of spaces: with a copy of the kernel's entries, or with none where the kernel
/// has a root of its own.
pub struct KernelHalf<F: Format, W>(pub(super) Option<KernelMap<F, W>>);

impl<F: Format, W: OpenWindow> KernelHalf<F, W> {
    /// Returns the map, if there is one.
    pub fn map(&self) -> Option<&KernelMap<F, W>> {
        self.0.as_ref()
    }
}

// SAFETY: 1. to 3. are promises of `KernelMap`; without one, roots stay all zero, nothing is
// written and nothing is kept.
unsafe impl<F: Format, W: OpenWindow> Construct for KernelHalf<F, W> {
    unsafe fn construct(&self, frames: &Frames, root: PhysAddr) {
        if let Some(map) = &self.0 {
            // SAFETY: 1. and 2. passed on.
            unsafe { map.construct(frames, root) };
        }
    }

    unsafe fn destruct(&self, frames: &Frames, root: PhysAddr) {
        if let Some(map) = &self.0 {
            // SAFETY: 1. passed on.
            unsafe { map.destruct(frames, root) };
        }
    }
}
