//! Names spaces, and orders the generations of their flushes.

/// Names an address space: [`Tlb::new_space`](super::Tlb::new_space) hands names out, each only
/// once.
///
/// ```compile_fail,E0423
/// use ptarmigan::tlb::SpaceId;
/// let twin = SpaceId(1); // the number is private
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(pub(super) u64);

impl SpaceId {
    /// The name of no space.
    pub(super) const NONE: SpaceId = SpaceId(0);

    /// Returns the number behind the name, for tables and reports. It is not 0.
    #[inline]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Counts a space's flushes; a CPU whose copy is behind must flush before it uses the space again.
///
/// It wraps. Two generations are ordered by their distance, so the order holds as long as no CPU is
/// half a round behind: [`SpaceTlb`](super::SpaceTlb) sees to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(pub usize);

impl Generation {
    /// The one after.
    #[inline]
    pub fn next(self) -> Self {
        Generation(self.0.wrapping_add(1))
    }

    /// Whether this one is `other` or came after it.
    #[inline]
    pub fn reaches(self, other: Generation) -> bool {
        self.0.wrapping_sub(other.0) as isize >= 0
    }
}
