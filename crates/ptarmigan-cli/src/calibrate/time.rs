//! Times of this host, for other commands.

/// A time of this host.
#[derive(Clone, Debug)]
pub(crate) struct HostTime {
    pub case: String,
    /// In `unit`.
    pub value: f64,
    pub unit: &'static str,
    /// Pages that are flushed.
    pub pages: usize,
}
