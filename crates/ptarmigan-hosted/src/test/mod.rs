//! Test doubles of a machine's parts, for tests of code that runs on them.
//!
//! | in a test of | take |
//! |---|---|
//! | flushes: which CPU is told to forget which addresses | [`TestMmu`]: TLBs that forget no more than they must, and a log |
//! | a call in the middle of another one, or one that fails | the hooks of [`TestMmu`] and of [`TestLayer`] |
//! | tables that come and go | [`TestLayer`] around the policy |
//! | anything else | [`NoTlb`](crate::NoTlb) |
//!
//! Paging-structure caches, speculative walks and bits that MMUs set are the subject of
//! [`ptarmigan-ptsan`](https://docs.rs/ptarmigan-ptsan), whose software MMUs read the tables.
mod call;
mod hooks;
mod layer;
mod mmu;
mod traits;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use call::{Call, Loaded, Method, ValidEntry};
pub use layer::{LayerCall, TestLayer};
pub use mmu::TestMmu;
pub use traits::{Broadcasting, Fencing, Interrupting, MmuTraits, Refilled};

/// Locks a double's state, also after a hook of the test has unwound.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
