//! Keeps what different threads write on different cache lines.

/// On cache lines of its own: what two threads write side by side would be measured with them.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);
