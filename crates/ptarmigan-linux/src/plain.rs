//! Caches no page, as Linux since 5.4: the policy that others are compared with.
use crate::tally::Lines;
use ptarmigan::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use ptarmigan::cpu::{CpuId, MachineId, NodeId};
use ptarmigan::frames::{AllocFlags, NoFrame};
use ptarmigan::page::{Clean, Construct, Flushed, FlushedLeaves, Level};
use ptarmigan::quicklist::{
    Here, LevelTally, Placement, Policy, PolicyCounts, Returned, Source, TakesUnhooked,
};
use ptarmigan::window::OpenWindow;

/// Takes and clears a page each time; gives it back, content forgotten, when the flush is over.
/// Allocates and frees pages as kernels without a cache of table pages do.
pub struct Plain<'m, W, C> {
    source: Source<'m, W, C>,
    /// By CPU.
    tallies: BootSlice<Lines>,
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
        Ok(Plain { source, tallies: boot.take(cpus, |_| Lines::default())? })
    }

    /// Boot memory for `cpus` CPUs.
    pub const fn bytes(cpus: usize) -> usize {
        BootMemory::bytes::<Lines>(cpus)
    }

    /// The counts of one CPU. A page may be counted as allocated on one CPU and as freed on
    /// another.
    pub fn counts_on(&self, cpu: CpuId) -> PolicyCounts {
        PolicyCounts::sum(self.tallies.get(usize::from(cpu.0)).map(|lines| &lines.0))
    }

    /// Has the placement look at low memory, if it wants to know.
    fn look(&self) {
        if let Placement::Auto(auto) = self.source.placement() {
            let counts = self.counts();
            auto.look(self.source.frames(), counts.live().wrapping_sub(counts.high.live()) as u32);
        }
    }

    /// Returns the caller's CPU's counts of tables like `page`.
    fn tally(&self, here: Here<'_>, page: &Clean) -> &LevelTally {
        let level = page.level();
        let is_high = level == Level::PTE && self.source.frames().is_high(page.addr().pfn());
        self.tallies[usize::from(here.cpu().0)].0.row(level, is_high)
    }

    fn give(&self, here: Here<'_>, page: Returned<Clean>) {
        let tally = self.tally(here, &page);
        tally.frees.add(1);
        tally.returns.add(1);
        // SAFETY: 1. it came from this policy, whose pages the source makes.
        unsafe { self.source.unmake_dirty(page.into_inner()) };
        self.look();
    }
}

// SAFETY: 1. both are fields, and the source makes pages of its frames. 2. the source makes them
// for the level. 3. no page is kept: the allocator hands each out to one caller. 4. proofs go to no
// other policy.
unsafe impl<W: OpenWindow, C: Construct> Policy for Plain<'_, W, C> {
    fn machine(&self) -> MachineId {
        self.source.frames().machine()
    }

    fn cpus(&self) -> usize {
        self.tallies.len()
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
        self.adopt(here, &page);
        Ok(page)
    }

    fn adopt(&self, here: Here<'_>, page: &Clean) {
        let tally = self.tally(here, page);
        tally.allocs.add(1);
        tally.misses.add(1);
        self.look();
    }

    fn alloc_at_hand(&self, _: Here<'_>, _: Level, _: AllocFlags) -> Option<Clean> {
        None
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

    fn flushed_leaves<'t>(
        &self,
        _: Here<'_>,
        pages: Returned<FlushedLeaves<'t>>,
    ) -> Result<(), Returned<FlushedLeaves<'t>>> {
        Err(pages)
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
        PolicyCounts::sum(self.tallies.iter().map(|lines| &lines.0))
    }
}
