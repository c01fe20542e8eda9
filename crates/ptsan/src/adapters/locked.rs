//! Locks that a panic elsewhere does not take away.
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A test that panicked elsewhere may still want its report.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
