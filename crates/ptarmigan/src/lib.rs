//! Page-table memory.
#![cfg_attr(not(any(feature = "hosted", test)), no_std)]
pub mod addr;
pub mod bootmem;
pub mod cpu;
pub mod format;
pub mod frames;
#[cfg(feature = "hosted")]
pub mod hosted;
pub mod quicklist;
pub mod space;
pub mod sync;
pub mod table;
pub mod tlb;
pub mod window;
