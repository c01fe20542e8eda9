//! Invalidations that were queued for devices, and that nobody has waited for.
use crate::cpu::Flush;

/// An invalidation in the queue of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    /// The device, by the number that hooks have for it.
    pub(crate) device: usize,
    pub(crate) flush: Flush,
    /// Event at which it was queued. The device may have carried it out at once.
    pub(crate) event: u64,
}
