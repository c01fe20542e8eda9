//! Taking pages back: into the CPU's magazines, to the depot, home to another node, to the
//! allocator.
use super::super::check::Check;
use super::super::here::{HereCopy, Returned};
use super::classes::{HIGH, ROOT, ZERO};
use super::magazine::Magazines;
use super::{BOUNDED, LEVELS, Quicklists};
use crate::addr::Pfn;
use crate::cpu::NodeId;
use crate::page::{Clean, Construct, Flushed, FlushedLeaves, Level, TOGETHER};
use crate::window::OpenWindow;

/// Pages on their way to another node's [depot](super::depot::Depot): as many as one call may give
/// back.
struct Parcel {
    node: NodeId,
    n: usize,
    items: [u32; BOUNDED],
}

impl<W: OpenWindow, C: Construct, K: Check> Quicklists<'_, W, C, K> {
    /// Takes back a page, wherever it belongs.
    #[inline(always)]
    pub(super) fn put_back(&self, here: &HereCopy<'_>, page: Returned<Clean>) {
        if !self.check.given(&self.site(here, page.level()), &page) {
            return;
        }
        if self.near[page.level().at() % LEVELS] {
            // SAFETY: 1. no root, and no high memory.
            unsafe { self.put(here, ZERO, page) };
        } else {
            self.put_any(here.again(), page);
        }
    }

    /// Takes back a page that may be a root, or of any node.
    #[inline(never)]
    fn put_any(&self, here: HereCopy<'_>, page: Returned<Clean>) {
        if !self.one_node && self.source.frames().node_of(page.addr().pfn()) != here.node() {
            return self.put_home(&here, page);
        }
        if cfg!(feature = "small") {
            let class = self.class_of(&page);
            // SAFETY: 1. just looked.
            return unsafe { self.put(&here, class, page) };
        }
        // SAFETY: 1. just looked; all others are of the third class.
        unsafe {
            match self.class_of(&page) {
                ROOT => self.put(&here, ROOT, page),
                HIGH => self.put(&here, HIGH, page),
                _ => self.put(&here, ZERO, page),
            }
        }
    }

    /// Keeps a page of this node, or gives it back if there is no room for it.
    ///
    /// # Safety
    ///
    /// 1. The page must be of the class.
    #[inline(always)]
    unsafe fn put(&self, here: &HereCopy<'_>, class: usize, page: Returned<Clean>) {
        let level = page.level();
        let item = self.item(class, page.into_inner());
        if let Some(mut cpu) = self.enter(here) {
            cpu.shown().tally.row(level, class == HIGH).frees.add(1);
            if Magazines::new(&mut cpu, class).push(item) {
                return;
            }
        } else {
            self.tally(here).row(level, class == HIGH).frees.add(1);
        }
        self.put_slow(here.again(), class, level, item)
    }

    /// Keeps a page in this CPU's magazines if it is of this node and they have room.
    ///
    /// # Safety
    ///
    /// 1. The page must be of the class.
    #[inline(always)]
    pub(super) unsafe fn put_at_hand<const CLASS: usize>(
        &self,
        here: &HereCopy<'_>,
        page: Returned<Clean>,
    ) -> Result<(), Returned<Clean>> {
        let level = page.level();
        if !self.one_node && self.source.frames().node_of(page.addr().pfn()) != here.node() {
            return Err(page);
        }
        let Some(mut cpu) = self.enter(here) else { return Err(page) };
        if Magazines::new(&mut cpu, CLASS).is_full() {
            return Err(page);
        }
        if self.check.given(&self.site(here, level), &page) {
            cpu.shown().tally.row(level, CLASS == HIGH).frees.add(1);
            Magazines::new(&mut cpu, CLASS).push(self.item(CLASS, page.into_inner()));
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    pub(super) fn put_slow(&self, here: HereCopy<'_>, class: usize, level: Level, item: u32) {
        let here = &here;
        let depot = self.depot(here.node(), class);
        if self.config.magazine > 0
            && let Some(mut cpu) = self.enter(here)
        {
            let mut magazines = Magazines::new(&mut cpu, class);
            self.resize(here, &mut magazines, class);
            // Both magazines are full: all but the newest magazine goes to the depot. Unless they
            // have grown.
            if magazines.push(item) {
                return;
            }
            magazines.exchange(|old| depot.store(here.cpu(), old));
            if magazines.push(item) {
                return;
            }
            drop(cpu);
            return self.unmake(here, class, level, item);
        }
        if self.config.magazine == 0 || depot.store(here.cpu(), &[item]) == 0 {
            self.unmake(here, class, level, item);
        }
    }

    /// Takes back a page of another node: its home keeps it, or the allocator gets it if that keeps
    /// enough.
    #[cold]
    fn put_home(&self, here: &HereCopy<'_>, page: Returned<Clean>) {
        let level = page.level();
        let class = self.class_of(&page);
        self.tally(here).row(level, class == HIGH).frees.add(1);
        let node = self.source.frames().node_of(page.addr().pfn());
        let item = self.item(class, page.into_inner());
        self.send(here, class, level, node, &[item]);
    }

    /// Sends pages home.
    fn send(&self, here: &HereCopy<'_>, class: usize, level: Level, node: NodeId, items: &[u32]) {
        let cached = self.config.magazine > 0;
        let sent = if cached { self.depot(node, class).store_remote(here.cpu(), items) } else { 0 };
        for item in &items[sent..] {
            self.unmake(here, class, level, *item);
        }
    }

    /// Gives a page that rests, or was to, back to the allocator.
    pub(super) fn unmake(&self, here: &HereCopy<'_>, class: usize, level: Level, item: u32) {
        let page = self.page(class, level, item);
        self.leaves(here, class, &page);
        // SAFETY: 1. pages of the lists are the source's: only such are put there (contracts of
        // `put_back` and the others).
        unsafe { self.source.unmake(page) };
        self.source.look(|| self.low_tables());
    }

    /// Gives root tables back to the allocator together.
    pub(super) fn unmake_roots(&self, here: &HereCopy<'_>, items: &[u32]) {
        let roots = items.iter().map(|item| self.page(ROOT, self.root, *item));
        for page in roots.clone() {
            self.leaves(here, ROOT, &page);
        }
        // SAFETY: 1. they were on the lists, each once, which the caller has taken them off, and
        // pages of the lists are the source's, as in `unmake`.
        unsafe { self.source.unmake_roots(roots.map(Clean::into_raw)) };
        self.source.look(|| self.low_tables());
    }

    /// Counts a page that goes back to the allocator.
    fn leaves(&self, here: &HereCopy<'_>, class: usize, page: &Clean) {
        self.check.leaves(&self.site(here, page.level()), page);
        let home = self.source.frames().node_of(page.addr().pfn());
        self.depot(home, class).count(-1);
        self.tally(here).row(page.level(), class == HIGH).returns.add(1);
    }

    /// Returns whether a page is neither a root, nor of another node, nor of high memory.
    #[inline(never)]
    fn is_near(&self, node: NodeId, level: Level, at: Pfn) -> bool {
        let frames = self.source.frames();
        level != self.root && frames.node_of(at) == node && !frames.is_high(at)
    }

    /// Takes back all pages of a chain. Nearly all are of one class and of this node.
    #[inline]
    pub(super) fn put_chain(&self, here: &HereCopy<'_>, mut pages: Returned<Flushed>) {
        while let Some(page) = self.put_run(here, &mut pages) {
            if !self.one_node {
                return self.put_chain_home(here.again(), page, pages);
            }
            self.put_back(here, page);
        }
    }

    /// Takes back a page and the rest of a chain, some of which may be of other nodes.
    #[inline(never)]
    fn put_chain_home(&self, here: HereCopy<'_>, first: Returned<Clean>, mut pages: Returned<Flushed>) {
        let (here, frames) = (&here, self.source.frames());
        let mut parcel = Parcel { node: here.node(), n: 0, items: [0; BOUNDED] };
        let mut next = Some(first);
        while let Some(page) = next.take().or_else(|| self.put_run(here, &mut pages)) {
            let level = page.level();
            let node = frames.node_of(page.addr().pfn());
            if level == self.root || node == here.node() {
                self.put_back(here, page);
                continue;
            }
            if !self.check.given(&self.site(here, level), &page) {
                continue;
            }
            if self.class_of(&page) == HIGH {
                self.put_home(here, page);
                continue;
            }
            self.tally(here).level(level).frees.add(1);
            if parcel.n == parcel.items.len() || parcel.node != node {
                self.send(here, ZERO, Level::PTE, parcel.node, &parcel.items[..parcel.n]);
                (parcel.node, parcel.n) = (node, 0);
            }
            parcel.items[parcel.n] = self.item(ZERO, page.into_inner());
            parcel.n += 1;
        }
        if parcel.n > 0 {
            self.send(here, ZERO, Level::PTE, parcel.node, &parcel.items[..parcel.n]);
        }
    }

    /// Takes back as many pages of a chain as it can without giving the guard up in between.
    /// Returns a page that does not go into this CPU's magazines, if there is one.
    #[inline(always)]
    fn put_run(&self, here: &HereCopy<'_>, pages: &mut Returned<Flushed>) -> Option<Returned<Clean>> {
        let frames = self.source.frames();
        // SAFETY: 1. the source makes the lists' pages of its frames.
        let mut next = || unsafe { pages.pop(frames) };
        let Some(mut cpu) = self.enter(here) else { return next() };
        let tally = &cpu.shown().tally;
        let mut magazines = Magazines::new(&mut cpu, ZERO);
        loop {
            let page = next()?;
            let level = page.level();
            let near = self.near[level.at() % LEVELS] || self.is_near(here.node(), level, page.addr().pfn());
            if !near || magazines.is_full() {
                return Some(page);
            }
            if self.check.given(&self.site(here, level), &page) {
                tally.level(level).frees.add(1);
                magazines.push(self.item(ZERO, page.into_inner()));
            }
        }
    }

    /// Takes back leaf tables that go into this CPU's magazines, unless they are to be looked at;
    /// refuses others.
    #[inline]
    pub(super) fn put_leaves<'t>(
        &self,
        here: &HereCopy<'_>,
        pages: Returned<FlushedLeaves<'t>>,
    ) -> Result<(), Returned<FlushedLeaves<'t>>> {
        if K::LOOKS_AT_GIVEN || !self.near[Level::PTE.at()] {
            return Err(pages);
        }
        let Some(mut cpu) = self.enter(here) else { return Err(pages) };
        let tally = &cpu.shown().tally;
        let mut magazines = Magazines::new(&mut cpu, ZERO);
        let mut pages = pages.into_inner();
        let mut n = 0;
        // Mostly they come so.
        if magazines.room() >= TOGETHER
            && let Some(frames) = pages.next_frames::<TOGETHER>()
        {
            n = magazines.push_all(&frames.map(|frame| frame.0));
        }
        let room = magazines.room();
        for page in pages.by_ref().take(room) {
            n += usize::from(magazines.push(self.item(ZERO, page)));
        }
        tally.level(Level::PTE).frees.add(n);
        if pages.is_empty() {
            return Ok(());
        }
        // SAFETY: 1. they are the rest of those that came back.
        Err(unsafe { Returned::new(pages) })
    }
}
