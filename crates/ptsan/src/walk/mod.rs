//! The walker of the software MMU: `walker` reads entries and fills caches, `access` decides what is walked for,
//! `adversary` walks of its own accord.
mod access;
mod adversary;
mod walker;
