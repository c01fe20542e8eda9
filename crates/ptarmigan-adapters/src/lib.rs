//! Table pages for page-table crates of other people, as these crates are released.
//!
//! A page-table crate asks its user for table pages by a trait, and each of these traits has room
//! for less than a [policy](ptarmigan::quicklist::Policy) knows: that a page is zero already, which
//! of its lines were written, that TLBs may still know it. There are two ways to pages of the
//! lists:
//!
//! * **Hooks**: the crate's own trait, over [`Pages`]. The crate works as ever. Work of which its
//!   trait does not tell is done again: a table that is zero is cleared, and one that comes back
//!   full is cleared as a whole.
//! * **Spaces**: a tree of the crate together with its pages. The space makes the tables that an
//!   operation needs before it calls the crate, notes which lines the crate is about to write, and
//!   takes the tree apart by these lines. So lines that are clear are not cleared, and lines that
//!   were never written are not read. Entries are made, found, changed and removed by the crate.
//!
//! | feature | crate | hooks | space |
//! |---|---|---|---|
//! | `aarch64-paging` | aarch64-paging 0.12 | `Tables` (`Translation`) | `Noted` over `RootTable` or `Mapping` |
//! | `page_table_multiarch` | page_table_multiarch 0.6 | `Handler` (`PagingHandler`) | `Space` |
//! | `page-table-generic` | page-table-generic 0.9 | `Frames` (`FrameAllocator`) | `Space` |
//! | `x86_64` | x86_64 0.15 | `Frames` (`FrameAllocator`, `FrameDeallocator`) | `Space` |
//!
//! README.md has the figures: `cargo run --profile dist -p benches-vs-peers -- adapters`. Spaces
//! are for sparse trees; dense ones do not gain, and may lose.
//!
//! # When a table comes back
//!
//! Three of the four crates give tables back before TLBs have forgotten them. So [`Pages`] keeps
//! returned pages until its user has flushed: [`Pages::take_waiting`], flush, [`Waiting::flushed`].
//! Where no MMU walks the trees, or the crate has flushed already, [`Pages::at_once`] says so.
//!
//! # Versions
//!
//! Types of these crates are part of the signatures here, and spaces rely on the behaviour of the
//! crates. A version of theirs that is not compatible changes these features.
#![no_std]
#[cfg(all(feature = "aarch64-paging", target_pointer_width = "64"))]
pub mod aarch64_paging;
mod home;
#[cfg(feature = "page-table-generic")]
pub mod page_table_generic;
#[cfg(all(feature = "page_table_multiarch", target_pointer_width = "64"))]
pub mod page_table_multiarch;
mod pages;
#[cfg(any(
    feature = "aarch64-paging",
    feature = "page-table-generic",
    feature = "page_table_multiarch",
    feature = "x86_64"
))]
mod tree;
#[cfg(feature = "x86_64")]
pub mod x86_64;

pub use home::Home;
pub use pages::{Pages, UnfitTables, Waiting};

#[cfg(all(doctest, feature = "x86_64"))]
#[doc = include_str!("../README.md")]
struct Readme;
