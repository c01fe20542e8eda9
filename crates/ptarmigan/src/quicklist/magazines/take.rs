//! Handing pages out: from the CPU's magazines, from the depot, from the allocator.
use super::super::check::Check;
use super::super::here::{HereCopy, Proof};
use super::super::source::GROUP;
use super::Quicklists;
use super::classes::{HIGH, ROOT};
use super::magazine::Magazines;
use crate::cpu::NodeId;
use crate::frames::{AllocFlags, NoFrame};
use crate::page::{Clean, Construct, Level};
use crate::window::OpenWindow;

impl<W: OpenWindow, C: Construct, K: Check> Quicklists<'_, W, C, K> {
    /// Hands out a page from this CPU's magazines; `None` if they are empty or in use.
    #[inline(always)]
    pub(super) fn take_at_hand<'h>(
        &self,
        here: &impl Proof<'h>,
        class: usize,
        level: Level,
    ) -> Option<Clean> {
        let mut cpu = self.enter(here)?;
        let item = Magazines::new(&mut cpu, class).pop()?;
        cpu.shown().tally.row(level, class == HIGH).allocs.add(1);
        drop(cpu);
        self.hand_out(here, class, level, item)
    }

    /// Hands out a page of a class that few requests are for, without a copy of the code for each.
    #[inline(never)]
    pub(super) fn take_rare(
        &self,
        here: HereCopy<'_>,
        class: usize,
        level: Level,
        flags: AllocFlags,
    ) -> Result<Clean, NoFrame> {
        match self.take_at_hand(&here, class, level) {
            Some(page) => Ok(page),
            None => self.take_slow(here, class, level, flags),
        }
    }

    /// Hands out a cached page. A page that fails its check is leaked on purpose.
    #[inline(always)]
    fn hand_out<'h>(&self, here: &impl Proof<'h>, class: usize, level: Level, item: u32) -> Option<Clean> {
        let page = self.page(class, level, item);
        if !self.check.taken(&self.site(here, level), &page) {
            self.leak(here, class, level);
            return None;
        }
        // SAFETY: 1. `page` owns a table of one frame, to which no code writes.
        let is_zero = || unsafe { self.source.is_zero(page.addr()) };
        debug_assert!(class == ROOT || is_zero(), "page {} rested as zero and is not", page.addr());
        Some(page)
    }

    /// Counts a page that was counted as handed out, and is lost for good, as gone back.
    #[cold]
    fn leak<'h>(&self, here: &impl Proof<'h>, class: usize, level: Level) {
        let tally = self.tally(here).row(level, class == HIGH);
        tally.frees.add(1);
        tally.returns.add(1);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn take_slow(
        &self,
        here: HereCopy<'_>,
        class: usize,
        level: Level,
        flags: AllocFlags,
    ) -> Result<Clean, NoFrame> {
        let here = &here;
        let tally = self.tally(here).row(level, class == HIGH);
        let depot = self.depot(here.node(), class);
        let mut item = None;
        if let Some(mut cpu) = self.enter(here) {
            let mut magazines = Magazines::new(&mut cpu, class);
            self.resize(here, &mut magazines, class);
            // There are some after all if the one that the caller found failed its check.
            item = magazines.pop();
            if item.is_none() && magazines.fill(|into| depot.fetch(here.cpu(), into)) > 0 {
                item = magazines.pop();
                tally.refills.add(1);
            }
        } else {
            // An interrupt found the magazines in use: a single page from the depot.
            let mut one = [0];
            if depot.fetch(here.cpu(), &mut one) == 1 {
                item = Some(one[0]);
                tally.refills.add(1);
            }
        }
        if let Some(item) = item {
            tally.allocs.add(1);
            if let Some(page) = self.hand_out(here, class, level, item) {
                return Ok(page);
            }
        }
        if class != ROOT
            && self.config.magazine >= GROUP
            && !self.source.frames().pressed(here.node())
            && let Some(page) = self.miss_group(here, class, level, flags)
        {
            return Ok(page);
        }
        let page = self.miss(here, level, flags)?;
        self.take_in(here, &page);
        Ok(page)
    }

    /// Counts a page that has come from the frames, and is handed out.
    pub(super) fn take_in(&self, here: &HereCopy<'_>, page: &Clean) {
        self.set_limits(here.node());
        let level = page.level();
        let home = self.source.frames().node_of(page.addr().pfn());
        // Where there is no memory of the preferred kind, it is of the other.
        let class = self.class_of(page);
        let tally = self.tally(here).row(level, class == HIGH);
        self.depot(home, class).count(1);
        self.missed(here, class);
        tally.misses.add(1);
        tally.allocs.add(1);
        self.source.look(|| self.low_tables());
        self.check.made(&self.site(here, level), page, false);
    }

    /// Takes as many pages from the allocator as a cache line has records, for a CPU that is empty.
    /// One is handed out, the others rest.
    ///
    /// The guard is given up before they are made: they are cleared through a window, which may
    /// have to wait.
    fn miss_group(
        &self,
        here: &HereCopy<'_>,
        class: usize,
        level: Level,
        flags: AllocFlags,
    ) -> Option<Clean> {
        {
            let mut cpu = self.enter(here)?;
            // No room: an interrupt came in since.
            if !Magazines::new(&mut cpu, class).has_room_for_group() {
                return None;
            }
        }
        let site = self.site(here, level);
        let [page, rest @ ..] = self.source.make_group(here.node(), level, flags)?;
        self.set_limits(here.node());
        // The placement may have changed its mind meanwhile.
        let class = self.class_of(&page);
        self.depot(here.node(), class).count(GROUP as i32);
        self.missed(here, class);
        let tally = self.tally(here).row(level, class == HIGH);
        tally.misses.add(GROUP);
        tally.allocs.add(1);
        for page in rest.into_iter().rev() {
            self.check.made(&site, &page, true);
            let item = self.item(class, page);
            // Another interrupt may have come in.
            if !self.enter(here).is_some_and(|mut cpu| Magazines::new(&mut cpu, class).push(item)) {
                self.put_slow(here.again(), class, level, item);
            }
        }
        self.source.look(|| self.low_tables());
        self.check.made(&site, &page, false);
        Some(page)
    }

    /// Takes a page from the allocator; if it is empty, after giving up all cached pages within
    /// reach.
    fn miss(&self, here: &HereCopy<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        self.source.make(here.node(), level, flags).or_else(|e| {
            if !flags.may_sleep {
                return Err(e);
            }
            for node in 0..self.source.frames().nodes() {
                self.reclaim_from(here, NodeId(node), u32::MAX);
            }
            self.drain_here(here);
            self.source.make(here.node(), level, flags)
        })
    }

    /// Notifies the node's other CPUs that a page of the class came from the allocator.
    fn missed(&self, here: &HereCopy<'_>, class: usize) {
        self.depot(here.node(), class).missed(&self.node(here.node()).doorbell);
    }
}
