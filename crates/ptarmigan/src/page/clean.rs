//! An owned table page in the state of its level.
use crate::addr::PhysAddr;

/// Memory for one table, in the state of its level: all zero, or constructed. Owned; not linked anywhere.
#[must_use = "a dropped table page is lost: link it or give it back with Policy::unused"]
#[derive(Debug)]
pub struct Clean(pub(super) PhysAddr);

impl Clean {
    /// Where it is.
    #[inline(always)]
    pub fn addr(&self) -> PhysAddr {
        self.0
    }

    /// Gives up the type, to link the table into an entry.
    #[inline(always)]
    pub fn into_raw(self) -> PhysAddr {
        self.0
    }

    /// Takes ownership back.
    ///
    /// # Safety
    ///
    /// 1. The caller owns the table's memory: it came from [`Clean::into_raw`] and nobody else has taken it.
    /// 2. Its content is in the state of the level it was handed out for.
    /// 3. No MMU can reach it: it never was linked, or has been unlinked and flushed everywhere.
    #[inline(always)]
    pub unsafe fn from_raw(at: PhysAddr) -> Self {
        Clean(at)
    }
}
