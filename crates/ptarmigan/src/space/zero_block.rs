//! The large page of zeroes that reads show.
//!
//! ```text
//!  CPU 0   take a block ── compare_exchange(none, its block) ──> it is the block of the machine
//!  CPU 1   take a block ── compare_exchange(none, its block) ──> refused: gives its own back
//!  CPU 2   first: the block of CPU 0 <── get                     load, acquire
//! ```
//!
//! # Why
//!
//! Programs read large areas that they have not written, for example sparse arrays. Without this
//! block each such read would take 2 MiB of memory and clear it. Two CPUs may take a block at once,
//! and one of them gives it back: a lock would have to be held while a block is cleared, which
//! takes longer than all the rest.
use super::large::UnmappedLarge;
use crate::addr::{FRAME_SHIFT, Pfn};
use crate::format::Format;
use crate::frames::Frames;
use crate::machine::{Machine, On};
use crate::table::{Tables, is_aligned};
use core::sync::atomic::{AtomicU32, Ordering};

/// A block of zeroes of the size of a large page, which all large pages that were only read show
/// (Linux's huge zero page). It is taken from the machine's data frames at the first such read, and
/// kept from then on: a machine in whose spaces no area has large pages spends nothing on it.
pub struct ZeroBlock(AtomicU32);

impl ZeroBlock {
    /// Makes one that is not there yet.
    pub const fn new() -> Self {
        ZeroBlock(AtomicU32::new(Pfn::NONE.0))
    }

    /// Returns its first frame; `None` if no read has asked for it yet.
    pub fn first(&self) -> Option<Pfn> {
        Some(Pfn(self.0.load(Ordering::Acquire))).filter(|first| *first != Pfn::NONE)
    }

    /// Returns its number of frames. `frames` are its machine's.
    pub fn frames(&self, frames: &Frames) -> u32 {
        self.first().map_or(0, |first| 1 << frames.meta(first).order())
    }

    /// Returns the first frame of a block that a large page of `F` can show; `None` if there is no
    /// memory for it, or if it was taken for a format with smaller ones.
    pub(super) fn get<F: Format, M: Machine>(&self, on: On<'_, M>) -> Option<Pfn> {
        let first = match self.first() {
            Some(first) => first,
            None => self.take::<F, M>(on)?,
        };
        let frames = (Tables::<F>::large_size() >> FRAME_SHIFT) as u32;
        let fits = self.frames(on.frames()) >= frames && is_aligned::<F>(first, Tables::<F>::LARGE);
        fits.then_some(first)
    }

    /// Takes the block, unless another CPU does so first.
    #[cold]
    fn take<F: Format, M: Machine>(&self, on: On<'_, M>) -> Option<Pfn> {
        let block = UnmappedLarge::take::<F>(on, true).ok()?;
        let none = Pfn::NONE.0;
        match self.0.compare_exchange(none, block.pfn.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(block.keep()),
            Err(first) => Some(Pfn(first)),
        }
    }
}

impl Default for ZeroBlock {
    fn default() -> Self {
        Self::new()
    }
}
