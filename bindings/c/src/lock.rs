//! Calls on one object take turns.
//!
//! ```text
//!  CPU 0   begin: compare_exchange(0 -> 1) ── the call ── drop: store(0), release ──┐
//!  CPU 1   begin: refused ── pause: answers requests ── … ── compare_exchange(0 -> 2) <┘
//!  CPU 0   begin, from a callback of its own call: Busy
//! ```
//!
//! # Why
//!
//! C code cannot show the compiler that it uses an object alone, so the library must check it. A
//! CPU that waits answers requests meanwhile: the call that it waits for may be a flush that waits
//! for it. The word names the CPU, so that a call out of a callback or a handler of the same CPU is
//! refused instead of waiting for itself.
use crate::cpu::Cpu;
use crate::error::PtError;
use core::sync::atomic::{AtomicU32, Ordering};

/// The CPU that is in a call, plus 1; 0 if no CPU is.
pub struct Turn(AtomicU32);

/// A call. Its end is the next one's turn.
pub struct Call<'a>(&'a Turn);

impl Turn {
    pub const fn new() -> Self {
        Turn(AtomicU32::new(0))
    }

    /// Waits for calls of other CPUs to end, and answers their requests meanwhile.
    ///
    /// # Errors
    ///
    /// [`PtError::Busy`] if this CPU is in a call itself: it comes from a callback, or from the
    /// handler of an interrupt.
    pub fn begin<'a>(&'a self, cpu: &Cpu) -> Result<Call<'a>, PtError> {
        let me = u32::from(cpu.on().cpu().0) + 1;
        let mut turn = 0u32;
        loop {
            match self.0.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Call(self)),
                Err(other) if other == me => return Err(PtError::Busy),
                Err(_) => {}
            }
            turn = turn.wrapping_add(1);
            cpu.on().tlb().pause(cpu.on().pin(), turn);
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}
