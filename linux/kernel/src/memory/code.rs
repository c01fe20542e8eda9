//! Frames whose bytes CPUs fetch as instructions, as Linux keeps them (`PG_dcache_clean`): caches
//! are cleaned when a program may first execute a page, and again after the kernel has written to
//! it.
//!
//! ```text
//!  fault, execute    has(frame)? ── no ──> clean the caches ── add: release ──> has: acquire, yes
//!  kernel writes     bytes written ── remove ──> the next fault cleans again
//!  a program writes  its own instructions: it cleans by itself, as under Linux
//! ```
//!
//! # Why
//!
//! AArch64 and RISC-V fetch instructions past the data cache. A page that was just read from a file
//! may be in the data cache alone, and a CPU would execute older bytes. Cleaning at each fault
//! would cost thousands of cycles for a page of a shared library that all programs map, so a bit of
//! each frame remembers it. The bit is set after the cleaning: otherwise another CPU could map the
//! page before.

use core::sync::atomic::{AtomicU64, Ordering};

use ptarmigan::addr::Pfn;

/// Frames that are looked after: those of the low 4 GiB.
const FRAMES: usize = 1 << 20;

/// A set of frames.
pub struct Fetched([AtomicU64; FRAMES / 64]);

impl Fetched {
    /// Makes an empty set.
    pub const fn new() -> Self {
        Fetched([const { AtomicU64::new(0) }; FRAMES / 64])
    }

    fn place(&self, frame: Pfn) -> Option<(&AtomicU64, u64)> {
        Some((self.0.get(frame.0 as usize / 64)?, 1 << (frame.0 % 64)))
    }

    /// Whether CPUs fetch the bytes of all these frames.
    #[inline]
    pub fn has(&self, mut frames: impl Iterator<Item = Pfn>) -> bool {
        frames
            .all(|frame| self.place(frame).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0))
    }

    /// Adds a frame, after the caches were cleaned.
    pub fn add(&self, frame: Pfn) {
        if let Some((word, bit)) = self.place(frame) {
            word.fetch_or(bit, Ordering::Release);
        }
    }

    /// Takes a frame out, after the kernel has written to it.
    #[inline]
    pub fn remove(&self, frame: Pfn) {
        // Most of what the kernel writes to is no code.
        if let Some((word, bit)) = self.place(frame)
            && word.load(Ordering::Relaxed) & bit != 0
        {
            word.fetch_and(!bit, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_fetched_until_it_is_written_to() {
        static FETCHED: Fetched = Fetched::new();
        let all = || [Pfn(63), Pfn(64)].into_iter();
        FETCHED.add(Pfn(64));
        assert!(FETCHED.has([Pfn(64)].into_iter()) && !FETCHED.has(all()));
        FETCHED.add(Pfn(63));
        assert!(FETCHED.has(all()));
        FETCHED.remove(Pfn(63));
        FETCHED.remove(Pfn(65));
        assert!(!FETCHED.has(all()) && FETCHED.has([Pfn(64)].into_iter()));
        // Frames that nothing is known of are never fetched.
        FETCHED.add(Pfn(FRAMES as u32));
        assert!(!FETCHED.has([Pfn(FRAMES as u32)].into_iter()));
    }
}
