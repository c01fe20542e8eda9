//! Handing pages out and taking them back.
use super::super::check::{Check, Site};
use super::super::source::GROUP;
use super::super::{Policy, PolicyCounts};
use super::magazine::Hand;
use super::{BOUNDED, LEVELS, Quicklists, REST, TOP};
use crate::addr::{FRAME_SHIFT, PhysAddr};
use crate::cpu::{NodeId, Pinned};
use crate::frames::{AllocFlags, NoFrame};
use crate::page::{Clean, Construct, Flushed, Level};
use crate::window::Window;

/// Pages on their way to another node's [shelf](super::node::Shelf): as many as one call may give back.
struct Parcel {
    node: NodeId,
    n: usize,
    items: [u32; BOUNDED],
}

impl<'m, W: Window, C: Construct, K: Check> Quicklists<'m, W, C, K> {
    #[inline(always)]
    fn page(&self, class: usize, item: u32) -> Clean {
        // SAFETY: 1. the item came out of a list, where it was put by `item`, its owner's last act. 2. and 3. only
        // clean pages are put there, and nobody writes to them while they rest.
        unsafe { Clean::from_raw(PhysAddr((item as u64) << self.shift(class))) }
    }

    #[inline(always)]
    fn item(&self, class: usize, page: Clean) -> u32 {
        (page.into_raw().0 >> self.shift(class)) as u32
    }

    /// Items are numbers of frames, so that 16 TiB can be named; tops, which may be smaller than a frame, are counted in
    /// their own size.
    #[inline(always)]
    fn shift(&self, class: usize) -> u32 {
        if class == TOP { self.top_shift } else { FRAME_SHIFT }
    }

    #[inline(always)]
    fn site<'s>(&'s self, pin: &Pinned<'_>, level: Level) -> Site<'s, 'm, W, C> {
        Site { source: &self.source, cpu: pin.cpu(), level }
    }

    #[inline(always)]
    fn take<const CLASS: usize>(
        &self,
        pin: &Pinned<'_>,
        level: Level,
        flags: AllocFlags,
    ) -> Result<Clean, NoFrame> {
        match self.at_hand_in::<CLASS>(pin, level) {
            Some(page) => Ok(page),
            None => self.take_slow(pin.again(), CLASS, level, flags),
        }
    }

    #[inline(always)]
    pub(super) fn at_hand_in<const CLASS: usize>(&self, pin: &Pinned<'_>, level: Level) -> Option<Clean> {
        let mut cpu = self.cpus.enter(pin)?;
        let item = Hand::new(&mut cpu, CLASS).pop()?;
        cpu.shown().tally.level(level).allocs.add(1);
        drop(cpu);
        self.out(pin, CLASS, level, item)
    }

    /// Hands out a page that rested. One that is not as it should be stays where nobody gets it.
    #[inline(always)]
    fn out(&self, pin: &Pinned<'_>, class: usize, level: Level, item: u32) -> Option<Clean> {
        let page = self.page(class, item);
        if !self.check.taken(&self.site(pin, level), &page) {
            self.forget(pin, level);
            return None;
        }
        debug_assert!(
            class == TOP || self.source.is_zero(page.addr()),
            "page {} rested as zero and is not",
            page.addr()
        );
        Some(page)
    }

    /// A page that was counted as handed out is lost for good: it counts as gone back.
    #[cold]
    fn forget(&self, pin: &Pinned<'_>, level: Level) {
        let tally = self.tally(pin).level(level);
        tally.frees.add(1);
        tally.returns.add(1);
    }

    #[cold]
    #[inline(never)]
    fn take_slow(
        &self,
        pin: Pinned<'_>,
        class: usize,
        level: Level,
        flags: AllocFlags,
    ) -> Result<Clean, NoFrame> {
        let pin = &pin;
        let tally = self.tally(pin).level(level);
        let shelf = self.shelf(pin.node(), class);
        let mut item = None;
        if let Some(mut cpu) = self.cpus.enter(pin) {
            let mut stack = Hand::new(&mut cpu, class);
            self.resize(pin, &mut stack, class);
            // There are some after all if the caller found one that is not as it should be.
            item = stack.pop();
            if item.is_none() && stack.fill(|into| shelf.fetch(pin.cpu(), into)) > 0 {
                item = stack.pop();
                tally.refills.add(1);
            }
        } else {
            // An interrupt found the magazines in use: a single page from the depot.
            let mut one = [0];
            if shelf.fetch(pin.cpu(), &mut one) == 1 {
                item = Some(one[0]);
                tally.refills.add(1);
            }
        }
        if let Some(item) = item {
            tally.allocs.add(1);
            if let Some(page) = self.out(pin, class, level, item) {
                return Ok(page);
            }
        }
        if class == REST
            && self.config.magazine >= GROUP
            && !self.source.frames().pressed(pin.node())
            && let Some(page) = self.miss_group(pin, level, flags)
        {
            return Ok(page);
        }
        let page = self.miss(pin, level, flags)?;
        self.set_limits(pin.node());
        let home = self.source.frames().node_of(page.addr().pfn());
        self.shelf(home, class).count(1);
        self.missed(pin, class);
        tally.misses.add(1);
        tally.allocs.add(1);
        self.check.made(&self.site(pin, level), &page, false);
        Ok(page)
    }

    /// As many pages from the allocator as a cache line has records, for a CPU that has none: one, the others rest. The guard
    /// is given up before they are made: they are cleared through a window, which may have to wait (REQ-6).
    fn miss_group(&self, pin: &Pinned<'_>, level: Level, flags: AllocFlags) -> Option<Clean> {
        {
            let mut cpu = self.cpus.enter(pin)?;
            // No room: an interrupt came in since.
            if !Hand::new(&mut cpu, REST).has_room_for_group() {
                return None;
            }
        }
        let site = self.site(pin, level);
        let [page, rest @ ..] = self.source.make_group(pin.node(), level, flags)?;
        self.set_limits(pin.node());
        self.shelf(pin.node(), REST).count(GROUP as i32);
        self.missed(pin, REST);
        let tally = self.tally(pin).level(level);
        tally.misses.add(GROUP);
        tally.allocs.add(1);
        for page in rest.into_iter().rev() {
            self.check.made(&site, &page, true);
            let item = self.item(REST, page);
            // Another interrupt may have come in.
            if !self.cpus.enter(pin).is_some_and(|mut cpu| Hand::new(&mut cpu, REST).push(item)) {
                self.put_slow(pin.again(), REST, level, item);
            }
        }
        self.check.made(&site, &page, false);
        Some(page)
    }

    /// A page from the allocator; if there is none, after giving up what is kept everywhere within reach.
    fn miss(&self, pin: &Pinned<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        self.source.make(pin.node(), level, flags).or_else(|e| {
            if !flags.may_sleep {
                return Err(e);
            }
            for node in 0..self.source.frames().nodes() {
                self.reclaim(pin, NodeId(node), u32::MAX);
            }
            self.drain(pin);
            self.source.make(pin.node(), level, flags)
        })
    }

    /// Keeps a page that may be a top, or of any node.
    #[inline(never)]
    fn put_any(&self, pin: Pinned<'_>, level: Level, page: Clean) {
        let class = if level == self.top { TOP } else { REST };
        if !self.one_node && self.source.frames().node_of(page.addr().pfn()) != pin.node() {
            return self.put_home(&pin, class, level, page);
        }
        if class == TOP { self.put::<TOP>(&pin, level, page) } else { self.put::<REST>(&pin, level, page) }
    }

    /// Keeps a clean page of this node, or gives it back if there is no room for it.
    #[inline(always)]
    fn put<const CLASS: usize>(&self, pin: &Pinned<'_>, level: Level, page: Clean) {
        let item = self.item(CLASS, page);
        if let Some(mut cpu) = self.cpus.enter(pin) {
            cpu.shown().tally.level(level).frees.add(1);
            if Hand::new(&mut cpu, CLASS).push(item) {
                return;
            }
        } else {
            self.tally(pin).level(level).frees.add(1);
        }
        self.put_slow(pin.again(), CLASS, level, item)
    }

    /// Keeps a clean page in this CPU's magazines if it is of this node and they have room.
    #[inline(always)]
    pub(super) fn to_hand<const CLASS: usize>(
        &self,
        pin: &Pinned<'_>,
        level: Level,
        page: Clean,
    ) -> Result<(), Clean> {
        if !self.one_node && self.source.frames().node_of(page.addr().pfn()) != pin.node() {
            return Err(page);
        }
        let Some(mut cpu) = self.cpus.enter(pin) else { return Err(page) };
        if Hand::new(&mut cpu, CLASS).is_full() {
            return Err(page);
        }
        if self.check.given(&self.site(pin, level), &page) {
            cpu.shown().tally.level(level).frees.add(1);
            Hand::new(&mut cpu, CLASS).push(self.item(CLASS, page));
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn put_slow(&self, pin: Pinned<'_>, class: usize, level: Level, item: u32) {
        let pin = &pin;
        let shelf = self.shelf(pin.node(), class);
        if self.config.magazine > 0
            && let Some(mut cpu) = self.cpus.enter(pin)
        {
            let mut stack = Hand::new(&mut cpu, class);
            self.resize(pin, &mut stack, class);
            // Both magazines are full: all but the newest magazine goes to the depot. Unless they have grown.
            if stack.push(item) {
                return;
            }
            stack.exchange(|old| shelf.store(pin.cpu(), old));
            if stack.push(item) {
                return;
            }
            drop(cpu);
            return self.unmake(pin, class, level, item);
        }
        if self.config.magazine == 0 || shelf.store(pin.cpu(), &[item]) == 0 {
            self.unmake(pin, class, level, item);
        }
    }

    /// To the page's home node, or to the allocator if that keeps enough.
    #[cold]
    fn put_home(&self, pin: &Pinned<'_>, class: usize, level: Level, page: Clean) {
        self.tally(pin).level(level).frees.add(1);
        let node = self.source.frames().node_of(page.addr().pfn());
        let item = self.item(class, page);
        self.send(pin, class, level, node, &[item]);
    }

    /// Sends pages home.
    fn send(&self, pin: &Pinned<'_>, class: usize, level: Level, node: NodeId, items: &[u32]) {
        let cached = self.config.magazine > 0;
        let sent = if cached { self.shelf(node, class).store_remote(pin.cpu(), items) } else { 0 };
        for item in &items[sent..] {
            self.unmake(pin, class, level, *item);
        }
    }

    /// Gives a page that rests, or was to, back to the allocator.
    pub(super) fn unmake(&self, pin: &Pinned<'_>, class: usize, level: Level, item: u32) {
        let page = self.page(class, item);
        self.check.leaves(&self.site(pin, level), &page);
        let home = self.source.frames().node_of(page.addr().pfn());
        self.shelf(home, class).count(-1);
        self.tally(pin).level(level).returns.add(1);
        self.source.unmake(level, page);
    }

    /// Takes back what it can of a chain without giving the guard up in between; a page that does not go into this CPU's
    /// magazines, if there is one.
    #[inline(always)]
    fn put_run(&self, pin: &Pinned<'_>, pages: &mut Flushed) -> Option<(Level, Clean)> {
        let frames = self.source.frames();
        let Some(mut cpu) = self.cpus.enter(pin) else { return pages.pop(frames) };
        let tally = &cpu.shown().tally;
        let mut stack = Hand::new(&mut cpu, REST);
        loop {
            let (level, page) = pages.pop(frames)?;
            let here = self.one_node || frames.node_of(page.addr().pfn()) == pin.node();
            if level == self.top || !here || stack.is_full() {
                return Some((level, page));
            }
            if self.check.given(&self.site(pin, level), &page) {
                tally.level(level).frees.add(1);
                stack.push(self.item(REST, page));
            }
        }
    }
}

impl<W: Window, C: Construct, K: Check> Policy for Quicklists<'_, W, C, K> {
    #[inline(always)]
    fn alloc(&self, pin: &Pinned<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        if level == self.top {
            self.take::<TOP>(pin, level, flags)
        } else {
            self.take::<REST>(pin, level, flags)
        }
    }

    #[inline(always)]
    fn unused(&self, pin: &Pinned<'_>, level: Level, page: Clean) {
        if !self.check.given(&self.site(pin, level), &page) {
            return;
        }
        if self.near[level.at() % LEVELS] {
            self.put::<REST>(pin, level, page);
        } else {
            self.put_any(pin.again(), level, page);
        }
    }

    #[inline]
    fn flushed(&self, pin: &Pinned<'_>, mut pages: Flushed) {
        let frames = self.source.frames();
        let mut parcel = Parcel { node: pin.node(), n: 0, items: [0; BOUNDED] };
        // Nearly all are of one class and of this node.
        while let Some((level, page)) = self.put_run(pin, &mut pages) {
            let node = frames.node_of(page.addr().pfn());
            if level == self.top || node == pin.node() {
                self.unused(pin, level, page);
                continue;
            }
            if !self.check.given(&self.site(pin, level), &page) {
                continue;
            }
            self.tally(pin).level(level).frees.add(1);
            if parcel.n == parcel.items.len() || parcel.node != node {
                self.send(pin, REST, Level::PTE, parcel.node, &parcel.items[..parcel.n]);
                (parcel.node, parcel.n) = (node, 0);
            }
            parcel.items[parcel.n] = self.item(REST, page);
            parcel.n += 1;
        }
        if parcel.n > 0 {
            self.send(pin, REST, Level::PTE, parcel.node, &parcel.items[..parcel.n]);
        }
    }

    #[inline]
    fn gather_end(&self, pin: &Pinned<'_>) {
        if self.source.frames().pressed(pin.node()) {
            self.set_limits(pin.node());
        }
        self.answer(pin);
    }

    #[inline]
    fn idle(&self, pin: &Pinned<'_>) {
        self.set_limits(pin.node());
        self.answer(pin);
    }

    fn age(&self, pin: &Pinned<'_>) -> u32 {
        self.reap(pin)
    }

    fn reclaim(&self, pin: &Pinned<'_>, node: NodeId, want: u32) -> u32 {
        self.shrink(pin, node, want)
    }

    fn drain(&self, pin: &Pinned<'_>) {
        for class in [TOP, REST] {
            let Some((_, items, n)) = self.take_all(pin, class) else { continue };
            self.unmake_all(pin, class, &items[..n]);
        }
    }

    fn counts(&self) -> PolicyCounts {
        PolicyCounts::sum(self.cpus.shown().map(|own| &own.tally))
    }
}
