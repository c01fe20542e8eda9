//! No caching: the policy that everything is compared with.
use super::tally::Tallies;
use super::{Policy, PolicyCounts, Source};
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::{CpuId, Pinned};
use crate::frames::{AllocFlags, NoFrame};
use crate::page::{Clean, Construct, Flushed, Level};
use crate::window::Window;

/// Takes and clears a page each time; gives it back, content forgotten, when the flush is over. What kernels do
/// that have no cache of table pages.
pub struct Plain<'m, W, C> {
    source: Source<'m, W, C>,
    tallies: Tallies,
}

impl<'m, W: Window, C: Construct> Plain<'m, W, C> {
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

    /// What one CPU has counted. A page may be counted as allocated on one CPU and as freed on another.
    pub fn counts_on(&self, cpu: CpuId) -> PolicyCounts {
        self.tallies.on(cpu)
    }

    fn give(&self, pin: &Pinned<'_>, level: Level, page: Clean) {
        let tally = self.tallies.of(pin, level);
        tally.frees.add(1);
        tally.returns.add(1);
        self.source.unmake_dirty(level, page);
    }
}

impl<W: Window, C: Construct> Policy for Plain<'_, W, C> {
    fn alloc(&self, pin: &Pinned<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        let page = self.source.make(pin.node(), level, flags)?;
        let tally = self.tallies.of(pin, level);
        tally.allocs.add(1);
        tally.misses.add(1);
        Ok(page)
    }

    fn unused(&self, pin: &Pinned<'_>, level: Level, page: Clean) {
        self.give(pin, level, page);
    }

    fn flushed(&self, pin: &Pinned<'_>, mut pages: Flushed) {
        while let Some((level, page)) = pages.pop(self.source.frames()) {
            self.give(pin, level, page);
        }
    }

    fn counts(&self) -> PolicyCounts {
        self.tallies.sum()
    }
}
