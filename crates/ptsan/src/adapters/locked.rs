//! Locking that survives a panic elsewhere.
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex. A poisoned one is taken too: a test that panicked elsewhere may still want its
/// report.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
