//! The shortest way back for leaf tables of a space that has ended.
use super::Gather;
use super::end::End;
use crate::addr::Pfn;
use crate::frames::{FrameMeta, Use};
use crate::machine::Machine;
use crate::page::FlushedLeaves;
use crate::tlb::Mmu;

/// Leaf tables that go back together.
const TOGETHER: usize = 8;

/// Leaf tables of a space that ends, on their way to the policy: they need not wait on the gather's
/// chain, and each record is looked at once.
pub(crate) struct EndedLeaves {
    n: usize,
    /// The policy takes them so.
    takes: bool,
    tables: [Pfn; TOGETHER],
}

impl EndedLeaves {
    /// None. `takes` says that the flush of their space came first and that none of them has to
    /// wait, as [`Gather::is_unknown`] says.
    #[inline]
    pub fn new(takes: bool) -> Self {
        EndedLeaves { n: 0, takes, tables: [Pfn::NONE; TOGETHER] }
    }

    /// Whether leaf tables may be noted here; otherwise they go onto the gather's chain.
    #[inline]
    pub fn takes(&self) -> bool {
        self.takes
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }
}

impl<M: Machine> Gather<'_, M> {
    /// Whether the gather is one for the end of a space that was flushed first, and no MMU and no
    /// reader can know a table of it any more.
    #[inline]
    pub(crate) fn is_unknown(&self) -> bool {
        let is_flushed = self.unknown && matches!(self.ends, End::SpaceFlushed(_));
        let may_be_read = const { <M::Shootdown as Mmu>::HAS_READERS } && self.may_be_read;
        is_flushed && !may_be_read && const { <M::Shootdown as Mmu>::WALKS_TABLES }
    }

    /// Takes over a leaf table that has just been unlinked, of a space that ends.
    ///
    /// # Safety
    ///
    /// 1. to 3. As for [`table`](Self::table), for a leaf table.
    /// 4. `leaves` was made for this gather alone, [takes](EndedLeaves::takes) them, and goes to
    ///    [`give_leaves`](Self::give_leaves) unless it is empty.
    #[inline(always)]
    pub(crate) unsafe fn ended_leaf(&mut self, leaves: &mut EndedLeaves, pfn: Pfn, record: &FrameMeta) {
        debug_assert!(leaves.takes);
        debug_assert_eq!(record.usage(), Use::Table);
        debug_assert!(record.live() == 0 && record.touched() == 0, "table {pfn} is not empty");
        record.set_usage(Use::Taken);
        leaves.tables[leaves.n % TOGETHER] = pfn;
        leaves.n += 1;
        if leaves.n == TOGETHER {
            // SAFETY: 4.
            unsafe { self.give_leaves(leaves) };
        }
    }

    /// Gives leaf tables to the policy; puts them on the chain if it refuses them.
    ///
    /// # Safety
    ///
    /// 1. `leaves` was made for this gather alone.
    #[inline(never)]
    pub(crate) unsafe fn give_leaves(&mut self, leaves: &mut EndedLeaves) {
        // If the policy unwinds, no table is given back twice.
        let n = core::mem::take(&mut leaves.n);
        let tables = leaves.tables.get(..n).unwrap_or_default();
        // SAFETY: 1. and 2. contract of `ended_leaf`, 1. and 2.: each was noted once, and is
        // forgotten with `n`. 3. the flush came first and had every CPU leave the space for good,
        // and no CPU is left that may know a table (`is_unknown`, which `takes` says).
        let flushed = unsafe { FlushedLeaves::new(tables) };
        // SAFETY: 1. the space has its tables from the policy of its machine, which `on` is.
        let refused = unsafe { self.on.policy().flushed_leaves(flushed) };
        if let Err(refused) = refused {
            leaves.takes = false;
            self.refused_leaves(refused);
        }
    }

    /// Puts leaf tables that the policy refuses on the chain.
    #[cold]
    #[inline(never)]
    fn refused_leaves(&mut self, refused: FlushedLeaves<'_>) {
        for table in refused {
            let pfn = table.into_raw().pfn();
            let record = self.on.frames().meta(pfn);
            record.set_usage(Use::Table);
            // SAFETY: 1. and 2. `refused` owned it, empty. 3. looked up, and it says its level
            // since it was linked.
            unsafe { self.tables.push(pfn, record) };
        }
    }
}
