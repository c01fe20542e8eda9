//! The tree itself, and operations on single pages.
use super::machine::{GatherOf, Machine};
use super::slots::{Slots, born, died, died_leaf, has_record};
use crate::addr::{Pfn, PhysAddr, VirtAddr};
use crate::cpu::Pinned;
use crate::format::{Attr, Format, Slot};
use crate::frames::{AllocFlags, NoFrame, Use};
use crate::page::{Clean, Level, MAX_LEVELS};
use crate::quicklist::Policy;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::fmt;
use core::marker::PhantomData;

/// A tree of tables, from the top down. Has to be taken down with [`Tree::end`]: dropping it loses its tables.
#[must_use = "a dropped tree loses its tables: end it"]
pub struct Tree<F: Format> {
    root: PhysAddr,
    /// Tables in it, by level; the top counts. Atomics, as shared faults add to them; who holds the tree exclusively
    /// uses plain loads and stores.
    tables: [AtomicU32; MAX_LEVELS],
    _format: PhantomData<F>,
}

/// Why a page could not be mapped; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// A table was needed and there was no memory for it.
    NoFrame(NoFrame),
    /// Something is mapped there already.
    Occupied {
        /// Where.
        at: VirtAddr,
    },
    /// The address is not the user's.
    OutOfRange {
        /// Where.
        at: VirtAddr,
    },
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::NoFrame(e) => e.fmt(f),
            MapError::Occupied { at } => write!(f, "{at} is mapped already; unmap it first"),
            MapError::OutOfRange { at } => write!(f, "{at} is beyond the user's addresses"),
        }
    }
}

impl core::error::Error for MapError {}

impl From<NoFrame> for MapError {
    fn from(e: NoFrame) -> Self {
        MapError::NoFrame(e)
    }
}

impl<F: Format> Tree<F> {
    pub(super) const TOP: Level = F::LAYOUT.top();

    /// An empty tree: its top, and where the MMU keeps that in registers also the tables that the user's entries
    /// link, because later entries would not be seen.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; nothing has been taken then.
    pub fn new<M: Machine>(m: &M, pin: &Pinned<'_>, flags: AllocFlags) -> Result<Self, NoFrame> {
        let top = Self::TOP;
        let root = m.policy().alloc(pin, top, flags)?.into_raw();
        if has_record::<F>(top) {
            let meta = m.frames().meta(root.pfn());
            meta.set_usage(Use::Table);
            meta.set_order(top.0);
        }
        let tree = Tree { root, tables: Default::default(), _format: PhantomData };
        tree.count(top, 1);
        if F::TOP_IN_REGISTERS {
            let below = Level(top.0 - 1);
            for index in 0..F::USER_TOP {
                match m.policy().alloc(pin, below, flags) {
                    Ok(page) => {
                        let at = adopt(m, below, page);
                        tree.count(below, 1);
                        Slots::<F, _>::open(m.window(), root).at(top, index).store(F::link(top, at));
                    }
                    Err(e) => {
                        tree.give_up(m, pin);
                        return Err(e);
                    }
                }
            }
        }
        Ok(tree)
    }

    /// Gives back an empty tree that no CPU has ever loaded.
    fn give_up<M: Machine>(self, m: &M, pin: &Pinned<'_>) {
        let top = Self::TOP;
        let slots = Slots::<F, _>::open(m.window(), self.root);
        for index in 0..F::USER_TOP {
            let slot = slots.at(top, index);
            if let Some(at) = F::linked(top, slot.load()) {
                slot.store(0);
                m.frames().meta(at.pfn()).set_usage(Use::Taken);
                // SAFETY: 1. the entry owned it and has been cleared. 2. nothing was ever put in. 3. never loaded.
                m.policy().unused(pin, Level(top.0 - 1), unsafe { Clean::from_raw(at) });
            }
        }
        if has_record::<F>(top) {
            m.frames().meta(self.root.pfn()).set_usage(Use::Taken);
        }
        // SAFETY: as above, for the top.
        m.policy().unused(pin, top, unsafe { Clean::from_raw(self.root) });
    }

    /// The physical address of the top: what the MMU's root register is to hold.
    #[inline(always)]
    pub fn root(&self) -> PhysAddr {
        self.root
    }

    /// Tables of a level.
    #[inline(always)]
    pub fn tables(&self, level: Level) -> u32 {
        self.tables[level.at()].load(Relaxed)
    }

    /// Tables below the top: what Linux reports as `VmPTE`, in pages.
    pub fn tables_below_top(&self) -> u32 {
        self.tables[..Self::TOP.at()].iter().map(|n| n.load(Relaxed)).sum()
    }

    /// Counts tables, held exclusively.
    #[inline(always)]
    pub(super) fn count(&self, level: Level, change: i32) {
        let n = &self.tables[level.at()];
        n.store(n.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }

    /// Counts a table more, with others at work on the tree.
    pub(super) fn count_shared(&self, level: Level) {
        self.tables[level.at()].fetch_add(1, Relaxed);
    }

    /// The table of `to` that maps `va`; `None` if there is none.
    #[inline(always)]
    pub(super) fn find<M: Machine>(&self, m: &M, va: u64, to: Level) -> Option<PhysAddr> {
        Self::find_from(m, self.root, va, to)
    }

    /// The table of `to` that maps `va` in the tree whose top is at `root`.
    #[inline(always)]
    pub(super) fn find_from<M: Machine>(m: &M, root: PhysAddr, va: u64, to: Level) -> Option<PhysAddr> {
        let mut at = root;
        let mut level = Self::TOP;
        while level > to {
            let raw = Slots::<F, _>::open(m.window(), at).at(level, F::index(level, va)).load();
            at = F::linked(level, raw)?;
            level = Level(level.0 - 1);
        }
        Some(at)
    }

    /// The leaf table that maps `va`, made if there is none.
    #[inline(always)]
    pub(super) fn leaf_table<M: Machine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        va: u64,
        flags: AllocFlags,
    ) -> Result<PhysAddr, NoFrame> {
        self.leaf_table_in::<M, false>(m, pin, va, flags)
    }

    /// The same; `SHARED` says that others may be at it too.
    #[inline(always)]
    pub(super) fn leaf_table_in<M: Machine, const SHARED: bool>(
        &self,
        m: &M,
        pin: &Pinned<'_>,
        va: u64,
        flags: AllocFlags,
    ) -> Result<PhysAddr, NoFrame> {
        let mut at = self.root;
        let mut level = Self::TOP;
        while level > Level::PTE {
            let raw = Slots::<F, _>::open(m.window(), at).at(level, F::index(level, va)).load();
            match F::linked(level, raw) {
                Some(next) => at = next,
                None if SHARED => return self.grow_shared(m, pin, va, at, level, flags),
                None => return self.grow(m, pin, va, at, level, flags),
            }
            level = Level(level.0 - 1);
        }
        Ok(at)
    }

    /// Makes all tables that are missing below the table `parent` of `level` on the way to `va`; mostly that is a
    /// leaf table and no more. A call, so that the way through existing tables stays short enough to be inlined.
    #[inline(never)]
    fn grow<M: Machine>(
        &self,
        m: &M,
        pin: &Pinned<'_>,
        va: u64,
        parent: PhysAddr,
        level: Level,
        flags: AllocFlags,
    ) -> Result<PhysAddr, NoFrame> {
        if level > Level(1) {
            return self.grow_path(m, pin, va, parent, level, flags);
        }
        let page = m.policy().alloc(pin, Level::PTE, flags)?;
        let at = adopt(m, Level::PTE, page);
        self.count(Level::PTE, 1);
        set_link::<F, M>(m, Level(1), parent, va, at);
        Ok(at)
    }

    /// Makes several tables.
    #[inline(never)]
    fn grow_path<M: Machine>(
        &self,
        m: &M,
        pin: &Pinned<'_>,
        va: u64,
        parent: PhysAddr,
        level: Level,
        flags: AllocFlags,
    ) -> Result<PhysAddr, NoFrame> {
        let path = make_path::<F, M>(m, pin, va, level, flags)?;
        for below in 0..level.0 {
            self.count(Level(below), 1);
        }
        set_link::<F, M>(m, level, parent, va, path[level.at() - 1]);
        Ok(path[0])
    }

    /// Maps one page. An entry that was not present needs no flush.
    ///
    /// # Errors
    ///
    /// [`MapError`]; nothing has changed then.
    #[inline]
    pub fn map<M: Machine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        va: VirtAddr,
        pfn: Pfn,
        attr: Attr,
        flags: AllocFlags,
    ) -> Result<(), MapError> {
        if va.0 >= F::USER_END {
            return Err(MapError::OutOfRange { at: va });
        }
        let at = self.leaf_table(m, pin, va.0, flags)?;
        let index = F::index(Level::PTE, va.0);
        let slots = Slots::<F, _>::open(m.window(), at);
        let slot = slots.at(Level::PTE, index);
        if slot.load() != 0 {
            return Err(MapError::Occupied { at: va });
        }
        slot.store(F::leaf(pfn, attr));
        born::<F>(m.frames().meta(at.pfn()), Level::PTE, index);
        Ok(())
    }

    /// The leaf table that maps `va`, a user address, and the entry in it; 0 if there is none.
    #[inline(always)]
    pub(crate) fn look<M: Machine>(&self, m: &M, va: u64) -> (Option<PhysAddr>, u64) {
        match self.find(m, va, Level::PTE) {
            Some(at) => {
                let slots = Slots::<F, _>::open(m.window(), at);
                (Some(at), slots.at(Level::PTE, F::index(Level::PTE, va)).load())
            }
            None => (None, 0),
        }
    }

    /// What is mapped at `va`: frame and attributes, even where the MMU would not let the access through.
    #[inline]
    pub fn query<M: Machine>(&self, m: &M, va: VirtAddr) -> Option<(Pfn, Attr)> {
        let raw = self.raw(m, va.0)?;
        Some((F::frame(raw), F::attr(raw)))
    }

    /// The leaf entry for `va`; `None` if there is none.
    #[inline(always)]
    pub(crate) fn raw<M: Machine>(&self, m: &M, va: u64) -> Option<u64> {
        if va >= F::USER_END {
            return None;
        }
        let at = self.find(m, va, Level::PTE)?;
        let raw = Slots::<F, _>::open(m.window(), at).at(Level::PTE, F::index(Level::PTE, va)).load();
        (raw != 0).then_some(raw)
    }

    /// Unmaps one page, keeps the tables (as they are kept for a neighbour that is still mapped); returns frame and
    /// attributes of what was there. To free tables that become empty use [`Tree::unmap_range`].
    #[inline]
    pub fn unmap<M: Machine>(
        &mut self,
        m: &M,
        va: VirtAddr,
        gather: &mut GatherOf<'_, M>,
    ) -> Option<(Pfn, Attr)> {
        if va.0 >= F::USER_END {
            return None;
        }
        let at = self.find(m, va.0, Level::PTE)?;
        let slots = Slots::<F, _>::open(m.window(), at);
        let slot = slots.at(Level::PTE, F::index(Level::PTE, va.0));
        let old = slot.load();
        if old == 0 {
            return None;
        }
        let old = if gather.is_private() {
            slot.store(0);
            old
        } else {
            slot.swap(0)
        };
        died_leaf(&slots, m.frames().meta(at.pfn()), 1);
        gather.changed(va.0, va.0 + (1 << F::PAGE_SHIFT));
        Some((F::frame(old), F::attr(old)))
    }
}

/// Writes the record of a table that is about to be linked.
#[inline(always)]
fn adopt<M: Machine>(m: &M, level: Level, page: Clean) -> PhysAddr {
    let at = page.into_raw();
    let meta = m.frames().meta(at.pfn());
    debug_assert!(meta.live() == 0 && meta.lines(0) == 0, "clean page {at} has a record of use");
    meta.set_usage(Use::Table);
    if level == Level::PTE {
        meta.set_leaf_table();
    } else {
        meta.set_order(level.0);
    }
    at
}

/// Links `child` in the table of `level` at `table`, on the way to `va`.
#[inline(always)]
pub(super) fn set_link<F: Format, M: Machine>(
    m: &M,
    level: Level,
    table: PhysAddr,
    va: u64,
    child: PhysAddr,
) {
    let index = F::index(level, va);
    Slots::<F, _>::open(m.window(), table).at(level, index).store(F::link(level, child));
    if has_record::<F>(level) {
        born::<F>(m.frames().meta(table.pfn()), level, index);
    }
}

/// Takes one table for each level below `level`, and links them to each other, each on the way to `va`; lowest first.
///
/// All are taken before any is linked, and they are linked to each other before the first of them is linked to a
/// tree: so failure leaves nothing behind, and a walker sees a complete path or none (release store).
pub(super) fn make_path<F: Format, M: Machine>(
    m: &M,
    pin: &Pinned<'_>,
    va: u64,
    level: Level,
    flags: AllocFlags,
) -> Result<[PhysAddr; MAX_LEVELS], NoFrame> {
    let n = level.at();
    let mut path = [PhysAddr(0); MAX_LEVELS];
    for below in 0..n {
        match m.policy().alloc(pin, Level(below as u8), flags) {
            Ok(page) => path[below] = adopt(m, Level(below as u8), page),
            Err(e) => {
                for (made, at) in path[..below].iter().enumerate() {
                    // SAFETY: 1. taken above. 2. not written to. 3. never linked (REQ-37).
                    unsafe { give_back_unlinked(m, pin, Level(made as u8), *at) };
                }
                return Err(e);
            }
        }
    }
    for below in 1..n {
        set_link::<F, M>(m, Level(below as u8), path[below], va, path[below - 1]);
    }
    Ok(path)
}

/// Takes a path apart that [`make_path`] made and that was never linked to a tree.
///
/// # Safety
///
/// 1. `path` is what `make_path` returned for `va` and `level`; none of its tables was linked or changed since.
#[cold]
pub(super) unsafe fn drop_path<F: Format, M: Machine>(
    m: &M,
    pin: &Pinned<'_>,
    va: u64,
    level: Level,
    path: &[PhysAddr; MAX_LEVELS],
) {
    for (below, at) in path[..level.at()].iter().enumerate() {
        let inner = Level(below as u8);
        if below > 0 {
            Slots::<F, _>::open(m.window(), *at).at(inner, F::index(inner, va)).store(0);
            died(m.frames().meta(at.pfn()), 1, false);
        }
        // SAFETY: 1. `make_path` took it, and the caller gives it away. 2. its only entry has just been cleared. 3. never
        // linked to a tree, so no walker ever knew it (REQ-37).
        unsafe { give_back_unlinked(m, pin, inner, *at) };
    }
}

/// Gives a table back that no walker ever knew.
///
/// # Safety
///
/// 1. The caller owns the table at `at` and gives it away.
/// 2. It is in the state of its level: no live entries.
/// 3. It was never linked to a tree.
unsafe fn give_back_unlinked<M: Machine>(m: &M, pin: &Pinned<'_>, level: Level, at: PhysAddr) {
    m.frames().meta(at.pfn()).set_usage(Use::Taken);
    // SAFETY: points 1 to 3 are passed on.
    m.policy().unused(pin, level, unsafe { Clean::from_raw(at) });
}
