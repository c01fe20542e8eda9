//! Page-table memory.
#![cfg_attr(not(any(feature = "hosted", test)), no_std)]
pub mod addr;
pub mod bootmem;
pub mod cpu;
pub mod format;
pub mod frames;
pub mod quicklist;
pub mod sync;
pub mod tlb;
pub mod window;
