//! Between a policy and the frame allocator: makes pages clean on the way in, unmakes them on the
//! way out.
use super::Placement;
use crate::addr::{FRAME_SIZE, Pfn, PhysAddr};
use crate::cpu::NodeId;
use crate::frames::{
    AllocFlags, Dirty, End, Frame, Frames, HighUse, NoFrame, Request, Slab, State, Taken, Use, Zero,
    ZoneClass,
};
use crate::page::{Clean, Construct, Layout, Level};
use crate::window::{OpenWindow, WindowGuard};

/// Pages in a group, see [`Source::make_group`].
pub const GROUP: usize = 4;
#[cfg(not(loom))]
const _: () = assert!(GROUP * size_of::<crate::frames::FrameMeta>() == 64);

/// Frames, the window to clear them through, and the constructor of root tables.
pub struct Source<'m, W, C> {
    frames: &'m Frames,
    window: W,
    construct: C,
    layout: Layout,
    placement: Placement<'m>,
}

impl<'m, W: OpenWindow, C: Construct> Source<'m, W, C> {
    /// Makes a source of tables for trees of `layout`.
    ///
    /// # Safety
    ///
    /// 1. The window must reach all of `frames` that are low memory.
    /// 2. `construct` must have been made for these `frames`, and for roots of `layout`.
    /// 3. `layout` must have [`MAX_LEVELS`](crate::page::MAX_LEVELS) levels at the most and one at
    ///    least. Only its roots are smaller than a frame.
    /// 4. Entries of the format that the trees are of can name all of `frames`
    ///    ([`check_memory`](crate::table::check_memory)); a [`KernelMap`](crate::table::KernelMap)
    ///    that was made for them says so.
    pub unsafe fn new(frames: &'m Frames, window: W, construct: C, layout: Layout) -> Self {
        Source { frames, window, construct, layout, placement: Placement::default() }
    }

    /// Places leaf tables as `placement` says. Those of several frames stay in low memory: windows
    /// on high memory show one frame at a time.
    ///
    /// # Safety
    ///
    /// 1. Unless all tables are placed in [low](Placement::Low) memory, the window reaches all of
    ///    the frames.
    pub unsafe fn with_placement(self, placement: Placement<'m>) -> Self {
        let placement = if self.layout.order(Level::PTE) > 0 { Placement::Low } else { placement };
        Source { placement, ..self }
    }

    /// Where roots smaller than a frame come from. It is the machine's: a space may end under
    /// another policy than the one that made its root.
    fn small(&self) -> &'m Slab {
        self.frames.slab(self.layout.table_shift[self.layout.root().at()])
    }

    /// Returns the frames that it draws from.
    #[inline]
    pub fn frames(&self) -> &'m Frames {
        self.frames
    }

    /// Returns the layout of trees.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns which memory tables are made of.
    #[inline]
    pub fn placement(&self) -> Placement<'m> {
        self.placement
    }

    /// Returns the class of memory of which a table of `level` is made first. Tables of all levels
    /// but the lowest are made of low memory, whatever `high` says.
    #[inline]
    pub(super) fn class(&self, level: Level, high: HighUse) -> ZoneClass {
        if level == Level::PTE { self.placement.preferred(high) } else { ZoneClass::Low }
    }

    /// Has the placement look at low memory, if it wants to know: a table has come from the
    /// allocator, or gone back. `tables` is called for the number of low frames in tables, or kept
    /// for them.
    #[inline]
    pub(super) fn look(&self, tables: impl FnOnce() -> u32) {
        if let Placement::Auto(auto) = self.placement {
            auto.look(self.frames, tables());
        }
    }

    /// Returns the window.
    #[inline]
    pub fn window(&self) -> &W {
        &self.window
    }

    /// Returns the constructor of root tables.
    pub fn constructor(&self) -> &C {
        &self.construct
    }

    /// Returns whether trees have tables of `level`.
    #[inline]
    pub(super) fn has(&self, level: Level) -> bool {
        level.0 < self.layout.levels
    }

    /// Returns the error for lack of a page of `level` on `node`.
    #[cold]
    pub(super) fn none(&self, node: NodeId, level: Level) -> NoFrame {
        NoFrame::new(self.layout.order(level), node, self.frames.node_free(node))
    }

    /// Makes a clean page for `level`: takes it, clears it unless it is known to be zero,
    /// constructs it if it is a root. The placement selects the zone class and falls back to the
    /// other class if the flags allow it.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; the constructor has not run then, or has failed. It is absent for a level that
    /// trees do not have.
    pub fn make(&self, node: NodeId, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        if !self.has(level) {
            return Err(self.none(node, level));
        }
        let at = if self.layout.is_small(level) {
            // SAFETY: 1. always these frames, whose low memory the window reaches (contract of
            // `new`).
            unsafe { self.small().take(self.frames, &self.window, node, flags)? }
        } else {
            let order = self.layout.order(level);
            let class = self.class(level, flags.high);
            let request = Request { node, order, zero: true, class, end: End::Low, flags };
            let taken = self.frames.take(request).or_else(|e| {
                let highest = if level == Level::PTE { self.placement.highest(flags.high) } else { class };
                if highest == class {
                    return Err(e);
                }
                self.frames.take(Request { class: highest, ..request })
            })?;
            // SAFETY: 1. the window reaches them (contracts of `new` and `with_placement`).
            let frame = unsafe { taken.zeroed(&self.window) };
            self.frames.meta(frame.pfn()).begin_clean();
            frame.into_raw().addr()
        };
        // SAFETY: 1. a root, taken just now, of the frames that the constructor was made for
        // (contract of `new`, 2.). 2. cleared just now.
        if level == self.layout.root() && !unsafe { self.construct.try_construct(self.frames, at) } {
            // SAFETY: 1. taken just now. 2. cleared, and all zero as the constructor has failed.
            unsafe { self.give::<Zero>(level, at) };
            return Err(self.none(node, level));
        }
        // SAFETY: 1. and 3. just taken. 2. cleared, and constructed if it is a root.
        Ok(unsafe { Clean::from_raw(at, level) })
    }

    /// Makes four clean pages for `level` at once: neighbours, whose records fill a cache line. So
    /// CPUs that work on tables of their own do not take a record's line from each other. Returns
    /// `None` if there is no such block on `node`, or tables of the level are not single frames
    /// that only need clearing. All four are of the class of memory that the placement prefers.
    pub fn make_group(&self, node: NodeId, level: Level, flags: AllocFlags) -> Option<[Clean; GROUP]> {
        let is_frame = !self.layout.is_small(level) && self.layout.order(level) == 0;
        if !is_frame || !self.has(level) || level == self.layout.root() {
            return None;
        }
        let order = GROUP.trailing_zeros() as u8;
        let class = self.class(level, flags.high);
        let request = Request { node, order, zero: true, class, end: End::Low, flags };
        let taken = self.frames.take(request).ok()?;
        let is_other = self.frames.is_high(taken.pfn()) != (class == ZoneClass::High);
        if is_other || self.frames.node_of(taken.pfn()) != node {
            match taken {
                Taken::Zero(block) => self.frames.give(block),
                Taken::Dirty(block) => self.frames.give(block),
            }
            return None;
        }
        // SAFETY: 1. the window reaches them (contracts of `new` and `with_placement`).
        let first = unsafe { taken.zeroed(&self.window) }.into_raw();
        Some(core::array::from_fn(|i| {
            let pfn = Pfn(first.0 + i as u32);
            let meta = self.frames.meta(pfn);
            meta.set_usage(Use::Taken);
            meta.begin_clean();
            // SAFETY: 1. and 3. just taken, each once. 2. cleared, and not for a root.
            unsafe { Clean::from_raw(pfn.addr(), level) }
        }))
    }

    /// Gives a clean page back to the allocator, known to be zero.
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::{page::{Clean, Construct}, quicklist::Source, window::OpenWindow};
    /// fn give_back(source: &Source<'_, impl OpenWindow, impl Construct>, page: Clean) {
    ///     source.unmake(page); // which machine is it of?
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// 1. `page` must have come from [`make`](Self::make) or [`make_group`](Self::make_group) of
    ///    this source, or of another one that was made of the same frames, constructor and layout.
    pub unsafe fn unmake(&self, page: Clean) {
        // SAFETY: 1. passed on. 2. a clean page that is no root is all zero, and so is a destructed
        // root (contract of `Construct`, 1.).
        unsafe { self.unmake_as::<Zero>(page) };
    }

    /// Gives a page back as [`unmake`](Self::unmake) does, but forgets that it is zero, as
    /// allocators do that know no zero.
    ///
    /// # Safety
    ///
    /// 1. As for [`unmake`](Self::unmake).
    pub unsafe fn unmake_dirty(&self, page: Clean) {
        // SAFETY: 1. passed on. 2. `Dirty` makes no promise.
        unsafe { self.unmake_as::<Dirty>(page) };
    }

    /// # Safety
    ///
    /// 1. As for [`unmake`](Self::unmake).
    /// 2. What `S` says must hold once the page is destructed.
    #[inline]
    unsafe fn unmake_as<S: State>(&self, page: Clean) {
        let (level, at) = (page.level(), page.into_raw());
        if level == self.layout.root() {
            // SAFETY: 1. `page` owned it; `make` had it constructed, and a clean page is in no TLB.
            unsafe { self.construct.destruct(self.frames, at) };
        }
        // SAFETY: 1. `page` owned it, and came from such a source. 2. passed on.
        unsafe { self.give::<S>(level, at) };
    }

    /// Gives clean root tables back to the allocator, known to be zero, and has the constructor
    /// destruct them together.
    ///
    /// # Safety
    ///
    /// 1. The caller must own the root tables at `roots`, each of which comes once, and the second
    ///    time as the first. No TLB knows them, and each came from [`make`](Self::make) as for
    ///    [`unmake`](Self::unmake).
    pub unsafe fn unmake_roots(&self, roots: impl Iterator<Item = PhysAddr> + Clone) {
        // SAFETY: 1. the caller owns them, `make` had them constructed, and clean pages are in no
        // TLB.
        unsafe { self.construct.destruct_all(self.frames, roots.clone()) };
        for at in roots {
            // SAFETY: 1. the caller owns it (1.). 2. it has been destructed (contract of
            // `Construct`, 1.).
            unsafe { self.give::<Zero>(self.layout.root(), at) };
        }
    }

    /// Gives the memory of a table of `level` back to the allocator.
    ///
    /// # Safety
    ///
    /// 1. The caller must own the table at `at`, which came from this source or one like it, and no
    ///    MMU can reach it.
    /// 2. What `S` says must hold.
    unsafe fn give<S: State>(&self, level: Level, at: PhysAddr) {
        if self.layout.is_small(level) {
            // SAFETY: 1. `make` took it from this slab, which is that of the frames, and the caller
            // owns it (1.). 2. no other code can reach it (1.). 3. as in `make`.
            unsafe { self.small().give(self.frames, &self.window, at) };
            return;
        }
        let order = self.layout.order(level);
        let is_zero = || {
            let frames = (at.0..).step_by(FRAME_SIZE).take(1 << order);
            // SAFETY: 1. the caller owns a table of so many frames there (1.).
            frames.map(PhysAddr).all(|at| unsafe { self.is_zero(at) })
        };
        debug_assert!(!S::ZERO || is_zero(), "page {at} is given back as zero and is not");
        self.frames.meta(at.pfn()).set_usage(Use::Taken);
        // SAFETY: 1. the caller owns it (1.). 2. passed on.
        self.frames.give(unsafe { Frame::<S>::from_raw(self.frames.machine(), at.pfn(), order) });
    }

    /// Returns whether every byte of the frame at `at` is zero. For checks: reading a page costs as
    /// much as clearing it.
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::{addr::PhysAddr, page::Construct, quicklist::Source, window::OpenWindow};
    /// fn look(source: &Source<'_, impl OpenWindow, impl Construct>) -> bool {
    ///     source.is_zero(PhysAddr(1 << 50)) // is there a frame at all?
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// 1. A table of this source, of one frame or more, is at `at`. The caller owns it, and no
    ///    other code writes to it meanwhile.
    pub unsafe fn is_zero(&self, at: PhysAddr) -> bool {
        let guard = self.window.open(at);
        // SAFETY: the window reaches the frame (contracts of `new` and `with_placement`), so the
        // guard is valid for it. No code writes to it (1.), and frames are aligned to more than a
        // word.
        let bytes = unsafe { core::slice::from_raw_parts(guard.base().cast::<u64>(), FRAME_SIZE / 8) };
        bytes.iter().all(|w| *w == 0)
    }
}
