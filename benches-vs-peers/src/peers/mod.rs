//! The other crates, one module each, used only through their documented calls.

pub mod aarch64_paging;
pub mod allocators;
pub mod page_table_generic;
pub mod page_table_multiarch;
pub mod x86_64;
