//! Trees of tables.
//!
//! A [`Tree`] owns its tables. Each table's frame has a record ([`FrameMeta`](crate::frames::FrameMeta)) with a
//! count of its live entries and a bitmap of the parts of it (one bit for each 64th, a cache line of a 4 KiB table)
//! that have been written to. So whether a table is empty is known without looking, and taking a space down visits
//! only the lines that were used: the tables come back all zero because every entry that was written has been
//! cleared, and the count proves it.
//!
//! | operation | what is locked | may allocate |
//! |---|---|---|
//! | [`Tree::map`], [`Tree::map_range`], copies and moves | `&mut Tree` | yes; nothing is left behind on failure |
//! | [`Tree::unmap_range`], [`Tree::change_range`], [`Tree::end`] | `&mut Tree` | never |
//! | [`Tree::query`], [`Tree::walk`] | `&Tree` | never |
//! | faults of a [shared space](crate::space::SharedSpace) | one table at a time | yes |
//! | [`SharedSpace::query`](crate::space::SharedSpace::query) | nothing; tables are kept from reuse | never |
mod cursor;
mod dump;
mod kernel_map;
mod lock;
mod machine;
mod ranges;
mod shared;
mod slots;
mod tree;

pub use cursor::Cursor;
pub use dump::Dump;
pub use kernel_map::KernelMap;
pub use machine::{GatherOf, Machine, parts};
pub use ranges::Free;
pub use tree::{MapError, Tree};
