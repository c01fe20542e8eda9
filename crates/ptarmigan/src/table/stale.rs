//! Entries that change under a gather: it learns of them even if a callback panics.
use super::node::Span;
use crate::gather::Gather;
use crate::machine::Machine;

/// Entries of a leaf table that are being cleared or changed, for the gather that has to know of
/// them. If a callback panics, the gather is told of all that may have been.
pub(super) struct Stale<'a, 'g, M: Machine> {
    pub gather: &'g mut Gather<'a, M>,
    base: u64,
    shift: u32,
    first: usize,
    last: usize,
}

impl<'a, 'g, M: Machine> Stale<'a, 'g, M> {
    /// Of a table with pages of 2^`shift` bytes that maps addresses from `base` on; entries from
    /// `first` to `last` (inclusive).
    #[inline]
    pub fn new(gather: &'g mut Gather<'a, M>, base: u64, shift: u32, (first, last): (usize, usize)) -> Self {
        Stale { gather, base, shift, first, last }
    }

    /// Tells the gather: the entries in `changed`, if any.
    #[inline]
    pub fn end(self, changed: Span) {
        let mut all = core::mem::ManuallyDrop::new(self);
        if let Some((first, last)) = changed.ends() {
            (all.first, all.last) = (first, last);
            all.tell();
        }
    }

    #[inline]
    fn tell(&mut self) {
        let at = |index: usize| self.base + ((index as u64) << self.shift);
        self.gather.changed_run(at(self.first), at(self.last + 1));
    }
}

impl<M: Machine> Drop for Stale<'_, '_, M> {
    #[cold]
    fn drop(&mut self) {
        self.tell();
    }
}
