//! Performs the parts of Linux's calls that the library leaves out: properties that keep areas
//! apart, pages that are locked, calls that fail half-way.
//!
//! The rules are those of [docs/linux.md](../../../../../docs/linux.md#life-of-a-space).
mod advice;
mod blocks;
mod calls;
mod error;
mod faults;
mod lock;
mod objects;
mod options;
mod pieces;
mod tags;

pub use advice::DONTNEED_LOCKED;
pub use blocks::{Blocks, SIZES as BLOCK_SIZES};
pub use calls::{SPLIT, call, ends_unknown, follow_advice, forked, is_found, tables_of};
pub use error::CallError;
pub use faults::{HugeFaults, huge_only, is_huge_only, refused};
pub use objects::has_page;
pub use options::{RECORDED_EMPTY_TABLES, begin};
pub use pieces::PAGE;
