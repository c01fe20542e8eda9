//! Chains of unlinked tables on their way back. The chain carries the type: unhooked, or flushed.
use super::{Clean, Level};
use crate::addr::{Pfn, PhysAddr};
use crate::frames::{FrameMeta, Frames, Use};

/// Proof that no TLB and no walker anywhere can still use the tables of one gather.
pub struct FlushProof(());

impl FlushProof {
    /// Claims that a flush has taken place.
    ///
    /// # Safety
    ///
    /// 1. After the last table of the chain this is used for was unhooked, every CPU that could
    ///    have walked it, lazy ones included, has invalidated its cached translations of the space,
    ///    paging-structure caches included.
    pub unsafe fn claim() -> Self {
        FlushProof(())
    }
}

/// Tables that have been unhooked from their parents, but that TLBs may still know. The chain is
/// linked through the frames' records, so no memory is allocated and the pages are not written.
///
/// There is no way from here to a list that pages are handed out from, except through a flush:
///
/// ```compile_fail,E0451
/// use ptarmigan::page::{Flushed, Unhooked};
/// fn skip_the_flush(pages: Unhooked) -> Flushed {
///     Flushed { pages } // the field is private
/// }
/// ```
///
/// ```compile_fail,E0308
/// use ptarmigan::{page::Unhooked, quicklist::{Policy, PolicyOn}};
/// fn skip_the_flush(here: PolicyOn<'_, impl Policy>, pages: Unhooked) {
///     unsafe { here.flushed(pages) } // expected `Flushed`, found `Unhooked`
/// }
/// ```
///
/// ```compile_fail,E0133
/// use ptarmigan::page::{FlushProof, Unhooked};
/// fn skip_the_flush(pages: Unhooked) {
///     let _ = pages.flushed(FlushProof::claim()); // claiming a flush is unsafe
/// }
/// ```
#[must_use = "dropped tables are lost"]
pub struct Unhooked {
    head: Pfn,
    len: u32,
    root: Option<PhysAddr>,
    root_level: Level,
}

impl Default for Unhooked {
    fn default() -> Self {
        Self::new()
    }
}

/// Tables of a chain that a function has not been called for.
struct Unseen<'a, S: FnMut(Level, PhysAddr)> {
    at: Pfn,
    root: Option<(Level, PhysAddr)>,
    frames: &'a Frames,
    see: &'a mut S,
}

impl<S: FnMut(Level, PhysAddr)> Unseen<'_, S> {
    #[inline(always)]
    fn show(&mut self) {
        while self.at != Pfn::NONE {
            let (at, meta) = (self.at, self.frames.meta(self.at));
            self.at = meta.link();
            (self.see)(Level(meta.order()), at.addr());
        }
        if let Some((level, root)) = self.root.take() {
            (self.see)(level, root);
        }
    }
}

impl<S: FnMut(Level, PhysAddr)> Drop for Unseen<'_, S> {
    /// Empty, unless the function has unwound.
    #[inline(always)]
    fn drop(&mut self) {
        self.show();
    }
}

impl Unhooked {
    /// Makes an empty chain.
    #[inline]
    pub const fn new() -> Self {
        Unhooked { head: Pfn::NONE, len: 0, root: None, root_level: Level(0) }
    }

    /// Puts a table on the chain. Its level is in the frame's record since it was linked.
    ///
    /// # Safety
    ///
    /// 1. The caller must own the table at `pfn` (no entry points to it any more) and give it away.
    /// 2. Its content must be in the state of its level: live count 0.
    /// 3. `meta` must be the record of `pfn`, and say the level: the one for which the page was
    ///    handed out.
    #[inline]
    pub unsafe fn push(&mut self, pfn: Pfn, meta: &FrameMeta) {
        debug_assert_eq!(meta.usage(), Use::Table);
        debug_assert_eq!(meta.live(), 0, "table {pfn} unhooked with live entries");
        meta.set_link(self.head);
        self.head = pfn;
        self.len += 1;
    }

    /// Puts the root table of a space that ends on the chain.
    ///
    /// # Safety
    ///
    /// 1. The caller must own the root table of `level` at `at` and give it away.
    /// 2. Its content must be in the state of its level: the user's half is empty.
    /// 3. The chain holds no root yet.
    pub unsafe fn push_root(&mut self, at: PhysAddr, level: Level) {
        debug_assert!(self.root.is_none());
        self.root = Some(at);
        self.root_level = level;
    }

    /// Returns whether it holds a root that [`push_root`](Self::push_root) put there.
    pub(crate) fn has_root(&self) -> bool {
        self.root.is_some()
    }

    /// Returns how many tables it holds, the root included.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len + self.root.is_some() as u32
    }

    /// Returns whether it holds no table.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.root.is_none()
    }

    /// Puts the tables of `other` on this chain.
    ///
    /// # Safety
    ///
    /// 1. Each table of both chains must be of `frames`.
    /// 2. At most one of the chains has a root: the other one's would be lost.
    #[cold]
    pub unsafe fn append(&mut self, frames: &Frames, other: Unhooked) {
        debug_assert!(self.root.is_none() || other.root.is_none(), "a chain has one root");
        if let Some(root) = other.root {
            (self.root, self.root_level) = (Some(root), other.root_level);
        }
        let mut last = other.head;
        if last == Pfn::NONE {
            return;
        }
        while frames.meta(last).link() != Pfn::NONE {
            last = frames.meta(last).link();
        }
        frames.meta(last).set_link(self.head);
        self.head = other.head;
        self.len += other.len;
    }

    /// Makes the step that takes a flush.
    #[inline]
    pub fn flushed(self, _proof: FlushProof) -> Flushed {
        Flushed { pages: self }
    }

    /// Calls `see` for each table and leaves the chain as it is, e.g. to tell a sanitizer. If it
    /// unwinds at one, it is called for the others first.
    pub fn each(&self, frames: &Frames, mut see: impl FnMut(Level, PhysAddr)) {
        let root = self.root.map(|at| (self.root_level, at));
        Unseen { at: self.head, root, frames, see: &mut see }.show();
    }

    /// # Safety
    ///
    /// 1. Each table of the chain must be of `frames`.
    #[inline]
    unsafe fn pop(&mut self, frames: &Frames) -> Option<(Level, PhysAddr)> {
        if self.head != Pfn::NONE {
            let pfn = self.head;
            let meta = frames.meta(pfn);
            self.head = meta.link();
            self.len -= 1;
            meta.set_usage(Use::Taken);
            return Some((Level(meta.order()), pfn.addr()));
        }
        self.root.take().map(|at| (self.root_level, at))
    }

    /// Moves the tables of each level that `takes` names to a chain of their own, in their order.
    /// The root of a space that ends stays.
    ///
    /// # Safety
    ///
    /// 1. Each table of the chain must be of `frames`.
    /// 2. `takes` must not unwind: tables would be lost.
    pub unsafe fn split(&mut self, frames: &Frames, takes: impl Fn(Level) -> bool) -> Unhooked {
        let mut taken = Unhooked::new();
        let mut at = core::mem::replace(&mut self.head, Pfn::NONE);
        self.len = 0;
        let mut last: [Option<&FrameMeta>; 2] = [None; 2];
        while at != Pfn::NONE {
            let meta = frames.meta(at);
            let is_taken = takes(Level(meta.order()));
            let chain = if is_taken { &mut taken } else { &mut *self };
            match last[usize::from(is_taken)].replace(meta) {
                Some(before) => before.set_link(at),
                None => chain.head = at,
            }
            chain.len += 1;
            at = meta.link();
            meta.set_link(Pfn::NONE);
        }
        taken
    }
}

/// Leaf tables of a space that ends that go back together, mostly.
pub(crate) const TOGETHER: usize = 16;

/// Leaf tables that no MMU can reach any more, in an array: few, on the shortest way back. Their
/// frames' records say [`Use::Taken`] already.
///
/// It is the iterator over them.
#[must_use = "dropped tables are lost"]
pub struct FlushedLeaves<'t> {
    tables: core::slice::Iter<'t, Pfn>,
}

impl<'t> FlushedLeaves<'t> {
    /// Takes over leaf tables after a flush.
    ///
    /// # Safety
    ///
    /// 1. The caller must own the leaf tables at `tables` (no entry points to them any more) and
    ///    give them away, each once.
    /// 2. Their contents must be in the state of level 0: all zero.
    /// 3. No MMU can reach them: they have been flushed everywhere.
    #[inline]
    pub unsafe fn new(tables: &'t [Pfn]) -> Self {
        FlushedLeaves { tables: tables.iter() }
    }

    /// Returns how many are left.
    #[inline]
    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// Hands the next `N` out together, by their frames; `None` if fewer are left. They are
    /// [clean](Clean) tables, which the caller owns.
    #[inline(always)]
    pub(crate) fn next_frames<const N: usize>(&mut self) -> Option<&'t [Pfn; N]> {
        let (first, rest) = self.tables.as_slice().split_first_chunk()?;
        self.tables = rest.iter();
        Some(first)
    }

    /// Returns whether it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Iterator for FlushedLeaves<'_> {
    type Item = Clean;

    #[inline]
    fn next(&mut self) -> Option<Clean> {
        let pfn = self.tables.next()?;
        // SAFETY: 1. to 3. by the contract of `new`: 1. to 3.; each is handed out once.
        Some(unsafe { Clean::from_raw(pfn.addr(), Level::PTE) })
    }
}

/// Tables that no MMU can reach any more.
#[must_use = "dropped tables are lost"]
#[derive(Default)]
pub struct Flushed {
    pages: Unhooked,
}

impl Flushed {
    /// Takes the next table.
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::{frames::Frames, page::{Clean, Flushed}};
    /// fn next(pages: &mut Flushed, frames: &Frames) -> Option<Clean> {
    ///     pages.pop(frames) // whose tables are they?
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// 1. Each table of the chain must be of `frames`.
    #[inline]
    pub unsafe fn pop(&mut self, frames: &Frames) -> Option<Clean> {
        // SAFETY: 1. by the caller.
        let (level, at) = unsafe { self.pages.pop(frames)? };
        // SAFETY: 1. and 2. the chain owned it, in the state of its level (contracts of `push` and
        // `push_root`). 3. it has been flushed everywhere (`FlushProof`).
        Some(unsafe { Clean::from_raw(at, level) })
    }

    /// The chain, to look at its tables.
    pub(crate) fn as_unhooked(&self) -> &Unhooked {
        &self.pages
    }

    /// Returns how many are left.
    pub fn len(&self) -> u32 {
        self.pages.len()
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Calls `see` for each table and leaves the chain as it is. If it unwinds at one, it is called
    /// for the others first.
    pub fn each(&self, frames: &Frames, see: impl FnMut(Level, PhysAddr)) {
        self.pages.each(frames, see)
    }
}
