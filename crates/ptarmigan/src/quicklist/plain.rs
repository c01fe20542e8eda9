//! No caching: the policy that everything is compared with.
use super::tally::Tallies;
use super::{Here, Policy, PolicyCounts, Returned, Source, TakesUnhooked};
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::{CpuId, MachineId, NodeId};
use crate::frames::{AllocFlags, NoFrame};
use crate::page::{Clean, Construct, Flushed, Level};
use crate::window::OpenWindow;

/// Takes and clears a page each time; gives it back, content forgotten, when the flush is over.
/// Allocates and frees pages as kernels without a cache of table pages do.
pub struct Plain<'m, W, C> {
    source: Source<'m, W, C>,
    tallies: Tallies,
}

impl<'m, W: OpenWindow, C: Construct> Plain<'m, W, C> {
    /// For `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if its counters do not fit.
    pub fn new(
        boot: &mut BootMemory,
        cpus: usize,
        source: Source<'m, W, C>,
    ) -> Result<Self, BootMemoryShort> {
        Ok(Plain { source, tallies: Tallies::new(boot, cpus)? })
    }

    /// Boot memory for `cpus` CPUs.
    pub const fn bytes(cpus: usize) -> usize {
        Tallies::bytes(cpus)
    }

    /// The counts of one CPU. A page may be counted as allocated on one CPU and as freed on
    /// another.
    pub fn counts_on(&self, cpu: CpuId) -> PolicyCounts {
        self.tallies.on(cpu)
    }

    /// Returns the number of low frames in tables.
    fn low_tables(&self) -> u32 {
        let counts = self.tallies.sum();
        (counts.live().wrapping_sub(counts.high.live())) as u32
    }

    fn give(&self, here: Here<'_>, page: Returned<Clean>) {
        let tally = self.tallies.of(here, &page, self.source.frames());
        tally.frees.add(1);
        tally.returns.add(1);
        // SAFETY: 1. it came from this policy, whose pages the source makes.
        unsafe { self.source.unmake_dirty(page.into_inner()) };
        self.source.look(|| self.low_tables());
    }
}

// SAFETY: 1. both are fields, and the source makes pages of its frames. 2. the source makes them
// for the level. 3. no page is kept: the allocator hands each out to one caller. 4.
// proofs go to no other policy.
unsafe impl<W: OpenWindow, C: Construct> Policy for Plain<'_, W, C> {
    fn machine(&self) -> MachineId {
        self.source.frames().machine()
    }

    fn cpus(&self) -> usize {
        self.tallies.cpus()
    }

    #[inline]
    fn takes_unhooked(&self) -> Option<&dyn TakesUnhooked> {
        None
    }
    #[inline]
    fn root(&self) -> Option<Level> {
        Some(self.source.layout().root())
    }

    fn alloc(&self, here: Here<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        let page = self.source.make(here.node(), level, flags)?;
        let tally = self.tallies.of(here, &page, self.source.frames());
        tally.allocs.add(1);
        tally.misses.add(1);
        self.source.look(|| self.low_tables());
        Ok(page)
    }

    fn free_unlinked(&self, here: Here<'_>, page: Returned<Clean>) {
        self.give(here, page);
    }

    fn flushed(&self, here: Here<'_>, mut pages: Returned<Flushed>) {
        // SAFETY: 1. the source makes this policy's pages of its frames.
        while let Some(page) = unsafe { pages.pop(self.source.frames()) } {
            self.give(here, page);
        }
    }

    fn gather_end(&self, _: Here<'_>) {}

    fn idle(&self, _: Here<'_>) {}

    fn end_interval(&self, _: Here<'_>) -> u32 {
        0
    }

    fn reclaim(&self, _: Here<'_>, _: NodeId, _: u32) -> u32 {
        0
    }

    fn drain(&self, _: Here<'_>) {}

    fn counts(&self) -> PolicyCounts {
        self.tallies.sum()
    }
}
