//! Blocks of Rust in the README, the book and the documents: each page is one program, which the
//! build script makes a test of. The test has the name of the page.
#![allow(
    unused,
    clippy::undocumented_unsafe_blocks,
    clippy::items_after_statements,
    reason = "pages are for people"
)]
include!(concat!(env!("OUT_DIR"), "/pages.rs"));
