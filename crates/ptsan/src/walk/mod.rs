//! The walker of the software MMU: `walker` reads entries and fills caches, `access` decides what
//! to walk for, `adversary` walks by itself.
mod access;
mod adversary;
mod hashed;
mod walker;
