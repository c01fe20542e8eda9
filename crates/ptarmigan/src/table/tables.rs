//! The tables of one space, and the way down to an entry.
use super::adopt::{adopt, free_unlinked};
use super::group::{Group, has_groups, is_hinted, own};
use super::node::{Node, read};
use super::reserve::Reserve;
use crate::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use crate::cpu::NodeId;
use crate::format::{self, Attr, Entry, Format};
use crate::frames::{AllocFlags, NoFrame, Use};
use crate::machine::{Machine, On};
use crate::page::{Clean, Level, MAX_LEVELS};
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use crate::tlb::Mmu;
use crate::window::OpenWindow;
use core::marker::PhantomData;

/// The tables of a space, from the root down, without the TLB state that belongs to them.
pub(crate) struct Tables<F: Format> {
    pub(super) root: PhysAddr,
    /// Tables, by level; the root counts. Atomics, as shared faults add to them; a caller that
    /// holds the tables exclusively uses plain loads and stores.
    pub(super) count: TableCounts,
    /// Leaf tables from which on it prefers high memory for more: its share of low memory, and 0 as
    /// soon as it has had one in high memory.
    pub(super) prefers_high_from: AtomicU32,
    /// The tables that its large pages have reserved.
    pub(super) reserve: Reserve,
    /// Whether a large page holds a reference to the whole (`frames/data/large.rs`) of a large data
    /// frame, unless it is special: so it is in spaces. Trees leave frames to their callers.
    pub(super) is_counted: bool,
    /// The most levels of tables that were linked at once since an MMU was told of entries below
    /// them, where it wants to know. Faults on a shared space may take the number of each other:
    /// the CPU that is not told then faults once more, and is told of all levels.
    linked: AtomicU8,
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
pub(super) struct TableCounts(pub(super) [AtomicU32; MAX_LEVELS]);

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
    pub const USER: VirtRange = VirtRange::up_to(F::USER_END);

    /// The root alone, and where the MMU keeps that in registers also the tables that the user's
    /// entries link, because later entries would not be seen.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then.
    pub fn new<M: Machine>(on: On<'_, M>, flags: AllocFlags) -> Result<Self, NoFrame> {
        const { format::check::<F>() };
        const {
            <M::Shootdown as Mmu>::FORMATS.demand_tree::<F>();
            hashes::<F, M>();
        }
        let level = Self::ROOT;
        let root = on.alloc_table(level, flags)?.into_raw();
        if !F::LAYOUT.is_small(level) {
            let record = on.frames().meta(root.pfn());
            record.set_usage(Use::Table);
            record.set_order(level.0);
        }
        let prefers_high_from = AtomicU32::new(on.machine().table_share());
        let (count, reserve) = (Default::default(), Reserve::none());
        let tables = Tables {
            root,
            count,
            prefers_high_from,
            reserve,
            is_counted: false,
            linked: AtomicU8::new(0),
            _format: PhantomData,
        };
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

    /// Notes that tables of so many levels were linked.
    #[inline(always)]
    pub(super) fn note_linked<M: Machine>(&self, levels: u8) {
        if const { <M::Shootdown as Mmu>::NEEDS_ENTRY_VALID } {
            self.linked.store(self.linked.load(Relaxed).max(levels), Relaxed);
        }
    }

    /// Returns how many levels of tables were linked since the last call, for an MMU that wants to
    /// know.
    #[inline(always)]
    pub(crate) fn take_linked<M: Machine>(&self) -> u8 {
        if const { !<M::Shootdown as Mmu>::NEEDS_ENTRY_VALID } {
            return 0;
        }
        let linked = self.linked.load(Relaxed);
        if linked != 0 {
            self.linked.store(0, Relaxed);
        }
        linked
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

    /// Goes down towards the leaf table that maps `va`, a user address.
    #[inline]
    pub(super) fn descend<M: Machine>(&self, on: On<'_, M>, va: u64) -> Descent {
        descend::<F, _>(on.window(), self.root, Self::ROOT, va, Level::PTE)
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
