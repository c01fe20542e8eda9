//! A bit for each page.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits that any thread may change. They order nothing: a page's bits are its owner's.
pub(super) struct Bits(Box<[AtomicU64]>);

impl Bits {
    /// Makes `n` bits, none of them set. `None` if there is no memory for them.
    pub fn new(n: usize) -> Option<Self> {
        let mut words = Vec::new();
        words.try_reserve_exact(n.div_ceil(64)).ok()?;
        words.resize_with(n.div_ceil(64), AtomicU64::default);
        Some(Bits(words.into_boxed_slice()))
    }

    /// Returns whether bit `n` is set.
    pub fn is_set(&self, n: usize) -> bool {
        self.0[n / 64].load(Relaxed) >> (n % 64) & 1 == 1
    }

    /// Sets or clears bit `n`. Returns whether it was set before.
    pub fn replace(&self, n: usize, set: bool) -> bool {
        let (word, bit) = (&self.0[n / 64], 1 << (n % 64));
        let before = if set { word.fetch_or(bit, Relaxed) } else { word.fetch_and(!bit, Relaxed) };
        before & bit != 0
    }
}
