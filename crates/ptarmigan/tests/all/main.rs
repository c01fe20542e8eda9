//! Tests of the library in one executable: `cargo test -p ptarmigan-tests --test all tree::` runs
//! one module of them. Beside it are tests of signals, of forks, of the allocator and of settings
//! of the whole process, and models of concurrency.
#[macro_use]
#[path = "../common/entries.rs"]
mod entries;
#[path = "../physical/mod.rs"]
mod physical;

// Run under Miri, by name: cargo xtask ci interpreter.
mod bootmem;
mod frames;
mod memory;

#[cfg(not(miri))]
mod areas;
#[cfg(not(miri))]
mod arguments;
#[cfg(not(miri))]
mod attributes;
#[cfg(not(miri))]
mod bounds;
#[cfg(not(miri))]
mod broadcasts;
#[cfg(not(miri))]
mod checked;
#[cfg(not(miri))]
#[path = "../common/mod.rs"]
mod common;
#[cfg(not(miri))]
mod deferred;
#[cfg(not(miri))]
mod failures;
#[cfg(not(miri))]
mod foreign;
#[cfg(not(miri))]
mod formats;
#[cfg(not(miri))]
mod groups;
#[cfg(not(miri))]
mod hash;
#[cfg(not(miri))]
mod hashed;
#[cfg(not(miri))]
mod hazards;
#[cfg(not(miri))]
mod high_tables;
#[cfg(not(miri))]
mod highmem;
#[cfg(not(miri))]
mod histories;
#[cfg(not(miri))]
mod history;
#[cfg(not(miri))]
mod hosts;
#[cfg(not(miri))]
mod identities;
#[cfg(not(miri))]
mod invariants;
#[cfg(not(miri))]
mod kernel_large;
#[cfg(not(miri))]
mod kernel_ranges;
#[cfg(not(miri))]
mod kernel_ranges_shared;
#[cfg(not(miri))]
mod large;
#[cfg(not(miri))]
mod large_objects;
#[cfg(not(miri))]
mod large_objects_failing;
#[cfg(not(miri))]
mod large_physical;
#[cfg(not(miri))]
mod large_spaces;
#[cfg(not(miri))]
mod large_zeroes;
#[cfg(not(miri))]
mod layers;
#[cfg(not(miri))]
mod linux_areas;
#[cfg(not(miri))]
mod low_memory;
#[cfg(not(miri))]
mod many_areas;
#[cfg(not(miri))]
mod memory_types;
#[cfg(not(miri))]
mod near;
#[cfg(not(miri))]
#[path = "../common/objects.rs"]
mod objects;
#[cfg(not(miri))]
mod owners;
#[cfg(not(miri))]
mod plans;
#[cfg(not(miri))]
mod protect;
#[cfg(not(miri))]
mod quicklist;
#[cfg(not(any(loom, miri)))]
#[path = "../common/reasons.rs"]
mod reasons;
#[cfg(not(miri))]
mod runs;
#[cfg(not(miri))]
mod setup;
// Its windows lie in the kernel's half of formats with 64 bits.
#[cfg(target_pointer_width = "64")]
mod setup_root;
#[cfg(not(miri))]
mod shared;
#[cfg(not(miri))]
mod shootdown;
#[cfg(not(miri))]
mod soundness;
#[cfg(not(miri))]
mod space;
#[cfg(not(miri))]
mod stack;
#[cfg(not(miri))]
mod stale;
#[cfg(not(miri))]
mod switch;
#[cfg(not(miri))]
mod threads;
#[cfg(not(miri))]
mod tlb;
#[cfg(not(miri))]
mod tree;
#[cfg(not(miri))]
mod unwinding;
#[cfg(not(miri))]
mod vmalloc;
#[cfg(not(miri))]
mod vmalloc_large;
#[cfg(not(miri))]
mod zero;
