//! Trees of tables.
//!
//! A [`Tree`] owns its tables. Each table's frame has a record
//! ([`FrameMeta`](crate::frames::FrameMeta)) with a count of its live entries and a bitmap of the
//! lines of it that have been written to. So whether a table is empty is known without looking, and
//! taking a space down visits only the lines that were used: the tables come back all zero because
//! every entry that was written has been cleared, and the count proves it. One file, `node`, writes
//! entries and records.
//!
//! | operation | lock | may allocate |
//! |---|---|---|
//! | [`TreeMut::map`], [`TreeMut::map_range`], copies and moves | `&mut Tree` | yes; on failure the tree is as before |
//! | [`TreeMut::map_large`], [`TreeMut::collapse`] | `&mut Tree` | yes, and reserve tables for parts |
//! | [`TreeMut::map_group`] | `&mut Tree` | yes, and reserve tables for parts |
//! | [`TreeMut::make_group`] | `&mut Tree` | never |
//! | [`TreeMut::unmap_range`], [`TreeMut::change_range`], [`TreeMut::split`], [`Tree::end`] | `&mut Tree` | never but what was reserved |
//! | [`TreeMut::take_dirty`], [`TreeMut::take_accessed`], [`TreeMut::write_protect`] | `&mut Tree` | never but what was reserved |
//! | [`TreeRef::query`], [`TreeRef::walk`] | `&Tree` | never |
//! | [`KernelRange::map`] | `&mut KernelRange`; links above its leaf tables: a spin lock | yes; no page is mapped on failure |
//! | [`KernelRange::map_range_large`], [`KernelRange::collapse`] | as [`KernelRange::map`] | yes, and reserve tables for parts |
//! | [`KernelRange::unmap`], [`KernelRange::protect`], [`KernelRange::split`] | `&mut KernelRange`; large pages that go: the spin lock | never but what was reserved |
//! | faults of a [shared space](crate::space::SharedSpace) | one table at a time | yes |
//! | [`SharedSpace::query`](crate::space::SharedSpace::query) | no lock; tables are kept from reuse | never |
mod adopt;
mod broken;
mod change_effect;
mod change_range;
mod changes;
mod concurrent;
mod cursor;
mod dirty;
mod dump;
mod gathers;
mod group;
mod grow;
mod kernel;
mod large;
mod large_physical;
mod large_spaces;
mod map_error;
mod mapped;
mod near;
mod node;
mod range;
mod refill;
mod regroup;
mod reserve;
mod sizes;
mod stale;
mod tables;
mod tree;
mod unmap;

pub use cursor::Cursor;
pub use dump::Dump;
pub use kernel::{
    ClaimError, KernelMap, KernelMapError, KernelRange, KernelRangeError, KernelSlots, MAX_RANGES,
    MemoryTooHigh, SlotsError, check_memory,
};
pub use map_error::{CollapseError, MapError};
pub use mapped::Mapped;
pub use sizes::Sizes;
pub use tree::{Tree, TreeMut, TreeRef, TreeView};
pub use unmap::Free;

pub(crate) use change_effect::frame_bits;
pub(crate) use concurrent::{Leaf, Locked, PutError};
pub(crate) use large::is_aligned;
pub(crate) use large_physical::Shown;
pub(crate) use node::{NeedsBreak, Use};
pub(crate) use tables::{Descent, Tables};
