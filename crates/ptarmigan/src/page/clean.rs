//! An owned table page in the state of its level.
use super::{Level, MAX_LEVELS};
use crate::addr::PhysAddr;

/// Memory for one table, in the state of its level: all zero, or constructed. Owned, and linked
/// nowhere.
///
/// A page knows its level, so a root table cannot come back as a leaf table:
///
/// ```compile_fail,E0061
/// use ptarmigan::{page::{Clean, Level}, quicklist::{Policy, PolicyOn}};
/// unsafe fn give_back_as_leaf(here: PolicyOn<'_, impl Policy>, root: Clean) {
///     unsafe { here.free_unlinked(Level::PTE, root) } // the page says its level itself
/// }
/// ```
#[must_use = "a dropped table page is lost: link it or give it back with PolicyOn::free_unlinked"]
pub struct Clean {
    /// The address; its low bits, which are 0 in every table's address, hold the level.
    word: u64,
}

/// The bits of an address that hold the level. Tables are aligned to 32 bytes or more.
const LEVEL: u64 = 7;
const _: () = assert!(MAX_LEVELS as u64 <= LEVEL + 1);

impl Clean {
    /// Returns the table's address.
    #[inline]
    pub fn addr(&self) -> PhysAddr {
        PhysAddr(self.word & !LEVEL)
    }

    /// Returns the level in whose state the table is.
    #[inline]
    pub fn level(&self) -> Level {
        Level((self.word & LEVEL) as u8)
    }

    /// Gives up the type, to link the table into an entry.
    #[inline]
    pub fn into_raw(self) -> PhysAddr {
        self.addr()
    }

    /// Takes ownership of a table.
    ///
    /// # Safety
    ///
    /// 1. The caller must own the table's memory: it came from [`Clean::into_raw`], or from an
    ///    allocator, and no other code has taken it. It is aligned to 8 bytes at least, and `level`
    ///    is below [`MAX_LEVELS`].
    /// 2. Its content must be in the state of `level`, it must be as large as a table of that
    ///    level, and lie in memory that such tables are made of. A page that came from
    ///    [`Clean::into_raw`] fits the level that it had.
    /// 3. No MMU can reach it: it never was linked, or it has been unlinked and flushed everywhere.
    #[inline]
    pub unsafe fn from_raw(at: PhysAddr, level: Level) -> Self {
        debug_assert!(at.0 & LEVEL == 0 && level.at() < MAX_LEVELS, "no table: {at}, level {}", level.0);
        // SAFETY: 1. the address is aligned and the level is below `MAX_LEVELS` (point 1).
        unsafe { core::hint::assert_unchecked(at.0 & LEVEL == 0 && u64::from(level.0) <= LEVEL) };
        Clean { word: at.0 | u64::from(level.0) }
    }
}

impl core::fmt::Debug for Clean {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Clean").field("addr", &self.addr()).field("level", &self.level()).finish()
    }
}
