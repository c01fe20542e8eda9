//! Which memory tables are made of.
use crate::frames::ZoneClass;
use crate::page::Level;

/// Decides of which class of memory the tables of each level are made.
///
/// There is one rule today. Leaf tables in high memory need a class of their own in the lists, as a
/// page of one class is handed out for any level of it, and a window that may have to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// All tables are in low memory.
    #[default]
    Low,
}

impl Placement {
    /// Returns the highest class of memory that a table of `level` may be made of.
    #[inline(always)]
    pub const fn class(self, _level: Level) -> ZoneClass {
        match self {
            Placement::Low => ZoneClass::Low,
        }
    }
}
