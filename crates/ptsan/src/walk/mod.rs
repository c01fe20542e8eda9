//! The walker of the software MMU: `walker` reads entries and fills caches, `access` decides when
//! to walk, `adversary` walks by itself.
mod access;
mod adversary;
mod hashed;
mod walker;
