//! Names the kinds of gathers, each with the word that only it needs.
use crate::machine::{Machine, On};
use crate::tlb::{Runs, SpaceTlb, Ticket};

/// Takes the bits that stay away from empty entries of live tables of a space, for the pages given,
/// which have been flushed. The root of the tables is [`SpaceTlb::hashed_root`].
pub(crate) type Scrub<M> = for<'a> fn(On<'a, M>, &SpaceTlb, &Runs);

/// The work that ends with a gather.
pub(super) enum End<'a, M: Machine> {
    /// A page changes its frame. No tables are unlinked.
    Page,
    /// An operation on a space.
    Operation,
    /// The same, on tables of a format whose entries keep bits: all changes are told by
    /// [`changed_entry`](super::Gather::changed_entry).
    Hashed(Scrub<M>),
    /// A space.
    Space,
    /// A space, whose flush came first. `None` if it needed none, as no CPU has the space loaded.
    SpaceFlushed(Option<&'a Ticket>),
}

impl<M: Machine> End<'_, M> {
    /// Whether the policy is told, as an occasion to trim.
    #[inline(always)]
    pub fn is_told(&self) -> bool {
        !matches!(self, End::Page)
    }
}
