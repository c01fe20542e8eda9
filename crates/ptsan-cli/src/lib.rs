//! The command `ptsan`, as a library: replays logs of `ptsan-log` under the sanitizer, and prints
//! them.
#![forbid(unsafe_code)]

// The rooms. Each uses only those above it.
pub mod failure;
mod input;
mod wrap;

mod symbols;

pub mod dump;
pub mod replay;
