//! The shortest way back for leaf tables of a space that has ended.
use super::Gather;
use super::end::End;
use crate::addr::Pfn;
use crate::frames::{FrameMeta, Use};
use crate::machine::Machine;
use crate::page::{FlushedLeaves, TOGETHER};
use crate::tlb::Mmu;

/// Leaf tables of a space that ends, on their way to the policy: they need not wait on the gather's
/// chain, and each record is looked at once. Dropping it gives them to the policy.
pub(crate) struct EndedLeaves<'g, 'a, M: Machine> {
    gather: &'g mut Gather<'a, M>,
    /// So many have come. The last of them, down to a multiple of [`TOGETHER`], are still here.
    n: usize,
    tables: [Pfn; TOGETHER],
}

impl<'g, 'a, M: Machine> EndedLeaves<'g, 'a, M> {
    /// None. The gather must [be unknown](Gather::is_unknown).
    #[inline(always)]
    pub fn new(gather: &'g mut Gather<'a, M>) -> Self {
        debug_assert!(gather.is_unknown());
        EndedLeaves { gather, n: 0, tables: [Pfn::NONE; TOGETHER] }
    }

    /// The gather.
    #[inline(always)]
    pub fn gather(&mut self) -> &mut Gather<'a, M> {
        self.gather
    }

    /// Returns how many have come.
    #[inline(always)]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Takes over a leaf table that has just been unlinked.
    ///
    /// # Safety
    ///
    /// 1. to 3. As for [`table`](Gather::table), for a leaf table.
    #[inline(always)]
    pub unsafe fn add(&mut self, pfn: Pfn, record: &FrameMeta) {
        debug_assert_eq!(record.usage(), Use::Table);
        debug_assert!(record.live() == 0 && record.touched() == 0, "table {pfn} is not empty");
        record.set_usage(Use::Taken);
        self.tables[self.n % TOGETHER] = pfn;
        self.n += 1;
        if self.n.is_multiple_of(TOGETHER) {
            // SAFETY: 1. `add` noted each once, by its contract, since the last such multiple.
            unsafe { give_leaves(self.gather, &self.tables) };
        }
    }
}

impl<M: Machine> Drop for EndedLeaves<'_, '_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        let tables = self.tables.get(..self.n % TOGETHER).unwrap_or_default();
        if !tables.is_empty() {
            // SAFETY: 1. `add` noted each once, by its contract, and has not given it.
            unsafe { give_leaves(self.gather, tables) };
        }
    }
}

/// Gives leaf tables of the gather's space to the policy; puts them on the chain if it refuses
/// them.
///
/// # Safety
///
/// 1. The tables are empty leaf tables of the space, of which the caller has unlinked each, and
///    gives it away; their records say [`Use::Taken`]. The gather [is
///    unknown](Gather::is_unknown).
#[inline(never)]
unsafe fn give_leaves<M: Machine>(gather: &mut Gather<'_, M>, tables: &[Pfn]) {
    // SAFETY: 1. and 2. by the caller. 3. the flush came first, or was not needed, and no CPU is
    // left that may know a table (`is_unknown`).
    let flushed = unsafe { FlushedLeaves::new(tables) };
    // SAFETY: 1. the space has its tables from the policy of its machine, which `on` is.
    if let Err(refused) = unsafe { gather.on.policy().flushed_leaves(flushed) } {
        gather.refused_leaves(refused);
    }
}

impl<M: Machine> Gather<'_, M> {
    /// Whether the gather is one for the end of a space that was flushed first, or that no CPU has
    /// loaded, and no MMU and no reader can know a table of it any more.
    #[inline]
    pub(crate) fn is_unknown(&self) -> bool {
        let is_flushed = self.unknown && matches!(self.ends, End::SpaceFlushed(_));
        let may_be_read = const { <M::Shootdown as Mmu>::HAS_READERS } && self.may_be_read;
        is_flushed && !may_be_read && const { <M::Shootdown as Mmu>::WALKS_TABLES }
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
