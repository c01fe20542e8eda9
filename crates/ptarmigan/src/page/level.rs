//! Levels of a tree of tables, and the memory that a table of each needs.
use crate::addr::FRAME_SHIFT;

/// Levels that a tree may have.
pub const MAX_LEVELS: usize = 5;

/// A level of a tree: 0 are the tables that hold pages (PTE tables), the highest is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u8);

impl Level {
    /// Tables that hold pages.
    pub const PTE: Level = Level(0);

    /// Returns the level as an index.
    #[inline]
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// Computes the memory that tables of each level need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of levels, the root included.
    pub levels: u8,
    /// Binary logarithm of a table's bytes, by level.
    pub table_shift: [u8; MAX_LEVELS],
}

impl Layout {
    /// Returns the root's level.
    #[inline]
    pub const fn root(&self) -> Level {
        Level(self.levels - 1)
    }

    /// Iterates over all levels, the lowest first.
    pub fn each_level(&self) -> impl Iterator<Item = Level> + use<> {
        (0..self.levels).map(Level)
    }

    /// Returns the binary logarithm of a table's bytes; of a frame's bytes for a level that the
    /// format lacks.
    #[inline]
    fn shift(&self, level: Level) -> u32 {
        self.table_shift.get(level.at()).map_or(FRAME_SHIFT, |shift| u32::from(*shift))
    }

    /// Returns whether tables of this level are smaller than a frame.
    #[inline]
    pub fn is_small(&self, level: Level) -> bool {
        self.shift(level) < FRAME_SHIFT
    }

    /// Returns the bytes in a table of this level.
    #[inline]
    pub fn table_bytes(&self, level: Level) -> u64 {
        1 << self.shift(level)
    }

    /// Returns the order of the block of frames that holds a table of this level; 0 for tables
    /// smaller than a frame.
    #[inline]
    pub fn order(&self, level: Level) -> u8 {
        self.shift(level).saturating_sub(FRAME_SHIFT) as u8
    }
}
