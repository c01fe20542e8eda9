//! Room for the parts that other parts borrow.
use super::half::KernelHalf;
use crate::format::Format;
use crate::frames::Frames;
use crate::quicklist::AutoPlacement;
use crate::sync::once::Once;

/// Frames, and the kernel's half.
pub(super) struct Base<F: Format, W> {
    pub frames: Frames,
    pub half: KernelHalf<F, W>,
    pub auto: Option<AutoPlacement>,
}

/// Room for the parts of a machine that its other parts borrow. It holds one machine, which lives
/// as long as it does at most.
pub struct Place<F: Format, W> {
    pub(super) base: Once<Base<F, W>>,
}

impl<F: Format, W> Place<F, W> {
    /// Makes an empty place.
    pub const fn new() -> Self {
        Place { base: Once::new() }
    }
}

impl<F: Format, W> Default for Place<F, W> {
    fn default() -> Self {
        Place::new()
    }
}
