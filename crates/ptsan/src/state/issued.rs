//! Flushes that may not have taken effect.
use crate::cpu::Flush;

/// A flush that was issued, and that no barrier has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issued {
    pub(crate) cpu: usize,
    pub(crate) flush: Flush,
    /// The space that the CPU had loaded.
    pub(crate) loaded: Option<u64>,
    /// Stores before this event were ordered before it.
    pub(crate) before: u64,
    pub(crate) event: u64,
    /// Event of the first barrier after it, where it takes another invalidation and another barrier
    /// ([`crate::Errata::dsb_misses_stores`]).
    pub(crate) waited: Option<u64>,
}
