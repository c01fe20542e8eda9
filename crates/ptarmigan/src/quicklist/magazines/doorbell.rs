//! The request word by which a node calls its CPUs.
use crate::sync::atomic::{AtomicU32, Ordering};

/// The request word of a node. Each of its CPUs compares it with its last response whenever one of
/// its gathers ends. It hardly ever changes, so the comparison nearly always finds no request.
///
/// It is on a line of its own, so that work on the depots does not take the line from CPUs that
/// only look.
#[repr(align(128))]
pub(super) struct Doorbell(AtomicU32);

/// A depot of the node may be over its limit. No CPU has responded to this value ever: each CPU
/// trims until no list exceeds its limit.
const OVER_LIMIT: u32 = 1;
/// Added each time that a CPU runs short.
const SHORTAGE: u32 = 2;

impl Doorbell {
    pub fn new() -> Self {
        Doorbell(AtomicU32::new(0))
    }

    /// Returns the word, to be compared with the CPU's last [response](Self::responded).
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Notifies the CPUs that one of them went to the allocator while others had pages at hand: all
    /// check how many they should have.
    pub fn ring_shortage(&self) {
        self.0.fetch_add(SHORTAGE, Ordering::Relaxed);
    }

    /// Notifies the CPUs that a depot is over a limit that was set.
    pub fn ring_over_limit(&self) {
        self.0.fetch_or(OVER_LIMIT, Ordering::Release);
    }

    /// Returns whether `word` says that a depot may be over its limit.
    pub fn is_over_limit(word: u32) -> bool {
        word & OVER_LIMIT != 0
    }

    /// Clears the over-limit flag before the check. A limit set earlier is seen by the check that
    /// follows; one set later raises the flag again.
    pub fn clear_over_limit(&self) {
        self.0.fetch_and(!OVER_LIMIT, Ordering::Acquire);
    }

    /// Returns the response that a CPU that has seen `word` may record.
    pub fn responded(word: u32) -> u32 {
        word & !OVER_LIMIT
    }
}
