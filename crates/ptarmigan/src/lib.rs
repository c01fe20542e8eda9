//! Page-table memory.
#![cfg_attr(not(any(feature = "hosted", test)), no_std)]
