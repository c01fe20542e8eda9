//! The quicklist patch of 2007, version 5, bit for bit (semantics.md §1): a model to compare with, not to use.
//!
//! Faithful to its arithmetic (signed and unsigned where they were), to the link in word 0 of the cached page, to
//! the node test made before preemption is disabled, and to its two mistakes: pages are put on the list, and
//! those of a foreign node handed to the allocator, *before* the TLB is flushed (H5).
use super::tally::Tallies;
use super::{Clean, Construct, Flushed, Level, Policy, PolicyCounts, Source, Unhooked};
use crate::addr::PhysAddr;
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::{PerCpu, Pinned};
use crate::frames::{Ask, NoFrame};
use crate::window::{Window, WindowGuard};

/// Lists that an architecture could have.
const NR_QUICK_MAX: usize = 3;
/// What all users in the tree passed to the trim.
const MIN_PAGES: usize = 25;
const MAX_FREE: usize = 16;
/// Share of a node's free memory that one list may hold.
const FRACTION_OF_NODE_MEM: usize = 16;

#[derive(Clone, Copy)]
struct Quicklist {
    /// Physical address of the first page; 0 is the end, as frame 0 is never handed out.
    head: u64,
    nr_pages: i32,
}

/// The patch's lists.
pub struct V5<'m, W, C> {
    source: Source<'m, W, C>,
    lists: PerCpu<[Quicklist; NR_QUICK_MAX]>,
    tallies: Tallies,
    nr_quick: usize,
}

impl<'m, W: Window, C: Construct> V5<'m, W, C> {
    /// With `nr_quick` lists (1 to 3): 1 mixes all levels, as ia64 did; 2 keeps the constructed tops apart, as
    /// x86-64 did; 3 keeps the PTE pages apart as well.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the lists do not fit into `boot`.
    pub fn new(
        boot: &mut BootMemory,
        cpus: usize,
        nr_quick: usize,
        source: Source<'m, W, C>,
    ) -> Result<Self, BootMemoryShort> {
        let empty = Quicklist { head: 0, nr_pages: 0 };
        Ok(V5 {
            source,
            lists: PerCpu::new(boot, cpus, |_| [empty; NR_QUICK_MAX])?,
            tallies: Tallies::new(boot, cpus)?,
            nr_quick: nr_quick.clamp(1, NR_QUICK_MAX),
        })
    }

    /// Boot memory for `cpus` CPUs.
    pub const fn bytes(cpus: usize) -> usize {
        PerCpu::<[Quicklist; NR_QUICK_MAX]>::bytes(cpus) + Tallies::bytes(cpus)
    }

    fn list_of(&self, level: Level) -> usize {
        let top = level == self.source.layout().top();
        match self.nr_quick {
            1 => 0,
            2 => usize::from(!top),
            _ if top => 0,
            _ if level == Level::PTE => 2,
            _ => 1,
        }
    }

    /// Whether pages of `level` rest constructed: a list to themselves, and pages to put a link in.
    fn rests_constructed(&self, level: Level) -> bool {
        level == self.source.layout().top() && self.nr_quick > 1
    }

    /// Takes the first page off list `nr`, clearing the link.
    fn pop(&self, pin: &Pinned<'_>, nr: usize) -> Option<PhysAddr> {
        let mut lists = self.lists.enter(pin)?;
        let list = &mut lists[nr];
        let at = PhysAddr(list.head);
        if at.0 == 0 {
            return None;
        }
        let guard = self.source.window().map(at);
        // SAFETY: the page is on our list, so it is ours; the guard is valid for its first word.
        unsafe {
            let word = guard.base().cast::<u64>();
            list.head = word.read();
            word.write(0);
        }
        list.nr_pages -= 1;
        Some(at)
    }

    /// `__quicklist_free`: by node to the allocator at once, or to the front of this CPU's list.
    fn free(&self, pin: &Pinned<'_>, level: Level, page: Clean) {
        self.tallies.of(pin, level).frees.add(1);
        let frames = self.source.frames();
        if self.source.layout().is_small(level) {
            return self.give_back(pin, level, page);
        }
        // The test comes before the guard, as it did.
        if frames.node_of(page.addr().pfn()) != pin.node() {
            return self.give_back(pin, level, page);
        }
        let nr = self.list_of(level);
        let Some(mut lists) = self.lists.enter(pin) else { return self.give_back(pin, level, page) };
        if level == self.source.layout().top() && !self.rests_constructed(level) {
            // A single list: tops go back to zero to mix with the others.
            self.source.constructor().destruct(frames, page.addr());
        }
        let list = &mut lists[nr];
        let at = page.into_raw();
        let guard = self.source.window().map(at);
        // SAFETY: the page was `page`'s, hence ours; the guard is valid for its first word. (A TLB may still
        // walk it and read the link: that is the defect being modelled.)
        unsafe { guard.base().cast::<u64>().write(list.head) };
        list.head = at.0;
        list.nr_pages += 1;
    }

    fn give_back(&self, pin: &Pinned<'_>, level: Level, page: Clean) {
        self.tallies.of(pin, level).returns.add(1);
        self.source.unmake_dirty(level, page);
    }

    /// `min_pages_to_free`: signed and unsigned as in the patch.
    fn to_free(nr_pages: i32, node_free: u32) -> i64 {
        let max_pages = (node_free as usize / FRACTION_OF_NODE_MEM).max(MIN_PAGES);
        let pages_to_free = i64::from(nr_pages) - max_pages as i64;
        pages_to_free.min(MAX_FREE as i64)
    }

    /// `quicklist_trim` of every list: at most 16 pages each.
    fn trim(&self, pin: &Pinned<'_>) {
        for nr in 0..self.nr_quick {
            let count = match self.lists.enter(pin) {
                Some(lists) => lists[nr].nr_pages,
                None => return,
            };
            // `nr_pages > min_pages` compares as unsigned.
            if count as usize <= MIN_PAGES {
                continue;
            }
            let mut left = Self::to_free(count, self.source.frames().node_free(pin.node()));
            while left > 0 {
                let Some(at) = self.pop(pin, nr) else { break };
                self.drop_cached(pin, nr, at);
                left -= 1;
            }
        }
    }

    /// Gives a page that rested on list `nr` to the allocator.
    fn drop_cached(&self, pin: &Pinned<'_>, nr: usize, at: PhysAddr) {
        let top = self.source.layout().top();
        // SAFETY: `pop` took it off our list, so it is ours, in the state of the list, its link cleared.
        let page = unsafe { Clean::from_raw(at) };
        let level = if self.nr_quick > 1 && nr == 0 { top } else { Level::PTE };
        self.give_back(pin, level, page);
    }
}

impl<W: Window, C: Construct> Policy for V5<'_, W, C> {
    fn alloc(&self, pin: &Pinned<'_>, level: Level, ask: Ask) -> Result<Clean, NoFrame> {
        let layout = self.source.layout();
        let tally = self.tallies.of(pin, level);
        if !layout.is_small(level)
            && let Some(at) = self.pop(pin, self.list_of(level))
        {
            if level == layout.top() && !self.rests_constructed(level) {
                self.source.constructor().construct(self.source.frames(), at);
            }
            tally.allocs.add(1);
            // SAFETY: 1. off our list. 2. it was put there in its list's state, and the link is cleared again.
            // 3. not so: pages are listed before the flush. That is the defect being modelled.
            return Ok(unsafe { Clean::from_raw(at) });
        }
        let page = self.source.make(pin.node(), level, ask)?;
        tally.allocs.add(1);
        tally.misses.add(1);
        Ok(page)
    }

    fn unused(&self, pin: &Pinned<'_>, level: Level, page: Clean) {
        self.free(pin, level, page);
    }

    fn retire(&self, pin: &Pinned<'_>, pages: &mut Unhooked) {
        // SAFETY: a model of the historic code, which did just this.
        while let Some((level, page)) = unsafe { pages.pop_early(self.source.frames()) } {
            self.free(pin, level, page);
        }
    }

    fn flushed(&self, pin: &Pinned<'_>, mut pages: Flushed) {
        while let Some((level, page)) = pages.pop(self.source.frames()) {
            self.free(pin, level, page);
        }
    }

    fn gather_end(&self, pin: &Pinned<'_>) {
        self.trim(pin);
    }

    fn idle(&self, pin: &Pinned<'_>) {
        self.trim(pin);
    }

    fn drain(&self, pin: &Pinned<'_>) {
        for nr in 0..self.nr_quick {
            while let Some(at) = self.pop(pin, nr) {
                self.drop_cached(pin, nr, at);
            }
        }
    }

    fn counts(&self) -> PolicyCounts {
        self.tallies.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::DirectMap;

    type Any<'m> = V5<'m, DirectMap, super::super::NoConstruct>;

    #[test]
    fn trims_by_the_arithmetic_of_the_patch() {
        // cap = max(F / 16, 25); k = min(count - cap, 16), not below the cap.
        for (count, free, k) in
            [(26, 0, 1), (41, 0, 16), (42, 0, 16), (100, 16 * 90, 10), (100, 16 * 100, 0), (25, 0, 0)]
        {
            assert_eq!(Any::to_free(count, free).max(0), k, "count {count}, free {free}");
        }
    }
}
