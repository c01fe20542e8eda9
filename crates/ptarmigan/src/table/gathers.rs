//! Makes the gathers of a tree, and looks after pages that are kept in a hash table too.
use super::range::each_leaf_table;
use super::tables::Tables;
use crate::addr::{PhysAddr, VirtRange};
use crate::format::Format;
use crate::gather::Gather;
use crate::machine::{Machine, On};
use crate::tlb::{Runs, SpaceTlb, Ticket};

/// Takes the bits that stay away from empty entries of the user's pages in `runs`, in the tables of
/// `space`. The machine has forgotten these pages.
fn scrub<F: Format, M: Machine>(on: On<'_, M>, space: &SpaceTlb, runs: &Runs) {
    let root = space.hashed_root().addr();
    for (start, end) in runs.iter() {
        // An end of 0 comes after all addresses.
        let end = if end == 0 { F::USER_END } else { end };
        each_leaf_table::<F, M>(on, root, VirtRange::ordered(start, end), &mut |node, _, first, last| {
            node.scrub(first, last);
        });
    }
}

impl<F: Format> Tables<F> {
    /// Makes a gather for operations on these tables, which belong to `space`. As [`Gather::open`]
    /// otherwise.
    #[inline]
    pub fn gather<'a, M: Machine>(
        &self,
        on: On<'a, M>,
        space: &'a SpaceTlb,
        may_be_private: bool,
    ) -> Gather<'a, M> {
        if const { F::KEPT == 0 } {
            // Made where it stays.
            return Gather::open(on, space, F::PAGE_SHIFT, may_be_private);
        }
        let mut gather = Gather::open(on, space, F::PAGE_SHIFT, may_be_private);
        space.set_hashed_root(self.root().pfn());
        gather.keep_exact(scrub::<F, M>);
        gather
    }

    /// Makes `gather`, which is [new](Gather::open), one for the end of these tables and of their
    /// space. As [`Gather::end_space`] otherwise.
    #[inline]
    pub fn end_space<'a, M: Machine>(&self, gather: &mut Gather<'a, M>, ticket: &'a mut Option<Ticket>) {
        gather.end_space(ticket, |gather| {
            if const { F::KEPT != 0 } {
                note_hashed::<F, M>(self.root(), gather);
            }
            F::KEPT != 0
        });
    }
}

/// Notes at the gather the user's pages that were hashed, in the tables whose root is at `root`.
#[inline(never)]
fn note_hashed<F: Format, M: Machine>(root: PhysAddr, gather: &mut Gather<'_, M>) {
    each_leaf_table::<F, M>(gather.on(), root, Tables::<F>::USER, &mut |node, base, first, last| {
        node.each(first, last, |index, raw| {
            gather.changed_entry::<F>(base + ((index as u64) << F::PAGE_SHIFT), raw);
        });
    });
}
