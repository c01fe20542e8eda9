//! The tables of one space: the way down to an entry, and tables that are made on the way.
use super::group::{Group, has_groups, is_hinted, own};
use super::node::{Node, read};
use super::reserve::Reserve;
use crate::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use crate::cpu::NodeId;
use crate::format::{self, Attr, Entry, Format};
use crate::frames::{AllocFlags, FrameMeta, Frames, HighUse, NoFrame, Use};
use crate::machine::{Machine, On};
use crate::page::{Clean, Level, MAX_LEVELS};
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crate::tlb::Mmu;
use crate::window::OpenWindow;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

/// The tables of a space, from the root down, without the TLB state that belongs to them.
pub(crate) struct Tables<F: Format> {
    pub(super) root: PhysAddr,
    /// Tables, by level; the root counts. Atomics, as shared faults add to them; a caller that
    /// holds the tables exclusively uses plain loads and stores.
    pub(super) count: TableCounts,
    /// Leaf tables from which on it prefers high memory for more: its share of low memory, and 0 as
    /// soon as it has had one in high memory.
    prefers_high_from: AtomicU32,
    /// The tables that its large pages have reserved.
    pub(super) reserve: Reserve,
    /// Whether a large page holds a reference to the whole (`frames/data/large.rs`) of a large data
    /// frame, unless it is special: so it is in spaces. Trees leave frames to their callers.
    pub(super) is_counted: bool,
    _format: PhantomData<F>,
}

/// Why there is no leaf table for an address: there was no memory for one, or a large page lies
/// there. One word, as [`NoFrame`] is.
#[derive(Debug)]
pub(crate) struct NoTable(NoFrame);

impl NoTable {
    /// A large page lies there. No memory is given in blocks of so many frames.
    pub const LARGE: Self = NoTable(NoFrame::new(u8::MAX, NodeId(0), 0));

    /// The error where the caller knows that no large page lies there.
    #[inline]
    pub fn not_large(self) -> NoFrame {
        debug_assert!(self.0 != Self::LARGE.0, "a large page lies there");
        self.0
    }

    /// Says which of the two it is: `None` for a large page.
    pub fn no_frame(self) -> Option<NoFrame> {
        (self.0 != Self::LARGE.0).then_some(self.0)
    }
}

impl From<NoFrame> for NoTable {
    #[inline]
    fn from(e: NoFrame) -> Self {
        NoTable(e)
    }
}

/// How many tables of each level there are.
#[derive(Default)]
pub(super) struct TableCounts([AtomicU32; MAX_LEVELS]);

impl TableCounts {
    /// Counts tables, held exclusively.
    #[inline]
    pub fn add(&self, level: Level, change: i32) {
        let n = &self.0[level.at() % MAX_LEVELS];
        n.store(n.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }
}

/// Where a way down ended.
pub(crate) struct Descent {
    /// The last table that was reached.
    pub at: PhysAddr,
    pub level: Level,
}

/// Goes down from the table of `level` at `at` towards `va`, to the table of level `to` if there is
/// one.
#[inline]
pub(super) fn descend<F: Format, W: OpenWindow>(
    window: &W,
    mut at: PhysAddr,
    mut level: Level,
    va: u64,
    to: Level,
) -> Descent {
    while level > to {
        let raw = read::<F, W>(window, level, at, F::index(level, va));
        match F::linked(level, raw) {
            Some(next) => (at, level) = (next, Level(level.0 - 1)),
            None => {
                debug_assert_eq!(F::entry(level, raw) == Entry::Leaf, !F::is_none(raw), "no link, no leaf");
                break;
            }
        }
    }
    Descent { at, level }
}

impl<F: Format> Tables<F> {
    pub const ROOT: Level = F::LAYOUT.root();

    /// All addresses of the user.
    pub const USER: VirtRange = VirtRange { start: 0, end: F::USER_END };

    /// The root alone, and where the MMU keeps that in registers also the tables that the user's
    /// entries link, because later entries would not be seen.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then.
    pub fn new<M: Machine>(on: On<'_, M>, flags: AllocFlags) -> Result<Self, NoFrame> {
        const { format::check::<F>() };
        const { hashes::<F, M>() };
        let level = Self::ROOT;
        let root = on.alloc_table(level, flags)?.into_raw();
        if !F::LAYOUT.is_small(level) {
            let record = on.frames().meta(root.pfn());
            record.set_usage(Use::Table);
            record.set_order(level.0);
        }
        let prefers_high_from = AtomicU32::new(on.machine().table_share());
        let (count, reserve) = (Default::default(), Reserve::none());
        let tables =
            Tables { root, count, prefers_high_from, reserve, is_counted: false, _format: PhantomData };
        tables.add(level, 1);
        if F::ROOT_IN_REGISTERS {
            let below = Level(level.0 - 1);
            for index in 0..F::USER_ROOT_ENTRIES {
                match on.alloc_table(below, flags) {
                    Ok(page) => {
                        let (at, _) = adopt(on.frames(), below, page);
                        tables.add(below, 1);
                        tables.node(on, level, root).put(index, F::link(level, at));
                    }
                    Err(e) => {
                        tables.give_up(on);
                        return Err(e);
                    }
                }
            }
        }
        on.tlb().owner_begins(on.pin());
        Ok(tables)
    }

    /// Gives back tables that no CPU has ever loaded and that are empty.
    fn give_up<M: Machine>(self, on: On<'_, M>) {
        let level = Self::ROOT;
        self.node(on, level, self.root).each_link(0, F::USER_ROOT_ENTRIES - 1, |link| {
            let at = link.child;
            link.cut();
            // SAFETY: 1. the entry owned it and has been cleared. 2. no entry was ever put in.
            // 3. never loaded.
            unsafe { free_unlinked(on, Level(level.0 - 1), at) };
        });
        if !F::LAYOUT.is_small(level) {
            on.frames().meta(self.root.pfn()).set_usage(Use::Taken);
        }
        // SAFETY: 1. `self` owned the root and is consumed. 2. its user half is empty. 3. no CPU
        // has loaded it.
        let root = unsafe { Clean::from_raw(self.root, level) };
        // SAFETY: 1. trees take their tables from the policy of their machine, which `on` is (1.).
        unsafe { on.free_unlinked(root) };
    }

    /// The physical address of the root: the value for the MMU's root register.
    #[inline]
    pub fn root(&self) -> PhysAddr {
        self.root
    }

    /// Tables of a level; 0 of one that trees do not have.
    #[inline]
    pub fn count(&self, level: Level) -> u32 {
        self.count.0.get(level.at()).map_or(0, |count| count.load(Relaxed))
    }

    /// Tables below the root: the count that Linux reports as `VmPTE`, in pages.
    pub fn below_root(&self) -> u32 {
        self.count.0[..Self::ROOT.at()].iter().map(|n| n.load(Relaxed)).sum()
    }

    /// Counts tables, held exclusively.
    #[inline]
    pub(super) fn add(&self, level: Level, change: i32) {
        self.count.add(level, change);
    }

    /// The counts of its tables.
    pub(super) fn counts(&self) -> &TableCounts {
        &self.count
    }

    /// Counts a table more, with others at work on the tables.
    pub(super) fn add_shared(&self, level: Level) {
        self.count.0[level.at()].fetch_add(1, Relaxed);
    }

    /// Opens a table of `level`.
    #[inline(always)]
    pub(super) fn node<'a, M: Machine>(
        &self,
        on: On<'a, M>,
        level: Level,
        at: PhysAddr,
    ) -> Node<'a, F, M::Window> {
        Node::open(on.window(), on.frames(), level, at)
    }

    /// The table of `to` that maps `va`, a user address; `None` if it does not exist.
    #[inline(always)]
    pub(super) fn find<'a, M: Machine>(
        &self,
        on: On<'a, M>,
        va: u64,
        to: Level,
    ) -> Option<Node<'a, F, M::Window>> {
        let end = descend::<F, _>(on.window(), self.root, Self::ROOT, va, to);
        (end.level == to).then(|| self.node(on, to, end.at))
    }

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

    /// Goes down towards the leaf table that maps `va`, a user address.
    #[inline]
    pub(super) fn descend<M: Machine>(&self, on: On<'_, M>, va: u64) -> Descent {
        descend::<F, _>(on.window(), self.root, Self::ROOT, va, Level::PTE)
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

    /// Reads the leaf entry for `va`, a user address, in the tables whose root is at `root`, which
    /// may be changing. The caller is a [reader](crate::tlb::Readers) of their space, which keeps
    /// tables that are found from being used again.
    pub fn query_from<M: Machine>(on: On<'_, M>, root: PhysAddr, va: VirtAddr) -> Option<(Pfn, Attr)> {
        if va.0 >= F::USER_END {
            return None;
        }
        page_from::<F, M>(on, root, va.0, || F::LEAF_LEVELS > 1)
    }

    /// The leaf that maps `va`, and the level of its table; `None` if there is none.
    #[inline(always)]
    pub fn lookup<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<(Level, u64)> {
        if va >= F::USER_END {
            return None;
        }
        let end = self.descend(on, va);
        if end.level > Level::PTE {
            return self.large_at(on, va);
        }
        let raw = read::<F, M::Window>(on.window(), Level::PTE, end.at, F::index(Level::PTE, va));
        (!F::is_none(raw)).then_some((Level::PTE, raw))
    }

    /// Whether there may be large pages, which have reserved tables, or groups.
    #[inline(always)]
    pub(super) fn may_be_large(&self) -> bool {
        (F::LEAF_LEVELS > 1 || const { has_groups::<F>() }) && self.reserve.is_used()
    }

    /// Whether a large page maps `va`, a user address.
    #[cold]
    #[inline(never)]
    pub(super) fn is_large_at<M: Machine>(&self, on: On<'_, M>, va: u64) -> bool {
        self.large_at(on, va).is_some()
    }

    /// The large page that maps `va`, a user address, and the level of its table; `None` if there
    /// is none.
    #[cold]
    #[inline(never)]
    pub(super) fn large_at<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<(Level, u64)> {
        large_from::<F, M>(on, self.root, va)
    }

    /// The page that is mapped at `va`, its frame and attributes; `None` if there is none.
    #[inline(always)]
    pub fn page<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<(Pfn, Attr)> {
        if va >= F::USER_END {
            return None;
        }
        page_from::<F, M>(on, self.root, va, || self.may_be_large())
    }
}

/// The large page that maps `va`, a user address, below the root at `root`, and the level of its
/// table.
#[cold]
#[inline(never)]
fn large_from<F: Format, M: Machine>(on: On<'_, M>, root: PhysAddr, va: u64) -> Option<(Level, u64)> {
    let end = descend::<F, _>(on.window(), root, Tables::<F>::ROOT, va, Level::PTE);
    if end.level == Level::PTE {
        return None;
    }
    let raw = read::<F, M::Window>(on.window(), end.level, end.at, F::index(end.level, va));
    // It may have become a table meanwhile.
    (F::entry(end.level, raw) == Entry::Leaf).then_some((end.level, raw))
}

/// The page at `va`, which a large one may map, below the root at `root`. Each entry on the way is
/// read once, so that a large page is found as such or as the table of its parts.
#[cold]
#[inline(never)]
fn page_in_large<F: Format, M: Machine>(on: On<'_, M>, root: PhysAddr, va: u64) -> Option<(Pfn, Attr)> {
    let (mut at, mut level) = (root, Tables::<F>::ROOT);
    loop {
        let raw = read::<F, M::Window>(on.window(), level, at, F::index(level, va));
        match F::entry(level, raw) {
            Entry::None => return None,
            Entry::Leaf if is_hinted::<F>(level, raw) => {
                return Some(page_in_group::<F, M>(on, &Descent { at, level }, raw, va));
            }
            Entry::Leaf => return Some(page_of::<F>(level, raw, va)),
            Entry::Link(table) => (at, level) = (table, Level(level.0 - 1)),
        }
    }
}

/// The page at `va` that is mapped by the group of which `raw` is one entry, in the table where the
/// way down [ended](Tables::descend).
#[cold]
#[inline(never)]
fn page_in_group<F: Format, M: Machine>(on: On<'_, M>, end: &Descent, raw: u64, va: u64) -> (Pfn, Attr) {
    let node = Node::<F, M::Window>::open(on.window(), on.frames(), end.level, end.at);
    let (frame, attr) = page_of::<F>(end.level, raw, va);
    (frame, attr | Group::around(&node, va).set())
}

/// The page that is mapped at `va`, a user address, below the root at `root`. `may_be_large`
/// says whether there may be large pages.
#[inline(always)]
fn page_from<F: Format, M: Machine>(
    on: On<'_, M>,
    root: PhysAddr,
    va: u64,
    may_be_large: impl Fn() -> bool,
) -> Option<(Pfn, Attr)> {
    let end = descend::<F, _>(on.window(), root, Tables::<F>::ROOT, va, Level::PTE);
    if end.level > Level::PTE {
        if !may_be_large() {
            return None;
        }
        return page_in_large::<F, M>(on, root, va);
    }
    let raw = read::<F, M::Window>(on.window(), Level::PTE, end.at, F::index(Level::PTE, va));
    if is_hinted::<F>(Level::PTE, raw) {
        return Some(page_in_group::<F, M>(on, &end, raw, va));
    }
    (!F::is_none(raw)).then(|| (F::frame(Level::PTE, raw), F::attr(Level::PTE, raw)))
}

/// Frame and attributes of the page at `va` that the leaf `raw` of a table of `level` maps.
#[cold]
#[inline(never)]
pub(super) fn page_of<F: Format>(level: Level, raw: u64, va: u64) -> (Pfn, Attr) {
    let mut frame = F::frame(level, own::<F>(level, va, raw));
    if level > Level::PTE {
        let page = va >> F::PAGE_SHIFT & ((1 << (F::shift(level) - F::PAGE_SHIFT)) - 1);
        frame.0 += (page as u32) << F::PAGE_ORDER;
    }
    (frame, F::attr(level, raw))
}

/// Refuses, at compile time, entries that say whether pages were hashed on a machine whose MMU
/// walks tables: it would read those bits, and its tables would not be scrubbed.
pub(super) const fn hashes<F: Format, M: Machine>() {
    assert!(
        F::KEPT == 0 || !<M::Shootdown as Mmu>::WALKS_TABLES,
        "a format with bits that are kept is for an MMU that walks no tables"
    );
}

/// Writes the record of a table that is about to be linked.
#[inline(always)]
pub(super) fn adopt(frames: &Frames, level: Level, page: Clean) -> (PhysAddr, &FrameMeta) {
    let record = frames.meta(page.addr().pfn());
    (adopt_as(record, level, page), record)
}

/// As [`adopt`], for a page whose record the caller has looked up.
#[inline(always)]
fn adopt_as(record: &FrameMeta, level: Level, page: Clean) -> PhysAddr {
    let at = adopt_clean(record, page);
    if level == Level::PTE {
        record.set_leaf_table();
    } else {
        record.set_order(level.0);
    }
    at
}

/// As [`adopt_as`], for a leaf table whose record its [first entry](Node::put_first) completes.
#[inline(always)]
fn adopt_clean(record: &FrameMeta, page: Clean) -> PhysAddr {
    let at = page.into_raw();
    debug_assert!(record.live_above() == 0 && record.lines(0) == 0, "clean page {at} has a record of use");
    record.set_usage(Use::Table);
    at
}

/// Gives a table back that no walker ever knew.
///
/// # Safety
///
/// 1. The caller must own the table of `level` at `at`, which came from the policy of `on`'s
///    machine, and give it away.
/// 2. It must be in the state of its level: no live entries.
/// 3. It must never have been linked to a tree.
#[cfg_attr(feature = "small", inline(never))]
pub(super) unsafe fn free_unlinked<M: Machine>(on: On<'_, M>, level: Level, at: PhysAddr) {
    on.frames().meta(at.pfn()).set_usage(Use::Taken);
    // SAFETY: points 1 to 3 are passed on.
    let page = unsafe { Clean::from_raw(at, level) };
    // SAFETY: 1. by the caller.
    unsafe { on.free_unlinked(page) };
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
        let mut unfinished = Unfinished { on, path };
        let path = &mut unfinished.path;
        for below in 0..level.at() {
            let level = Level(below as u8);
            let page = on.alloc_table(level, flags)?;
            let (at, record) = adopt(on.frames(), level, page);
            (path.tables[below], path.len) = (at, below + 1);
            if below > 0 {
                let node = Node::<F, M::Window>::with_record(on.window(), record, level, at);
                node.put(F::index(level, va), F::link(level, path.tables[below - 1]));
            }
        }
        Ok(unfinished.end())
    }

    /// The highest of the tables.
    pub(super) fn first(&self) -> PhysAddr {
        self.tables[self.len - 1]
    }

    fn leaf_table(&self) -> PhysAddr {
        self.tables[0]
    }

    /// Takes it apart and gives the tables back: it was never linked to a tree.
    #[cold]
    pub(super) fn free<M: Machine>(self, on: On<'_, M>) {
        drop(Unfinished { on, path: self });
    }
}

/// A path that is linked nowhere. Dropping it takes it apart and gives its tables back: so none is
/// lost if there is no memory for the next one, or the policy unwinds.
struct Unfinished<'a, F: Format, M: Machine> {
    on: On<'a, M>,
    path: Path<F>,
}

impl<F: Format, M: Machine> Unfinished<'_, F, M> {
    #[inline]
    fn end(self) -> Path<F> {
        let path = &ManuallyDrop::new(self).path;
        Path { tables: path.tables, len: path.len, _format: PhantomData }
    }
}

impl<F: Format, M: Machine> Drop for Unfinished<'_, F, M> {
    #[cold]
    fn drop(&mut self) {
        let Some(level) = self.path.len.checked_sub(1) else { return };
        let Path { tables, .. } = self.path;
        // Dropped next, also if the policy unwinds.
        let _others = Unfinished { on: self.on, path: Path { tables, len: level, ..self.path } };
        let (at, level) = (tables[level], Level(level as u8));
        if level > Level::PTE {
            let node = Node::<F, M::Window>::open(self.on.window(), self.on.frames(), level, at);
            node.each_link(0, F::entries(level) - 1, |link| link.cut());
        }
        // SAFETY: 1. `make` took it. 2. its only entry has just been cleared. 3. never linked to a
        // tree, so no walker ever knew it (REQ-37).
        unsafe { free_unlinked(self.on, level, at) };
    }
}
