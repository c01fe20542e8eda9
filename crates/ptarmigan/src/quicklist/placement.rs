//! Which memory tables are made of.
use super::AutoPlacement;
use crate::frames::{HighUse, ZoneClass};

/// Decides of which class of memory leaf tables are made: the value of the boot parameter
/// `userpte=`.
///
/// Only tables whose callers [allow it](HighUse) are placed in high memory: leaf tables of user
/// space on machines whose window [reaches](crate::machine::Machine::HIGH_TABLES) them. Roots, the
/// tables between, and the kernel's own stay in low memory.
#[derive(Clone, Copy, Debug, Default)]
pub enum Placement<'m> {
    /// All tables are in low memory: `userpte=nohigh`.
    #[default]
    Low,
    /// Leaf tables are in high memory as long as there is some: `userpte=high`.
    High,
    /// Decided for each table: `userpte=auto`.
    Auto(&'m AutoPlacement),
}

impl Placement<'_> {
    /// Returns whether all tables are in low memory.
    #[inline]
    pub const fn is_low(self) -> bool {
        matches!(self, Placement::Low)
    }

    /// Returns the class of memory of which a table should be made now. If it is exhausted, the
    /// other one does, where [`highest`](Self::highest) allows it.
    #[inline]
    pub fn preferred(self, high: HighUse) -> ZoneClass {
        let prefers_high = match (self, high) {
            (Placement::Low, _) | (_, HighUse::Never) => false,
            (Placement::High, _) => true,
            (Placement::Auto(auto), high) => auto.prefers_high(high),
        };
        if prefers_high { ZoneClass::High } else { ZoneClass::Low }
    }

    /// Returns the highest class of memory of which a table may be made.
    #[inline]
    pub const fn highest(self, high: HighUse) -> ZoneClass {
        match (self, high) {
            (Placement::Low, _) | (_, HighUse::Never) => ZoneClass::Low,
            _ => ZoneClass::High,
        }
    }
}
