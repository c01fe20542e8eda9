//! Holds a word that only one kind of gather needs: gathers lie on the stacks of operations.
use crate::machine::{Machine, On};
use crate::tlb::{Runs, SpaceTlb, Ticket};

/// Takes the bits that stay away from empty entries of live tables of a space, for the pages given,
/// which have been flushed. The root of the tables is [`SpaceTlb::hashed_root`].
pub(crate) type Scrub<M> = for<'a> fn(On<'a, M>, &SpaceTlb, &Runs);

/// One of the two, or neither. The gather knows which.
pub(super) union Extra<'a, M: Machine> {
    ended: Option<&'a Ticket>,
    scrub: Option<Scrub<M>>,
}

impl<'a, M: Machine> Extra<'a, M> {
    /// Empty, for either reading: both are null then.
    pub const NONE: Self = Extra { ended: None };

    /// For the end of a space: the flush, which came first.
    pub fn ended(ticket: &'a Ticket) -> Self {
        Extra { ended: Some(ticket) }
    }

    /// For tables of a format whose entries keep bits.
    pub fn scrub(scrub: Scrub<M>) -> Self {
        Extra { scrub: Some(scrub) }
    }

    /// The flush that came first, if that was put in.
    ///
    /// # Safety
    ///
    /// 1. It must not have been made by [`scrub`](Self::scrub).
    #[inline(always)]
    pub unsafe fn as_ended(&self) -> Option<&'a Ticket> {
        // SAFETY: by the caller's point 1 it is this one.
        unsafe { self.ended }
    }

    /// How bits are taken away, if that was put in.
    ///
    /// # Safety
    ///
    /// 1. It must not have been made by [`ended`](Self::ended).
    #[inline(always)]
    pub unsafe fn as_scrub(&self) -> Option<Scrub<M>> {
        // SAFETY: by the caller's point 1 it is this one, or `NONE`: no reference and no function
        // is the null pointer, which stands for `None` of both.
        unsafe { self.scrub }
    }
}
