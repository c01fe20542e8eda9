//! Classes of pages, by the state that they rest in.

/// Classes of pages that rest in different states.
pub(super) const CLASSES: usize = 3;
/// Tables that are all zero: all but roots and those in high memory.
pub(super) const ZERO: usize = 0;
/// Root tables, as their constructor left them.
pub(super) const ROOT: usize = 1;
/// Classes of low memory: the two above.
pub(super) const LOW_CLASSES: usize = 2;
/// Leaf tables in high memory, all zero.
pub(super) const HIGH: usize = 2;
/// All classes, in the order in which they give pages back: those that are cheapest to make again
/// first.
pub(super) const EACH_CLASS: [usize; CLASSES] = [ZERO, HIGH, ROOT];
