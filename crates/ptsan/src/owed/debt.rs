//! One debt.
use super::mask::CpuMask;
use crate::arch::Perms;
use crate::report::{Rule, Stored};
use crate::shadow::FrameRef;

/// Stands for the space of a global translation, which is held in every space.
pub(crate) const GLOBAL: u64 = u64::MAX;

/// Returns whether a debt is about an attribute of a page (dirty, global, memory type), not about
/// its address or its permissions.
pub(crate) fn is_state(rule: Rule) -> bool {
    matches!(rule, Rule::DirtyNotFlushed | Rule::GlobalNotFlushed | Rule::TypeNotFlushed)
}

/// A translation that CPUs may hold and that memory no longer gives.
#[derive(Clone, Debug)]
pub(crate) struct PageDebt {
    /// The space, or [`GLOBAL`].
    pub(crate) space: u64,
    /// First address of the page.
    pub(crate) va: u64,
    /// The level of the entry that mapped it.
    pub(crate) level: u8,
    /// Where it was mapped.
    pub(crate) phys: u64,
    /// The permissions.
    pub(crate) perms: Perms,
    /// The rule that a missing flush breaks.
    pub(crate) rule: Rule,
    /// Physical address of the root below which it was mapped.
    pub(crate) root: u64,
    /// Physical address of the entry that was stored to, and its value before.
    pub(crate) entry: u64,
    pub(crate) raw: u64,
    /// Event of the store.
    pub(crate) since: u64,
    /// The number of operations that had begun by then.
    pub(crate) begun: u64,
    /// A flush covered it, but the store was not ordered before that flush.
    pub(crate) unordered: bool,
    /// The CPU that stored, if it is known.
    pub(crate) by: Option<usize>,
    /// The callers of the store, if they are remembered.
    pub(crate) store: Option<Stored>,
    /// The CPUs that owe a flush.
    pub(crate) cpus: CpuMask,
    /// The owing CPUs that have flushed the page, but not translations combined from it and another
    /// stage.
    pub(crate) combined: CpuMask,
}

impl PageDebt {
    /// Returns whether another debt is about the same translation.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        // A debt for a lost right covers a debt for an attribute.
        let rules = self.rule == other.rule || is_state(self.rule) != is_state(other.rule);
        self.phys == other.phys && rules && self.root == other.root
    }
}

/// A table that CPUs may hold in their paging-structure caches and that no entry points at.
#[derive(Clone, Debug)]
pub(crate) struct TableDebt {
    pub(crate) space: u64,
    pub(crate) frame: FrameRef,
    /// The first address that it translated.
    pub(crate) va: u64,
    /// Its level.
    pub(crate) level: u8,
    /// Event of the store.
    pub(crate) since: u64,
    /// As in [`PageDebt`].
    pub(crate) unordered: bool,
    /// As in [`PageDebt`].
    pub(crate) by: Option<usize>,
    /// As in [`PageDebt`].
    pub(crate) store: Option<Stored>,
    pub(crate) cpus: CpuMask,
}
