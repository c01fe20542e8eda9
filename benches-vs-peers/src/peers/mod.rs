//! The other crates, one module each, and nothing but the calls they document.

pub mod aarch64_paging;
pub mod allocators;
pub mod page_table_generic;
pub mod page_table_multiarch;
pub mod x86_64;
