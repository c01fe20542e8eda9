//! Links of a process to its relatives.

/// A process's place among the children of its parent, and its own children. A process is named by
/// its slot plus 1; 0 is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Family {
    pub(super) eldest: u16,
    pub(super) youngest: u16,
    pub(super) older: u16,
    pub(super) younger: u16,
}

impl Family {
    /// A process without relatives.
    pub const NONE: Family = Family { eldest: 0, youngest: 0, older: 0, younger: 0 };
}
