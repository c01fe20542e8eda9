//! Between a policy and the frame allocator: makes pages clean on the way in, unmakes them on the way out.
use crate::addr::{FRAME_SHIFT, FRAME_SIZE, Pfn, PhysAddr};
use crate::cpu::NodeId;
use crate::frames::{
    AllocFlags, Dirty, End, Frame, Frames, NoFrame, Request, Slab, Taken, Use, Zero, ZoneClass,
};
use crate::page::{Clean, Construct, Layout, Level};
use crate::window::{Window, WindowGuard};

/// Pages in a group, see [`Source::make_group`].
pub const GROUP: usize = 4;
#[cfg(not(loom))]
const _: () = assert!(GROUP * size_of::<crate::frames::FrameMeta>() == 64);

/// Frames, the window to clear them through, and the constructor of top tables.
pub struct Source<'m, W, C> {
    frames: &'m Frames,
    window: W,
    construct: C,
    layout: Layout,
    small: Slab,
}

impl<'m, W: Window, C: Construct> Source<'m, W, C> {
    /// A source of tables for trees of `layout`.
    pub fn new(frames: &'m Frames, window: W, construct: C, layout: Layout) -> Self {
        // Only the top may be smaller than a frame; where it is not, the slab stays empty.
        let shift = layout.table_shift[layout.top().at()].clamp(3, FRAME_SHIFT as u8 - 1);
        Source { frames, window, construct, layout, small: Slab::new(shift) }
    }

    /// The frames it draws from.
    #[inline(always)]
    pub fn frames(&self) -> &'m Frames {
        self.frames
    }

    /// What tables look like.
    #[inline(always)]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The window.
    #[inline(always)]
    pub fn window(&self) -> &W {
        &self.window
    }

    /// The constructor of top tables.
    pub fn constructor(&self) -> &C {
        &self.construct
    }

    /// A new clean page for `level`: taken, cleared unless known to be zero, constructed if it is a top.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; the constructor has not run then, or has failed.
    pub fn make(&self, node: NodeId, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        let at = if self.layout.is_small(level) {
            self.small.take(self.frames, &self.window, node, flags)?
        } else {
            let order = self.layout.order(level);
            let request = Request { node, order, zero: true, class: ZoneClass::Low, end: End::Low, flags };
            let frame = self.frames.take(request)?.zeroed(&self.window);
            let meta = self.frames.meta(frame.pfn());
            meta.set_lines(0, 0);
            meta.set_lines(1, 0);
            meta.set_live(0);
            frame.into_raw().addr()
        };
        if level == self.layout.top() && !self.construct.try_construct(self.frames, at) {
            self.give_zero(level, at);
            return Err(NoFrame::new(self.layout.order(level), node, self.frames.node_free(node)));
        }
        // SAFETY: 1. and 3. just taken. 2. cleared, and constructed if it is a top.
        Ok(unsafe { Clean::from_raw(at) })
    }

    /// Four new clean pages for `level` at once: neighbours, whose records fill a cache line. So CPUs that are at
    /// work on tables of theirs do not take a record's line from each other. `None` if there is no such block on `node`,
    /// or tables of the level are not single frames that only need clearing.
    pub fn make_group(&self, node: NodeId, level: Level, flags: AllocFlags) -> Option<[Clean; GROUP]> {
        if self.layout.is_small(level) || self.layout.order(level) > 0 || level == self.layout.top() {
            return None;
        }
        let order = GROUP.trailing_zeros() as u8;
        let request = Request { node, order, zero: true, class: ZoneClass::Low, end: End::Low, flags };
        let taken = self.frames.take(request).ok()?;
        if self.frames.node_of(taken.pfn()) != node {
            match taken {
                Taken::Zero(block) => self.frames.give(block),
                Taken::Dirty(block) => self.frames.give(block),
            }
            return None;
        }
        let first = taken.zeroed(&self.window).into_raw();
        Some(core::array::from_fn(|i| {
            let pfn = Pfn(first.0 + i as u32);
            let meta = self.frames.meta(pfn);
            meta.set_usage(Use::Taken);
            meta.set_lines(0, 0);
            meta.set_lines(1, 0);
            meta.set_live(0);
            // SAFETY: 1. and 3. just taken, each once. 2. cleared, and not for a top.
            unsafe { Clean::from_raw(pfn.addr()) }
        }))
    }

    /// Gives a clean page of `level` back to the allocator, known to be zero.
    pub fn unmake(&self, level: Level, page: Clean) {
        let at = page.into_raw();
        if level == self.layout.top() {
            self.construct.destruct(self.frames, at);
        }
        self.give_zero(level, at);
    }

    /// Gives the all-zero memory of a table of `level`, which the caller owns and nobody can reach, back to the allocator.
    fn give_zero(&self, level: Level, at: PhysAddr) {
        if self.layout.is_small(level) {
            // SAFETY: 1. `make` took it from this slab and the caller owns it. 2. nobody can reach it.
            unsafe { self.small.give(self.frames, &self.window, at) };
            return;
        }
        debug_assert!(self.is_zero(at), "page {at} is given back as zero and is not");
        self.frames.meta(at.pfn()).set_usage(Use::Taken);
        // SAFETY: 1. the caller owns it. 2. it is all zero.
        self.frames.give(unsafe { Frame::<Zero>::from_raw(at.pfn(), self.layout.order(level)) });
    }

    /// As [`unmake`](Self::unmake), but forgets that the page is zero, as allocators did that knew no zero.
    pub fn unmake_dirty(&self, level: Level, page: Clean) {
        let at = page.into_raw();
        if level == self.layout.top() {
            self.construct.destruct(self.frames, at);
        }
        if self.layout.is_small(level) {
            // SAFETY: as in `unmake`.
            unsafe { self.small.give(self.frames, &self.window, at) };
            return;
        }
        self.frames.meta(at.pfn()).set_usage(Use::Taken);
        // SAFETY: 1. `page` owned it. 2. `Dirty` promises nothing.
        self.frames.give(unsafe { Frame::<Dirty>::from_raw(at.pfn(), self.layout.order(level)) });
    }

    /// Whether every byte of the frame at `at` is zero. For checks: reading a page costs as much as clearing it.
    pub fn is_zero(&self, at: PhysAddr) -> bool {
        let guard = self.window.map(at);
        // SAFETY: the guard is valid for the frame, which the caller of `unmake` owned and nobody else uses.
        let bytes =
            unsafe { core::slice::from_raw_parts(guard.base().cast::<u64>().as_ptr(), FRAME_SIZE / 8) };
        bytes.iter().all(|w| *w == 0)
    }
}
