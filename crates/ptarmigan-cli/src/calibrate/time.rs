//! Times of this host, for other commands.

/// A time of this host.
#[derive(Clone, Debug)]
pub struct HostTime {
    /// The call, and the pages that it flushes.
    pub case: String,
    /// The time, or the number, in `unit`.
    pub value: f64,
    /// The unit of `value`.
    pub unit: &'static str,
    /// Pages that are flushed.
    pub pages: usize,
}
