//! What a node wants of its CPUs.
use crate::sync::atomic::{AtomicU32, Ordering};

/// A word that every CPU of a node looks at when one of its gathers ends, and that hardly ever changes: a compare with what the
/// CPU has answered says that there is nothing to do.
///
/// On a line of its own, so that what goes on at the depot does not take it from those who only look.
#[repr(align(128))]
pub(super) struct Call(AtomicU32);

/// Some shelf of the node may hold more than it may. No CPU has ever answered that: each one trims, until none does.
const OVER: u32 = 1;
/// Each time that pages are short, one more.
const SHORT: u32 = 2;

impl Call {
    pub fn new() -> Self {
        Call(AtomicU32::new(0))
    }

    /// What is wanted now, to be compared with what was [answered](Self::answered).
    #[inline(always)]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Somebody went to the allocator while other CPUs had pages at hand: all are to see how many they should have.
    pub fn short(&self) {
        self.0.fetch_add(SHORT, Ordering::Relaxed);
    }

    /// A limit was set, and a shelf holds more.
    pub fn over(&self) {
        self.0.fetch_or(OVER, Ordering::Release);
    }

    /// Whether a shelf may hold more than it may.
    pub fn is_over(call: u32) -> bool {
        call & OVER != 0
    }

    /// No shelf holds more than it may, as far as the caller is about to find out: whoever set a limit before this sees it
    /// kept to below, and who sets one after it calls again.
    pub fn trimmed(&self) {
        self.0.fetch_and(!OVER, Ordering::Acquire);
    }

    /// What a CPU that has seen `call` may note.
    pub fn answered(call: u32) -> u32 {
        call & !OVER
    }
}
