//! The walker of the software MMU: `walker` reads entries and fills caches, `access` decides when
//! to walk, `adversary` walks by itself, `invalid` is about entries that were not valid and are
//! kept.
mod access;
mod adversary;
mod bits;
mod hashed;
mod invalid;
mod walker;
