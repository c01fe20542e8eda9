//! Entries that change under a gather: it learns of them even if a callback panics.
use super::node::Span;
use crate::format::Format;
use crate::gather::Gather;
use crate::machine::Machine;
use crate::tlb::Mmu;

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

/// Pages one after the other whose entries allow more than they did. The MMU is told of all of them
/// at once, where it wants to know. If a callback panics before that, a CPU that uses one of them
/// faults, and the fault tells it.
#[derive(Default)]
pub(super) struct Gained {
    start: u64,
    /// The end of the last one.
    end: u64,
    /// The entry of the first one before.
    was: u64,
    /// The entry of the first one; 0 if there is none.
    raw: u64,
}

impl Gained {
    /// Adds the page at `va`, whose entry was `was` and is `raw`.
    #[inline(always)]
    pub fn add<F: Format, M: Machine>(&mut self, gather: &Gather<'_, M>, va: u64, was: u64, raw: u64) {
        if const { !<M::Shootdown as Mmu>::NEEDS_ENTRY_VALID } {
            return;
        }
        let end = va.wrapping_add(1 << F::PAGE_SHIFT);
        if va != self.end || self.raw == 0 {
            self.tell::<F, M>(gather);
            *self = Gained { start: va, end, was, raw };
        }
        self.end = end;
    }

    /// Tells the MMU of those that it was not told of.
    #[inline(never)]
    pub fn tell<F: Format, M: Machine>(&mut self, gather: &Gather<'_, M>) {
        let Gained { start, end, was, raw } = core::mem::take(self);
        if raw != 0 {
            gather.gained(start, end.wrapping_sub(start) >> F::PAGE_SHIFT, was, raw);
        }
    }
}
