//! Frames of unknown content, from the library's lists of data frames.
use core::ops::Range;

use ostd::mm::Paddr;
use ptarmigan::addr::{FRAME_SIZE, Pfn};
use ptarmigan::frames::{AllocFlags, DataFrames, Frames};
use spin::Once;

use crate::memory::{CPUS, Memory, with_pin};

static FRAMES: Once<Frames> = Once::new();

/// Frames, and the lists of each CPU.
pub struct Data {
    frames: &'static Frames,
    data: DataFrames,
}

impl Data {
    /// Makes one of the memory `own`.
    ///
    /// # Safety
    ///
    /// 1. No other code may use the memory, now or later.
    pub unsafe fn new(own: Range<Paddr>) -> Self {
        // SAFETY: 1. passed on.
        let mut memory = unsafe { Memory::new(&FRAMES, own, |size| DataFrames::bytes(CPUS, size.nodes())) };
        match DataFrames::new(&mut memory.boot, memory.frames, CPUS) {
            Ok(data) => Data { frames: memory.frames, data },
            Err(e) => panic!("{e}"),
        }
    }

    /// Takes a frame.
    #[inline]
    pub fn take(&self) -> Option<Paddr> {
        with_pin(self.frames.machine(), |pin| {
            // SAFETY: 1. lists and pin were made for the machine of these frames.
            let pfn = unsafe { self.data.take_raw(self.frames, pin, AllocFlags::NORMAL) }.ok()?;
            Some(pfn.0 as usize * FRAME_SIZE)
        })
    }

    /// Gives a frame back.
    ///
    /// # Safety
    ///
    /// 1. [`take`](Self::take) handed it out.
    /// 2. It is given back once, and no TLB reaches it.
    #[inline]
    pub unsafe fn give(&self, at: Paddr) {
        let pfn = Pfn((at / FRAME_SIZE) as u32);
        with_pin(self.frames.machine(), |pin| {
            // SAFETY: 1. by the caller (1.). 2. `take` made one reference, the caller's.
            let is_last = unsafe { DataFrames::release_raw(self.frames, pfn) };
            debug_assert!(is_last);
            // SAFETY: 1. as in `take`. 2. its only reference is gone; the rest by the caller (2.).
            unsafe { self.data.give_raw(self.frames, pin, pfn) };
        });
    }
}
