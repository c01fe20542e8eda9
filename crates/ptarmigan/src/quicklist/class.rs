//! Levels of a tree of tables, the memory each needs, and the state its pages rest in.
use crate::addr::{FRAME_SHIFT, PhysAddr};
use crate::frames::Frames;

/// Levels that a tree may have.
pub const MAX_LEVELS: usize = 5;

/// A level of a tree: 0 are the tables that hold pages (PTE tables), the highest is the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u8);

impl Level {
    /// Tables that hold pages.
    pub const PTE: Level = Level(0);

    /// As an index.
    #[inline(always)]
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// What the tables of each level need of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of levels, the top included.
    pub levels: u8,
    /// Binary logarithm of a table's bytes, by level.
    pub table_shift: [u8; MAX_LEVELS],
}

impl Layout {
    /// The top level.
    #[inline(always)]
    pub const fn top(&self) -> Level {
        Level(self.levels - 1)
    }

    /// All levels, lowest first.
    pub fn each_level(&self) -> impl Iterator<Item = Level> + use<> {
        (0..self.levels).map(Level)
    }

    /// Whether tables of this level are smaller than a frame.
    #[inline(always)]
    pub fn is_small(&self, level: Level) -> bool {
        (self.table_shift[level.at()] as u32) < FRAME_SHIFT
    }

    /// Bytes in a table of this level.
    #[inline(always)]
    pub fn table_bytes(&self, level: Level) -> u64 {
        1 << self.table_shift[level.at()]
    }

    /// The order of the block of frames that holds a table of this level; 0 for those smaller than a frame.
    #[inline(always)]
    pub fn order(&self, level: Level) -> u8 {
        (self.table_shift[level.at()] as u32).saturating_sub(FRAME_SHIFT) as u8
    }
}

/// Makes top tables: copies the kernel's entries in and keeps the table known to whoever changes those.
///
/// Runs only when a page comes from the allocator and when it goes back to it; a page that rests on a list stays
/// constructed.
pub trait Construct: Sync {
    /// Brings an all-zero table into its constructed state.
    fn construct(&self, frames: &Frames, top: PhysAddr);

    /// The same where it can fail: false, and the table is all zero as it was. Constructors that need nothing which may
    /// be short need not say anything.
    #[inline(always)]
    fn try_construct(&self, frames: &Frames, top: PhysAddr) -> bool {
        self.construct(frames, top);
        true
    }

    /// Brings a constructed table back to all zero and forgets it.
    fn destruct(&self, frames: &Frames, top: PhysAddr);
}

/// Top tables rest all zero, as other tables do: where the kernel has a root of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConstruct;

impl Construct for NoConstruct {
    #[inline(always)]
    fn construct(&self, _: &Frames, _: PhysAddr) {}
    #[inline(always)]
    fn destruct(&self, _: &Frames, _: PhysAddr) {}
}

impl<C: Construct> Construct for &C {
    #[inline(always)]
    fn construct(&self, frames: &Frames, top: PhysAddr) {
        (**self).construct(frames, top);
    }
    #[inline(always)]
    fn try_construct(&self, frames: &Frames, top: PhysAddr) -> bool {
        (**self).try_construct(frames, top)
    }
    #[inline(always)]
    fn destruct(&self, frames: &Frames, top: PhysAddr) {
        (**self).destruct(frames, top);
    }
}
