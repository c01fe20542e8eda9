//! Separates data of different threads by cache lines.

/// Aligned so that data of two threads never shares a cache line. False sharing would be measured
/// too.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);
