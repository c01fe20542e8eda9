//! The quicklists of Linux, bit for bit (docs/linux.md, "Quicklists"): models to compare with, not
//! to use.
//!
//! The versions share one code and differ in their [`Rules`]: `LINUX_2_4` and `V2004`, the lists
//! before the patch, `V5`, the patch of 2007, and `V2008`, which is Linux 2.6.27. Faithful to their
//! arithmetic (signed and unsigned where they were), to the link in word 0 of the cached page, and
//! to their mistakes:
//!
//! * In all versions pages below the root are put on the list *before* the TLB is flushed. The
//!   change of December 2007 took away only the node test of `V5`, with the hand-over to the
//!   allocator before the flush that came with it (H5): the code that frees a table called the
//!   list's insertion from within the gather as before. It was held to be safe, as a gather could
//!   not be preempted then and only its own CPU takes pages off its list (H16); but a walker of any
//!   CPU may still read the table with the link in it, and the sanitizer counts every such page.
//!   The root is not one of them. It goes by `pgd_free` when the last reference to the space is
//!   dropped: after the flush and the trim, when no CPU has it loaded any more.
//! * With the test gone, pages freed on a foreign node stay there (H6).
//!
//! One mistake is not modelled. `V5` tests for the node before it disables preemption, so that a
//! task may move to another node in between. Here the caller's pin holds from before the test.
mod rules;

pub use rules::{ListsRefused, Rules, Trim};

use crate::tally::Lines;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use ptarmigan::addr::PhysAddr;
use ptarmigan::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use ptarmigan::cpu::{CpuId, Guard, MachineId, NodeId, PerCpu};
use ptarmigan::frames::{AllocFlags, HighUse, NoFrame};
use ptarmigan::page::{Clean, Construct, FlushProof, Flushed, FlushedLeaves, Level, Unhooked};
use ptarmigan::quicklist::{Here, LevelTally, Policy, PolicyCounts, Returned, Source, TakesUnhooked};
use ptarmigan::window::{OpenWindow, WindowGuard};
use rules::NodeState;

/// Lists that an architecture could have.
const NR_QUICK_MAX: usize = 3;

#[derive(Clone, Copy)]
struct Quicklist {
    /// Physical address of the first page; 0 is the end, as frame 0 is never handed out.
    head: u64,
    nr_pages: i32,
}

/// The part of a CPU's state that other CPUs read.
struct Seen {
    node: NodeId,
    online: AtomicBool,
    /// Pages on all its lists.
    pages: AtomicU32,
    tally: Lines,
}

/// The lists of one CPU.
struct Lists {
    quick: [Quicklist; NR_QUICK_MAX],
    /// Physical address of the root whose space has just ended, flushed: it is listed after the
    /// trim. 0 if there is none.
    root: u64,
}

/// Why there is no such policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoricError {
    /// The lists do not fit into boot memory.
    Boot(BootMemoryShort),
    /// The version cannot have so many lists.
    Lists(ListsRefused),
}

impl fmt::Display for HistoricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot(e) => e.fmt(f),
            Self::Lists(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for HistoricError {}

impl From<BootMemoryShort> for HistoricError {
    fn from(e: BootMemoryShort) -> Self {
        Self::Boot(e)
    }
}

/// The lists of one version.
pub struct Historic<'m, W, C> {
    rules: Rules,
    seen: BootSlice<Seen>,
    /// The high watermark of 2004.
    high: usize,
    source: Source<'m, W, C>,
    lists: PerCpu<Lists>,
    nr_quick: usize,
}

impl<'m, W: OpenWindow, C: Construct> Historic<'m, W, C> {
    /// With `nr_quick` lists (1 to 3): 1 mixes all levels, as ia64 did; 2 keeps the constructed
    /// roots apart, as x86-64 did; 3 keeps the PTE pages apart as well. Where roots are smaller
    /// than a frame and rest nowhere, 2 keeps the PTE pages apart. `nodes` says for each CPU on
    /// which node it is; all are online.
    ///
    /// # Errors
    ///
    /// [`HistoricError`] if the lists do not fit into `boot`, or the version has no such lists.
    ///
    /// # Safety
    ///
    /// 1. No MMU walks the tables of this policy, and no code that reads or writes memory by what
    ///    it finds in them does so as a [reader](ptarmigan::tlb::Readers::walk). The policy hands a
    ///    table out again before the flush, as Linux did, while such walkers may still find it. A
    ///    model of an MMU, which translates and accesses nothing, may walk them; the operations of
    ///    spaces exclude each other.
    pub unsafe fn new(
        boot: &mut BootMemory,
        rules: Rules,
        nodes: &[NodeId],
        nr_quick: usize,
        source: Source<'m, W, C>,
    ) -> Result<Self, HistoricError> {
        let layout = source.layout();
        let refused = if !(1..=NR_QUICK_MAX).contains(&nr_quick) {
            Some(ListsRefused::Number(nr_quick))
        } else if !rules.lists_pte && nr_quick != 2 {
            Some(ListsRefused::NoPteList(nr_quick))
        } else if nr_quick == 1 && layout.is_small(layout.root()) && layout.levels > 2 {
            Some(ListsRefused::MixesPmdAndPte)
        } else {
            None
        };
        if let Some(refused) = refused {
            return Err(HistoricError::Lists(refused));
        }
        let high = match rules.trim {
            Trim::Share { .. } => 0,
            Trim::Watermarks { least_high, .. } => {
                let entries = layout.table_bytes(layout.root()) as usize / size_of::<u64>();
                Rules::high_watermark(source.frames().counts().free as usize, entries, least_high)
            }
        };
        let empty = Quicklist { head: 0, nr_pages: 0 };
        let cpus = nodes.len();
        let machine = source.frames().machine();
        Ok(Historic {
            rules,
            seen: boot.take(cpus, |cpu| Seen {
                node: nodes[cpu],
                online: AtomicBool::new(true),
                pages: AtomicU32::new(0),
                tally: Lines::default(),
            })?,
            high,
            source,
            lists: PerCpu::new(boot, machine, cpus, |_| Lists { quick: [empty; NR_QUICK_MAX], root: 0 })?,
            nr_quick,
        })
    }

    /// Boot memory for `cpus` CPUs.
    pub const fn bytes(cpus: usize) -> usize {
        PerCpu::<Lists>::bytes(cpus) + BootMemory::bytes::<Seen>(cpus)
    }

    /// The counts of one CPU. A page may be counted as allocated on one CPU and as freed on
    /// another.
    pub fn counts_on(&self, cpu: CpuId) -> PolicyCounts {
        PolicyCounts::sum(self.seen.get(usize::from(cpu.0)).map(|seen| &seen.tally.0))
    }

    /// The differences between the versions.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// `quicklist_total_size`: the pages on the lists of all CPUs that are online.
    pub fn total_size(&self) -> usize {
        let online = self.seen.iter().filter(|cpu| cpu.online.load(Relaxed));
        online.map(|cpu| cpu.pages.load(Relaxed) as usize).sum()
    }

    /// Says whether a CPU is online. Pages of one that is not are neither counted nor trimmed, and
    /// stay on its lists; since 2008 the others of its node may hold more. No code empties them, as
    /// in the original.
    pub fn set_online(&self, cpu: CpuId, online: bool) {
        if let Some(seen) = self.seen.get(usize::from(cpu.0)) {
            seen.online.store(online, Relaxed);
        }
    }

    /// The high watermark that the version of 2004 has set for each CPU; 0 for the others.
    pub fn high_watermark(&self) -> usize {
        self.high
    }

    /// Returns whether pages of `level` have a list.
    fn is_listed(&self, level: Level) -> bool {
        level <= self.source.layout().root()
            && !self.source.layout().is_small(level)
            && (self.rules.lists_pte || level != Level::PTE)
    }

    fn list_of(&self, level: Level) -> usize {
        let layout = self.source.layout();
        let top = level == layout.root();
        match self.nr_quick {
            1 => 0,
            // Roots that rest nowhere leave their list to the levels between.
            2 if layout.is_small(layout.root()) => usize::from(level == Level::PTE),
            2 => usize::from(!top),
            _ if top => 0,
            _ if level == Level::PTE => 2,
            _ => 1,
        }
    }

    /// Returns whether pages of `level` rest constructed, on a list of their own.
    fn rests_constructed(&self, level: Level) -> bool {
        level == self.source.layout().root() && self.nr_quick > 1
    }

    /// Takes the lists of the caller's CPU; `None` while they are in use.
    fn enter<'a>(&'a self, here: &'a Here<'_>) -> Option<Guard<'a, Lists>> {
        // SAFETY: 1. a `Here` is of the lists' machine, and of one of the CPUs that they were made
        // for.
        unsafe { self.lists.enter_unchecked(here) }
    }

    /// Takes the first page off list `nr`, clearing the link.
    fn pop(&self, here: Here<'_>, nr: usize) -> Option<PhysAddr> {
        let mut lists = self.enter(&here)?;
        let list = &mut lists.quick[nr];
        let at = PhysAddr(list.head);
        if at.0 == 0 {
            return None;
        }
        let guard = self.source.window().open(at);
        // SAFETY: the page is on our list, so it is ours; the guard is valid for its first word.
        unsafe {
            let word = guard.base().cast::<u64>();
            list.head = word.read();
            word.write(0);
        }
        list.nr_pages -= 1;
        self.count(here, |pages| pages.wrapping_sub(1));
        Some(at)
    }

    /// Returns the caller's CPU's counts of `level`.
    fn tally(&self, here: Here<'_>, level: Level) -> &LevelTally {
        self.seen[usize::from(here.cpu().0)].tally.0.level(level)
    }

    /// Changes the number of pages on this CPU's lists, which no other CPU writes.
    fn count(&self, here: Here<'_>, change: impl FnOnce(u32) -> u32) {
        let pages = &self.seen[usize::from(here.cpu().0)].pages;
        pages.store(change(pages.load(Relaxed)), Relaxed);
    }

    /// `__quicklist_free`: to the front of this CPU's list, or by a node test to the allocator at
    /// once.
    fn free(&self, here: Here<'_>, page: Returned<Clean>) {
        let level = page.level();
        self.tally(here, level).frees.add(1);
        let frames = self.source.frames();
        // The test comes before the guard, as it did.
        let is_foreign = self.rules.node_test && frames.node_of(page.addr().pfn()) != here.node();
        if !self.is_listed(level) || is_foreign {
            return self.give_back(here, page);
        }
        let nr = self.list_of(level);
        let Some(mut lists) = self.enter(&here) else {
            return self.give_back(here, page);
        };
        if level == self.source.layout().root() && !self.rests_constructed(level) {
            // A single list: roots go back to zero to mix with the others.
            // SAFETY: 1. `page` owns it, and the source had it constructed. That no MMU walks it
            // does not hold: pages are listed before the flush, the defect being modelled.
            unsafe { self.source.constructor().destruct(frames, page.addr()) };
        }
        let list = &mut lists.quick[nr];
        let at = page.into_inner().into_raw();
        let guard = self.source.window().open(at);
        // SAFETY: the page was `page`'s, hence ours; the guard is valid for its first word. (A TLB
        // may still walk it and read the link: that is the defect being modelled.)
        unsafe { guard.base().cast::<u64>().write(list.head) };
        list.head = at.0;
        list.nr_pages += 1;
        self.count(here, |pages| pages.wrapping_add(1));
    }

    /// Keeps a root that comes back flushed until the trim is over, as the last reference to a
    /// space is dropped after that.
    ///
    /// # Safety
    ///
    /// 1. The page must be a root that is no part of a frame.
    unsafe fn drop_later(&self, here: Here<'_>, page: Returned<Clean>) {
        let before = match self.enter(&here) {
            Some(mut lists) => core::mem::replace(&mut lists.root, page.into_inner().into_raw().0),
            None => return self.free(here, page),
        };
        self.free_dropped(here, before);
    }

    /// Lists the root that waited for the end of the trim.
    fn drop_now(&self, here: Here<'_>) {
        let waiting = self.enter(&here).map_or(0, |mut lists| core::mem::take(&mut lists.root));
        self.free_dropped(here, waiting);
    }

    /// Lists the root at `at`, which waited until now, unless `at` is 0.
    fn free_dropped(&self, here: Here<'_>, at: u64) {
        if at != 0 {
            // SAFETY: 1. and 2. `drop_later` had it from a `Clean` root, which owned it. 3. it came
            // flushed.
            let page = unsafe { Clean::from_raw(PhysAddr(at), self.source.layout().root()) };
            // SAFETY: 1. it came from this policy, as `drop_later` had it `Returned`.
            self.free(here, unsafe { Returned::new(page) });
        }
    }

    fn give_back(&self, here: Here<'_>, page: Returned<Clean>) {
        self.tally(here, page.level()).returns.add(1);
        // SAFETY: 1. it came from this policy, whose pages the source makes.
        unsafe { self.source.unmake_dirty(page.into_inner()) };
    }

    fn node_state(&self, node: NodeId) -> NodeState {
        let frames = self.source.frames();
        NodeState {
            free_low: frames.node_free(node),
            free_high: frames.node_high_free(node),
            cpus: self.seen.iter().filter(|cpu| cpu.node == node && cpu.online.load(Relaxed)).count() as u32,
        }
    }

    /// `quicklist_trim` of every list, or `check_pgt_cache` before there was one.
    fn trim(&self, here: Here<'_>) {
        let (min_pages, max_free) = match self.rules.trim {
            Trim::Share { min_pages, max_free } => (min_pages, max_free),
            Trim::Watermarks { low, .. } => return self.shorten(here, low),
        };
        for nr in 0..self.nr_quick {
            let count = match self.enter(&here) {
                Some(lists) => lists.quick[nr].nr_pages,
                None => return,
            };
            let mut left = self.rules.to_free(count, self.node_state(here.node()), min_pages, max_free);
            while left > 0 {
                let Some(at) = self.pop(here, nr) else { break };
                self.drop_cached(here, nr, at);
                left -= 1;
            }
        }
    }

    /// `check_pgt_cache` of 2004: if this CPU's lists hold more than the high watermark, one page
    /// of each goes in turn until they hold no more than `low`.
    fn shorten(&self, here: Here<'_>, low: usize) {
        let held = || self.seen[usize::from(here.cpu().0)].pages.load(Relaxed) as usize;
        if held() <= self.high {
            return;
        }
        while held() > low {
            let mut gone = false;
            for nr in 0..self.nr_quick {
                if let Some(at) = self.pop(here, nr) {
                    self.drop_cached(here, nr, at);
                    gone = true;
                }
            }
            if !gone {
                return;
            }
        }
    }

    /// Gives a page that rested on list `nr` to the allocator.
    fn drop_cached(&self, here: Here<'_>, nr: usize, at: PhysAddr) {
        let layout = self.source.layout();
        let top = layout.root();
        let is_root = nr == 0 && self.rests_constructed(top) && !layout.is_small(top);
        let level = if is_root { top } else { Level::PTE };
        // SAFETY: 1. `pop` took it off our list. 2. it is in the state of the list, its link
        // cleared. 3. not so for pages that were listed before their flush: the defect being
        // modelled.
        let page = unsafe { Clean::from_raw(at, level) };
        // SAFETY: 1. it rested on a list of this policy, where `Returned` pages are put.
        self.give_back(here, unsafe { Returned::new(page) });
    }
}

// SAFETY: 1. they are fields, and the source makes pages of its frames. 2. pages of a list are in
// the state of the level that is asked for, or are brought into it. 3. a list has a page once, and
// those that came before their flush came as `TakesUnhooked` has it. 4. proofs go to no
// other policy.
unsafe impl<W: OpenWindow, C: Construct> Policy for Historic<'_, W, C> {
    fn machine(&self) -> MachineId {
        self.source.frames().machine()
    }

    fn cpus(&self) -> usize {
        self.lists.cpus()
    }

    #[inline]
    fn takes_unhooked(&self) -> Option<&dyn TakesUnhooked> {
        Some(self)
    }
    #[inline]
    fn root(&self) -> Option<Level> {
        Some(self.source.layout().root())
    }

    fn alloc(&self, here: Here<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        let layout = self.source.layout();
        let tally = self.tally(here, level);
        if self.is_listed(level)
            && let Some(at) = self.pop(here, self.list_of(level))
        {
            if level == layout.root() && !self.rests_constructed(level) {
                // SAFETY: 1. a root off our list. 2. it was destructed when it was put there.
                unsafe { self.source.constructor().construct(self.source.frames(), at) };
            }
            tally.allocs.add(1);
            // SAFETY: 1. off our list. 2. it was put there in its list's state, and the link is
            // cleared again.
            // 3. not so: pages are listed before the flush. That is the defect being modelled.
            return Ok(unsafe { Clean::from_raw(at, level) });
        }
        // Its lists link pages in the pages themselves, and know one kind of memory.
        let page = self.source.make(here.node(), level, flags.with_high(HighUse::Never))?;
        self.adopt(here, &page);
        Ok(page)
    }

    fn adopt(&self, here: Here<'_>, page: &Clean) {
        let tally = self.tally(here, page.level());
        tally.allocs.add(1);
        tally.misses.add(1);
    }

    fn alloc_at_hand(&self, _: Here<'_>, _: Level, _: AllocFlags) -> Option<Clean> {
        None
    }

    fn free_unlinked(&self, here: Here<'_>, page: Returned<Clean>) {
        self.free(here, page);
    }

    fn flushed(&self, here: Here<'_>, mut pages: Returned<Flushed>) {
        // SAFETY: 1. the source makes this policy's pages of its frames.
        while let Some(page) = unsafe { pages.pop(self.source.frames()) } {
            let layout = self.source.layout();
            if page.level() == layout.root() && self.is_listed(page.level()) {
                // SAFETY: 1. just looked: parts of frames are not listed.
                unsafe { self.drop_later(here, page) };
            } else {
                self.free(here, page);
            }
        }
    }

    fn flushed_leaves<'t>(
        &self,
        _: Here<'_>,
        pages: Returned<FlushedLeaves<'t>>,
    ) -> Result<(), Returned<FlushedLeaves<'t>>> {
        Err(pages)
    }

    fn gather_end(&self, here: Here<'_>) {
        self.trim(here);
        self.drop_now(here);
    }

    fn idle(&self, here: Here<'_>) {
        self.trim(here);
    }

    fn end_interval(&self, _: Here<'_>) -> u32 {
        0
    }

    fn reclaim(&self, _: Here<'_>, _: NodeId, _: u32) -> u32 {
        0
    }

    fn drain(&self, here: Here<'_>) {
        self.drop_now(here);
        for nr in 0..self.nr_quick {
            while let Some(at) = self.pop(here, nr) {
                self.drop_cached(here, nr, at);
            }
        }
    }

    fn counts(&self) -> PolicyCounts {
        PolicyCounts::sum(self.seen.iter().map(|seen| &seen.tally.0))
    }
}

// SAFETY: it is a part of the `Policy` above. Of that contract: 3. a table that it takes goes on a
// list, which has a page once. 4. the proof and the tables go to functions of this policy alone.
unsafe impl<W: OpenWindow, C: Construct> TakesUnhooked for Historic<'_, W, C> {
    fn take_unhooked(
        &self,
        here: Here<'_>,
        pages: Returned<&mut Unhooked>,
        taking: &mut dyn FnMut(Level, PhysAddr),
    ) {
        let (frames, root) = (self.source.frames(), self.source.layout().root());
        // No version gave a root away before the CPUs had left it.
        let takes = |level| level != root && (self.is_listed(level) || self.rules.lists_pte);
        let pages = pages.into_inner();
        pages.each(frames, |level, at| {
            if takes(level) {
                taking(level, at);
            }
        });
        // SAFETY: 1. the tables came from this policy, whose source makes them of its frames. 2. it
        // compares levels.
        let early = unsafe { pages.split(frames, takes) };
        // SAFETY: 1. not so: TLBs may know the tables. That is the defect being modelled.
        let mut early = early.flushed(unsafe { FlushProof::claim() });
        // SAFETY: 1. as above.
        while let Some(page) = unsafe { early.pop(frames) } {
            // SAFETY: 1. it is of `pages`, which came from this policy.
            self.free(here, unsafe { Returned::new(page) });
        }
    }
}
