//! Tables that are made on the way down to an entry.
use super::adopt::{adopt, adopt_clean, free_unlinked};
use super::node::Node;
use super::tables::{Descent, NoTable, Tables, descend};
use crate::addr::PhysAddr;
use crate::format::{Entry, Format};
use crate::frames::{AllocFlags, FrameMeta, Frames, HighUse, NoFrame};
use crate::machine::{Machine, On};
use crate::page::{Clean, Level, MAX_LEVELS};
use crate::sync::atomic::Ordering::Relaxed;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

impl<F: Format> Tables<F> {
    /// The leaf table that maps `va`, a user address, made if it does not exist. `SHARED` says that
    /// other CPUs may be at it too.
    ///
    /// # Errors
    ///
    /// [`NoTable`]; the tree is unchanged then.
    #[inline(always)]
    pub(super) fn leaf_table<'a, M: Machine, const SHARED: bool>(
        &self,
        on: On<'a, M>,
        va: u64,
        flags: AllocFlags,
    ) -> Result<Node<'a, F, M::Window>, NoTable> {
        let end = self.descend(on, va);
        if end.level == Level::PTE {
            return Ok(self.node(on, Level::PTE, end.at));
        }
        self.leaf_table_from::<M, SHARED>(on, va, end, flags)
    }

    /// Makes the table of `level` that maps `va`, a user address, and those above it, as far as
    /// they are missing; for a caller that has the tables for itself.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; tables that were made above stay.
    pub fn make_table<M: Machine>(&self, on: On<'_, M>, va: u64, level: Level) -> Result<(), NoFrame> {
        if level == Level::PTE {
            let made = self.leaf_table::<M, false>(on, va, AllocFlags::NORMAL);
            return made.map_or_else(|e| e.no_frame().map_or(Ok(()), Err), |_| Ok(()));
        }
        self.upper_table(on, va, level, AllocFlags::NORMAL)
    }

    /// The leaf table that maps `va`, made below the table, above the leaves, where the way down
    /// [ended](Self::descend).
    ///
    /// # Errors
    ///
    /// [`NoTable`]; the tree is unchanged then.
    #[inline(always)]
    pub(super) fn leaf_table_from<'a, M: Machine, const SHARED: bool>(
        &self,
        on: On<'a, M>,
        va: u64,
        end: Descent,
        flags: AllocFlags,
    ) -> Result<Node<'a, F, M::Window>, NoTable> {
        let Descent { at, level } = end;
        let at = match level {
            _ if SHARED => self.grow_shared(on, va, at, level, flags)?,
            // Mostly a leaf table is missing and no more.
            Level(1) if cfg!(not(feature = "small")) => self.grow(on, va, at, flags)?,
            _ => self.grow_path(on, va, at, level, flags)?,
        };
        Ok(self.node(on, Level::PTE, at))
    }

    /// Adds to the flags of a request for tables whether leaf tables may be in high memory.
    #[inline(always)]
    fn place<M: Machine>(&self, flags: AllocFlags) -> AllocFlags {
        if !M::HIGH_TABLES {
            return flags;
        }
        let prefers = self.count(Level::PTE) >= self.prefers_high_from.load(Relaxed);
        flags.with_high(if prefers { HighUse::Prefer } else { HighUse::May })
    }

    /// Notes where a leaf table is that the space has got.
    #[inline(always)]
    fn placed<M: Machine>(&self, frames: &Frames, at: PhysAddr) {
        if M::HIGH_TABLES && frames.is_high(at.pfn()) {
            self.prefers_high_from.store(0, Relaxed);
        }
    }

    /// Makes a leaf table and links it in the table `parent` of level 1. A call, so that the way
    /// through existing tables stays short enough to be inlined.
    #[inline(never)]
    fn grow<M: Machine>(
        &self,
        on: On<'_, M>,
        va: u64,
        parent: PhysAddr,
        flags: AllocFlags,
    ) -> Result<PhysAddr, NoTable> {
        if self.may_be_large() && self.is_large_at(on, va) {
            return Err(NoTable::LARGE);
        }
        let (at, _) = self.take_leaf_table(on, flags)?;
        self.node(on, Level(1), parent).put(F::index(Level(1), va), F::link(Level(1), at));
        self.note_linked::<M>(1);
        Ok(at)
    }

    /// Makes the leaf table that maps `va`, as [`leaf_table_from`](Self::leaf_table_from) does for
    /// a caller that has the tables for itself, with the leaf `raw` for `va` in it. A call, as
    /// [`grow`](Self::grow) is.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; the tree is unchanged then.
    #[inline(never)]
    pub(super) fn put_in_new<M: Machine>(
        &self,
        on: On<'_, M>,
        va: u64,
        end: Descent,
        raw: u64,
    ) -> Result<(), NoFrame> {
        if end.level == Level(1)
            && let Some(record) = on.frames().meta_at_hand(end.at.pfn())
        {
            let link = |at| {
                let above = Node::<F, _>::with_record(on.window(), record, Level(1), end.at);
                above.put(F::index(Level(1), va), F::link(Level(1), at));
                self.note_linked::<M>(1);
            };
            let far = |page| self.put_page(on, va, end.at, page, raw);
            if self.put_at_hand(on, va, AllocFlags::NORMAL, raw, link, far) {
                return Ok(());
            }
        }
        self.put_in_new_by(on, va, end, AllocFlags::NORMAL, raw)
    }

    /// As [`put_in_new`](Self::put_in_new), with tables by `flags`, wherever they come from. No
    /// large page maps `va`.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; the tree is unchanged then.
    #[inline(never)]
    pub(super) fn put_in_new_by<M: Machine>(
        &self,
        on: On<'_, M>,
        va: u64,
        end: Descent,
        flags: AllocFlags,
        raw: u64,
    ) -> Result<(), NoFrame> {
        let Descent { at, level } = end;
        if level != Level(1) {
            let at = self.grow_path(on, va, at, level, flags).map_err(NoTable::not_large)?;
            self.node(on, Level::PTE, at).put_first(F::index(Level::PTE, va), raw);
            return Ok(());
        }
        let page = on.alloc_table(Level::PTE, self.place::<M>(flags))?;
        self.put_page(on, va, at, page, raw);
        Ok(())
    }

    /// As [`put_in_new`](Self::put_in_new), below a table of level 1 in which `link` links the
    /// table at the address given, if a page is at hand. For one whose record takes longer to find,
    /// `far` does all of it. Returns whether it is done; the tables are unchanged otherwise.
    ///
    /// Calls are last on their ways: so none of the registers that a callee keeps are saved.
    #[inline(always)]
    pub(super) fn put_at_hand<M: Machine>(
        &self,
        on: On<'_, M>,
        va: u64,
        flags: AllocFlags,
        raw: u64,
        link: impl FnOnce(PhysAddr),
        far: impl FnOnce(Clean),
    ) -> bool {
        if cfg!(feature = "small") {
            return false;
        }
        let Some(page) = on.table_at_hand(Level::PTE, self.place::<M>(flags)) else { return false };
        match on.frames().meta_at_hand(page.addr().pfn()) {
            Some(record) => link(self.fill_page(on, va, page, record, raw)),
            None => far(page),
        }
        true
    }

    /// Makes `page` the leaf table that maps `va`, below the table of level 1 at `above`.
    #[cold]
    #[inline(never)]
    pub(super) fn put_page<M: Machine>(
        &self,
        on: On<'_, M>,
        va: u64,
        above: PhysAddr,
        page: Clean,
        raw: u64,
    ) {
        let record = on.frames().meta(page.addr().pfn());
        let above = self.node(on, Level(1), above);
        let at = self.fill_page(on, va, page, record, raw);
        above.put(F::index(Level(1), va), F::link(Level(1), at));
        self.note_linked::<M>(1);
    }

    /// Makes `page`, whose record is `record`, a leaf table for `va`, with the leaf `raw`, which
    /// the caller links, and counts it.
    #[inline(always)]
    fn fill_page<M: Machine>(
        &self,
        on: On<'_, M>,
        va: u64,
        page: Clean,
        record: &FrameMeta,
        raw: u64,
    ) -> PhysAddr {
        let at = adopt_clean(record, page);
        self.placed::<M>(on.frames(), at);
        self.add(Level::PTE, 1);
        // Before it is linked.
        let node = Node::<F, _>::with_record(on.window(), record, Level::PTE, at);
        node.put_first(F::index(Level::PTE, va), raw);
        at
    }

    /// Takes a page for a leaf table, which the caller links, and counts it. Returns its record,
    /// too.
    #[inline(always)]
    fn take_leaf_table<'a, M: Machine>(
        &self,
        on: On<'a, M>,
        flags: AllocFlags,
    ) -> Result<(PhysAddr, &'a FrameMeta), NoFrame> {
        let page = on.alloc_table(Level::PTE, self.place::<M>(flags))?;
        let frames = on.frames();
        let (at, record) = adopt(frames, Level::PTE, page);
        self.placed::<M>(frames, at);
        self.add(Level::PTE, 1);
        Ok((at, record))
    }

    /// Makes all tables that are missing below the table `parent` of `level` on the way to `va`.
    #[inline(never)]
    fn grow_path<M: Machine>(
        &self,
        on: On<'_, M>,
        va: u64,
        parent: PhysAddr,
        level: Level,
        flags: AllocFlags,
    ) -> Result<PhysAddr, NoTable> {
        if self.may_be_large() && self.is_large_at(on, va) {
            return Err(NoTable::LARGE);
        }
        let path = Path::<F>::make(on, va, level, self.place::<M>(flags))?;
        // The window may unwind: nothing is counted before that is not linked.
        let node = self.node(on, level, parent);
        self.placed::<M>(on.frames(), path.leaf_table());
        for n in self.count.0.iter().take(level.at()) {
            n.store(n.load(Relaxed).wrapping_add(1), Relaxed);
        }
        node.put(F::index(level, va), F::link(level, path.first()));
        self.note_linked::<M>(level.0);
        Ok(path.leaf_table())
    }

    /// Makes the tables that are missing on the way to the table of `level`, above the leaves, that
    /// maps `va`, and that table; for a caller that has the tables for itself.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; tables that were made above the one that could not be had stay, empty.
    #[cold]
    pub(super) fn upper_table<M: Machine>(
        &self,
        on: On<'_, M>,
        va: u64,
        level: Level,
        flags: AllocFlags,
    ) -> Result<(), NoFrame> {
        let mut end = descend::<F, _>(on.window(), self.root, Self::ROOT, va, level);
        while end.level > level {
            let below = Level(end.level.0 - 1);
            let (at, _) = adopt(on.frames(), below, on.alloc_table(below, flags)?);
            let node = self.node(on, end.level, end.at);
            self.add(below, 1);
            node.put(F::index(end.level, va), F::link(end.level, at));
            self.note_linked::<M>(end.level.0);
            end = Descent { at, level: below };
        }
        Ok(())
    }

    /// As [`grow_path`](Self::grow_path), unless other CPUs do so first.
    #[cold]
    fn grow_shared<M: Machine>(
        &self,
        on: On<'_, M>,
        va: u64,
        mut parent: PhysAddr,
        mut level: Level,
        flags: AllocFlags,
    ) -> Result<PhysAddr, NoTable> {
        let flags = self.place::<M>(flags);
        loop {
            let path = Path::<F>::make(on, va, level, flags)?;
            let theirs = match self.link_shared(on, va, parent, level, &path) {
                Entry::None => {
                    self.placed::<M>(on.frames(), path.leaf_table());
                    return Ok(path.leaf_table());
                }
                theirs => theirs,
            };
            path.free(on);
            let Entry::Link(theirs) = theirs else { return Err(NoTable::LARGE) };
            // Theirs may be complete, or not.
            let end = descend::<F, _>(on.window(), theirs, Level(level.0 - 1), va, Level::PTE);
            if end.level == Level::PTE {
                return Ok(end.at);
            }
            (parent, level) = (end.at, end.level);
        }
    }
}

/// One table for each level below some level, linked only to each other on the way to an address.
///
/// All are taken before any is linked, and they are linked to each other before the first of them
/// is linked to a tree: so a failure leaves the tree as it was, and a walker sees a complete path
/// or no path (release store).
pub(super) struct Path<F: Format> {
    /// Lowest first.
    tables: [PhysAddr; MAX_LEVELS],
    len: usize,
    _format: PhantomData<F>,
}

impl<F: Format> Path<F> {
    /// Tables for all levels below `level`.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then.
    pub(super) fn make<M: Machine>(
        on: On<'_, M>,
        va: u64,
        level: Level,
        flags: AllocFlags,
    ) -> Result<Self, NoFrame> {
        let path = Path { tables: [PhysAddr(0); MAX_LEVELS], len: 0, _format: PhantomData };
        let mut unfinished = UnlinkedPath { on, path };
        let Path { tables, len, .. } = &mut unfinished.path;
        let mut lower = None;
        for (below, table) in tables.iter_mut().enumerate().take(level.at()) {
            let level = Level(below as u8);
            let page = on.alloc_table(level, flags)?;
            let (at, record) = adopt(on.frames(), level, page);
            (*table, *len) = (at, below + 1);
            if let Some(lower) = lower.replace(at) {
                let node = Node::<F, M::Window>::with_record(on.window(), record, level, at);
                node.put(F::index(level, va), F::link(level, lower));
            }
        }
        Ok(unfinished.end())
    }

    /// The highest of the tables.
    pub(super) fn first(&self) -> PhysAddr {
        let [lowest, ..] = self.tables;
        self.tables.get(self.len.wrapping_sub(1)).copied().unwrap_or(lowest)
    }

    fn leaf_table(&self) -> PhysAddr {
        let [lowest, ..] = self.tables;
        lowest
    }

    /// Takes it apart and gives the tables back: it was never linked to a tree.
    #[cold]
    pub(super) fn free<M: Machine>(self, on: On<'_, M>) {
        drop(UnlinkedPath { on, path: self });
    }
}

/// A path that is linked nowhere. Dropping it takes it apart and gives its tables back: so none is
/// lost if there is no memory for the next one, or the policy unwinds.
struct UnlinkedPath<'a, F: Format, M: Machine> {
    on: On<'a, M>,
    path: Path<F>,
}

impl<F: Format, M: Machine> UnlinkedPath<'_, F, M> {
    #[inline]
    fn end(self) -> Path<F> {
        let path = &ManuallyDrop::new(self).path;
        Path { tables: path.tables, len: path.len, _format: PhantomData }
    }
}

impl<F: Format, M: Machine> Drop for UnlinkedPath<'_, F, M> {
    #[cold]
    fn drop(&mut self) {
        let Some(level) = self.path.len.checked_sub(1) else { return };
        let Path { tables, .. } = self.path;
        // Dropped next, also if the policy unwinds.
        let _others = UnlinkedPath { on: self.on, path: Path { tables, len: level, ..self.path } };
        let Some(&at) = tables.get(level) else { return };
        let level = Level(level as u8);
        if level > Level::PTE {
            let node = Node::<F, M::Window>::open(self.on.window(), self.on.frames(), level, at);
            node.each_link(0, F::entries(level) - 1, |link| link.cut());
        }
        // SAFETY: 1. `make` took it. 2. its only entry has just been cleared. 3. never linked to a
        // tree, so no walker ever knew it (REQ-37).
        unsafe { free_unlinked(self.on, level, at) };
    }
}
