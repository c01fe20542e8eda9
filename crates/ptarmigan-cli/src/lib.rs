//! The workbench as a library.
pub mod bench;
