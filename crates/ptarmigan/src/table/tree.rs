//! A tree of tables with its TLB state, and changes to it.
use super::group::{is_hinted, leaves, own};
use super::map_error::{MapError, check_frames};
use super::mapped::{Mapped, each_page};
use super::near::Near;
use super::node::{NeedsBreak, Use};
use super::tables::Tables;
use super::unmap::Free;
use crate::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use crate::cpu::WrongMachine;
use crate::format::{Attr, Format, Inexpressible, growth};
use crate::frames::{AllocFlags, NoFrame};
use crate::gather::Gather;
use crate::machine::{Machine, On, Refused};
use crate::page::Level;
use crate::tlb::{Mmu, SpaceTlb, TlbRefusal};

/// A tree of tables, with the state of the TLBs that may know it. It must be taken down with
/// [`Tree::end`]: dropping it loses its tables.
///
/// [`Space`](crate::space::Space) has areas and serves faults as well; a tree is for callers that
/// place mappings themselves.
///
/// ```
/// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
/// # use ptarmigan::{format::X86_64, machine::Machine};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
/// # let cpus = host.slots();
/// # let pin = cpus[0].pin();
/// # let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
/// # let on = machine.on(&pin)?;
/// use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
/// use ptarmigan::format::Attr;
/// use ptarmigan::frames::AllocFlags;
/// use ptarmigan::table::{Free, Tree};
///
/// let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL)?;
/// let mut edit = tree.edit(on)?;
/// // SAFETY: no program runs in this space.
/// unsafe { edit.map(VirtAddr(0x40_0000), Pfn(9), Attr::READ, AllocFlags::NORMAL)? };
/// edit.flush();
/// assert_eq!(tree.query(on, VirtAddr(0x40_0123)).map(|(frame, _)| frame), Some(Pfn(9)));
/// assert_eq!(tree.tables_below_root(), 3);
///
/// let range = VirtRange::fixed::<0x40_0000, 0x40_1000>();
/// tree.edit(on)?.unmap_range(range, Free::Empty, |_, frame, _| assert_eq!(frame, Pfn(9)));
/// assert_eq!(tree.tables_below_root(), 0);
/// tree.end(on, |_, _, _| {}).map_err(|refused| refused.error)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a dropped tree loses its tables: end it"]
pub struct Tree<F: Format> {
    tables: Tables<F>,
    tlb: SpaceTlb,
}

impl<F: Format> Tree<F> {
    /// An empty tree, of a new space.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then.
    pub fn new<M: Machine>(on: On<'_, M>, flags: AllocFlags) -> Result<Self, NoFrame> {
        Ok(Tree { tables: Tables::new(on, flags)?, tlb: on.tlb().new_space() })
    }

    /// Returns a view of the tree, to read it.
    pub fn view(&self) -> TreeRef<'_, F> {
        TreeRef::new(&self.tables, &self.tlb)
    }

    /// Returns the physical address of the root: the value for the MMU's root register.
    #[inline]
    pub fn root(&self) -> PhysAddr {
        self.tables.root()
    }

    /// Returns the number of tables of a level; 0 for a level that the format does not have.
    #[inline]
    pub fn count(&self, level: Level) -> u32 {
        self.tables.count(level)
    }

    /// Returns the number of tables below the root: the count that Linux reports as `VmPTE`, in
    /// pages.
    pub fn tables_below_root(&self) -> u32 {
        self.tables.below_root()
    }

    /// Returns the number of tables that are kept free for the parts of large pages.
    pub fn reserved(&self) -> u32 {
        self.tables.reserve.tables()
    }

    /// Returns the tree's TLB state.
    pub fn tlb(&self) -> &SpaceTlb {
        &self.tlb
    }

    /// Begins to run in the tree's space on this CPU.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the tree is of another machine, or in the middle of another switch of this
    /// CPU.
    pub fn activate<M: Machine>(&self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        on.activate(&self.tlb, self.root())
    }

    /// Leaves the tree's space on this CPU.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the tree is of another machine, or in the middle of another switch of this
    /// CPU.
    pub fn deactivate<M: Machine>(&self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        on.deactivate(&self.tlb)
    }

    /// Returns the mapping at `va`, see [`TreeRef::query`].
    #[inline]
    pub fn query<M: Machine>(&self, on: On<'_, M>, va: VirtAddr) -> Option<(Pfn, Attr)> {
        self.view().query(on, va)
    }

    /// Begins changes to the tree. One flush ends them all.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the tree is of another machine, or in the middle of a switch or a flush of
    /// this CPU, where no other flush can be.
    #[inline]
    pub fn edit<'a, M: Machine>(&'a mut self, on: On<'a, M>) -> Result<TreeMut<'a, F, M>, TlbRefusal> {
        on.check(self.tlb.machine())?;
        on.tlb().may_flush(on.pin())?;
        let gather = self.tables.gather(on, &self.tlb, true);
        Ok(TreeMut { tables: Near::new(&mut self.tables), gather })
    }

    /// Takes the whole tree down, giving the frames to `leaf`. CPUs that still have it loaded are
    /// moved to another root first. If `leaf` unwinds, the tables go all the same; it is told of no
    /// other frame.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the tree, if it is of another machine, or in the middle of a switch or a
    /// flush of this CPU, where no other flush can be. The tree is unchanged then.
    #[expect(clippy::result_large_err, reason = "what is refused comes back by value: there is no heap")]
    #[inline(never)]
    pub fn end<M: Machine>(
        mut self,
        on: On<'_, M>,
        mut leaf: impl FnMut(VirtAddr, Pfn, Attr),
    ) -> Result<(), Refused<Self, TlbRefusal>> {
        match self.end_raw(on, |level, va, raw| each_page::<F>(level, va, raw, &mut leaf)) {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused { value: self, error }),
        }
    }

    /// As [`end`](Self::end), with one call of `leaf` for each leaf, large pages among them.
    ///
    /// # Errors
    ///
    /// As for [`end`](Self::end).
    #[expect(clippy::result_large_err, reason = "what is refused comes back by value: there is no heap")]
    #[inline(never)]
    pub fn end_leaves<M: Machine>(
        mut self,
        on: On<'_, M>,
        mut leaf: impl FnMut(Mapped),
    ) -> Result<(), Refused<Self, TlbRefusal>> {
        match self.end_raw(on, |level, va, raw| leaf(Mapped::of::<F>(level, va, raw))) {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused { value: self, error }),
        }
    }

    /// Takes all tables down, for a caller that consumes the tree unless this is refused. It is
    /// lent, as it would be copied otherwise.
    #[inline]
    fn end_raw<M: Machine>(
        &mut self,
        on: On<'_, M>,
        mut leaf: impl FnMut(Level, u64, u64),
    ) -> Result<(), TlbRefusal> {
        on.check(self.tlb.machine())?;
        on.tlb().may_flush(on.pin())?;
        let mut ticket = None;
        let mut gather = Gather::open(on, &self.tlb, F::PAGE_SHIFT, true);
        self.tables.end_space(&mut gather, &mut ticket);
        self.tables.end::<M, true>(&mut gather, |_, level, va, raw| leaf(level, va, raw), |_, _, _, _| {});
        Ok(())
    }
}

/// The tables of a space, to read them.
pub struct TreeRef<'a, F: Format> {
    tables: &'a Tables<F>,
    tlb: &'a SpaceTlb,
}

impl<F: Format> Clone for TreeRef<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: Format> Copy for TreeRef<'_, F> {}

impl<'a, F: Format> TreeRef<'a, F> {
    #[inline]
    pub(crate) fn new(tables: &'a Tables<F>, tlb: &'a SpaceTlb) -> Self {
        TreeRef { tables, tlb }
    }

    /// Returns the physical address of the root.
    #[inline]
    pub fn root(self) -> PhysAddr {
        self.tables.root()
    }

    /// Returns the number of tables of a level; 0 for a level that the format does not have.
    #[inline]
    pub fn count(self, level: Level) -> u32 {
        self.tables.count(level)
    }

    /// Returns the number of tables below the root: the count that Linux reports as `VmPTE`, in
    /// pages.
    pub fn tables_below_root(self) -> u32 {
        self.tables.below_root()
    }

    /// Returns the mapping at `va`: frame and attributes, even where the MMU would not let the
    /// access through. A tree of another machine has no mapping.
    #[inline]
    pub fn query<M: Machine>(self, on: On<'_, M>, va: VirtAddr) -> Option<(Pfn, Attr)> {
        self.on(on).ok()?.query(va)
    }

    /// Returns the leaf that maps `va`, a page, a large page or a group. A tree of another machine
    /// has none.
    #[inline]
    pub fn query_leaf<M: Machine>(self, on: On<'_, M>, va: VirtAddr) -> Option<Mapped> {
        self.on(on).ok()?.query_leaf(va)
    }

    /// Returns the tree as `on` reads it, for many queries: the machine is compared once.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if the tree is of another machine.
    #[inline]
    pub fn on<M: Machine>(self, on: On<'a, M>) -> Result<TreeView<'a, F, M>, WrongMachine> {
        on.check(self.tlb.machine())?;
        Ok(TreeView { tables: self.tables, on })
    }

    /// Calls `visit` for every leaf that maps a part of `range`, large pages among them, in order.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if the tree is of another machine.
    pub fn walk_leaves<M: Machine>(
        self,
        on: On<'_, M>,
        range: VirtRange,
        visit: impl FnMut(Mapped),
    ) -> Result<(), WrongMachine> {
        self.on(on)?.walk_leaves(range, visit);
        Ok(())
    }

    /// Calls `visit(address, frame, attributes)` for every mapped page in `range`, in order; for
    /// each page of a large one, too.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if the tree is of another machine.
    pub fn walk<M: Machine>(
        self,
        on: On<'_, M>,
        range: VirtRange,
        visit: impl FnMut(VirtAddr, Pfn, Attr),
    ) -> Result<(), WrongMachine> {
        self.on(on)?.walk(range, visit);
        Ok(())
    }
}

/// The tables of a space, read on one CPU of the space's machine.
pub struct TreeView<'a, F: Format, M: Machine> {
    tables: &'a Tables<F>,
    on: On<'a, M>,
}

impl<F: Format, M: Machine> Clone for TreeView<'_, F, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: Format, M: Machine> Copy for TreeView<'_, F, M> {}

impl<'a, F: Format, M: Machine> TreeView<'a, F, M> {
    /// Where the tables are read from.
    pub(super) fn machine_on(self) -> On<'a, M> {
        self.on
    }

    /// The root.
    pub(super) fn root(self) -> PhysAddr {
        self.tables.root()
    }

    /// Returns the mapping at `va`: frame and attributes, even where the MMU would not let the
    /// access through.
    #[inline]
    pub fn query(self, va: VirtAddr) -> Option<(Pfn, Attr)> {
        self.tables.page(self.on, va.0)
    }

    /// Returns the leaf that maps `va`, a page, a large page or a group.
    #[inline]
    pub fn query_leaf(self, va: VirtAddr) -> Option<Mapped> {
        let (level, raw) = self.tables.lookup(self.on, va.0)?;
        if is_hinted::<F>(level, raw) {
            let (start, raw) = self.tables.group_at(self.on, va.0, level)?;
            return Some(Mapped::of::<F>(level, start, raw));
        }
        Some(Mapped::of::<F>(level, va.0 & !((1 << F::shift(level)) - 1), raw))
    }

    /// Calls `visit` for every leaf that maps a part of `range`, large pages among them, in order.
    pub fn walk_leaves(self, range: VirtRange, mut visit: impl FnMut(Mapped)) {
        self.tables.walk_leaves(self.on, range, |level, va, raw| visit(Mapped::of::<F>(level, va, raw)));
    }

    /// Calls `visit(address, frame, attributes)` for every mapped page in `range`, in order; for
    /// each page of a large one, too.
    pub fn walk(self, range: VirtRange, visit: impl FnMut(VirtAddr, Pfn, Attr)) {
        self.tables.walk(self.on, range, visit);
    }

    /// Calls `visit(first address it maps, table, entries)` for every leaf table that maps a part
    /// of `range`, in order. `entries` is the number of mapped pages in the whole table, 0 for a
    /// table that has been left empty.
    pub fn leaf_tables(self, range: VirtRange, visit: impl FnMut(VirtAddr, PhysAddr, u32)) {
        self.tables.leaf_tables(self.on, range, visit);
    }
}

/// Changes to a tree, flushed once: when this is dropped, or by [`flush`](Self::flush).
///
/// It holds the tree and the gather for the tree's own space, so that no other gather can take
/// tables of the tree.
///
/// Pages of a tree are the user's, and differ from space to space: [global](Attr::GLOBAL) pages are
/// refused. A TLB would keep them when the space is left.
pub struct TreeMut<'a, F: Format, M: Machine> {
    pub(super) tables: Near<'a, F>,
    pub(super) gather: Gather<'a, M>,
}

impl<'a, F: Format, M: Machine> TreeMut<'a, F, M> {
    #[inline]
    fn on(&self) -> On<'a, M> {
        self.gather.on()
    }

    /// Maps the page at `va`. An entry that was not present needs no flush.
    ///
    /// # Errors
    ///
    /// [`MapError`]; the tree is unchanged then.
    ///
    /// # Safety
    ///
    /// 1. Whatever programs that run in this space do with the page, with the permissions of `attr`
    ///    and with those that [`protect`](Self::protect) and [`change_range`](Self::change_range)
    ///    give it later, is allowed to the frame `pfn`, until the page has been unmapped and
    ///    flushed.
    #[cfg_attr(not(feature = "small"), inline(always))]
    #[cfg_attr(feature = "small", inline)]
    pub unsafe fn map(
        &mut self,
        va: VirtAddr,
        pfn: Pfn,
        attr: Attr,
        flags: AllocFlags,
    ) -> Result<(), MapError> {
        if va.0 >= F::USER_END || va.0 & ((1 << F::PAGE_SHIFT) - 1) != 0 {
            return Err(MapError::bad_address::<F>(va));
        }
        check_frames::<F>(pfn, 1)?;
        F::expresses_in_tree(attr)?;
        let on = self.on();
        let raw = F::leaf(Level::PTE, pfn, attr);
        let end = va.0 + (1 << F::PAGE_SHIFT);
        match self.tables.leaf(on, va.0) {
            Ok(node) => {
                let index = F::index(Level::PTE, va.0);
                if !F::is_none(node.load(index)) {
                    return Err(MapError::Occupied { at: va });
                }
                flush_stale::<F, M>(&mut self.gather, va.0, end)?;
                on.before_mapped::<F>(attr, pfn, 1);
                node.put(index, raw);
            }
            Err(is_above) => {
                flush_stale::<F, M>(&mut self.gather, va.0, end)?;
                on.before_mapped::<F>(attr, pfn, 1);
                let put = self.tables.put_in_new(on, va.0, is_above, flags, raw);
                put.map_err(|e| MapError::no_table(e, va))?;
            }
        }
        self.gather.became_valid(self.tables.take_linked::<M>(), va.0, 1, raw);
        Ok(())
    }

    /// Maps the pages that `range` touches to the frames from `first` on.
    ///
    /// # Errors
    ///
    /// [`MapError`] with everything unmapped again that this call had mapped.
    ///
    /// # Safety
    ///
    /// 1. As for [`map`](Self::map), for each page and its frame.
    pub unsafe fn map_range(&mut self, range: VirtRange, first: Pfn, attr: Attr) -> Result<(), MapError> {
        if range.end > F::USER_END {
            return Err(MapError::OutOfRange { at: VirtAddr(F::USER_END.max(range.start)) });
        }
        let on = self.on();
        let step = 1u64 << F::PAGE_SHIFT;
        let range = VirtRange::ordered(range.start & !(step - 1), range.end.next_multiple_of(step));
        check_frames::<F>(first, range.len() >> F::PAGE_SHIFT)?;
        F::expresses_in_tree(attr)?;
        flush_stale::<F, M>(&mut self.gather, range.start, range.end)?;
        let span = 1u64 << F::shift(Level(1));
        let (mut pfn, mut raw) = (first, F::leaf(Level::PTE, first, attr));
        let grow = growth::<F>(Level::PTE, attr);
        let mut va = range.start;
        while va < range.end {
            let node = match self.tables.leaf_table::<M, false>(on, va, AllocFlags::NORMAL) {
                Ok(node) => node,
                Err(e) => {
                    self.roll_back(range.start, va);
                    return Err(MapError::no_table(e, VirtAddr(va)));
                }
            };
            let n = ((span - va % span).min(range.end - va) >> F::PAGE_SHIFT) as usize;
            on.before_mapped::<F>(attr, pfn, n as u64);
            let done = node.put_run(F::index(Level::PTE, va), n, || {
                let this = raw;
                raw = raw.wrapping_add(grow);
                debug_assert_eq!(
                    this,
                    F::leaf(Level::PTE, pfn, attr),
                    "entries of {} do not grow evenly",
                    F::NAME
                );
                pfn = Pfn(pfn.0.wrapping_add(1 << F::PAGE_ORDER));
                this
            });
            if <M::Shootdown as Mmu>::NEEDS_ENTRY_VALID && done > 0 {
                let (linked, raw) = (self.tables.take_linked::<M>(), node.load(F::index(Level::PTE, va)));
                self.gather.became_valid(linked, va, done as u64, raw);
            }
            va += done as u64 * step;
            if done < n {
                self.roll_back(range.start, va);
                return Err(MapError::Occupied { at: VirtAddr(va) });
            }
        }
        Ok(())
    }

    pub(super) fn roll_back(&mut self, start: u64, end: u64) {
        let range = VirtRange::ordered(start, end);
        self.tables.taking().unmap_sizes(range, Free::Empty, &mut self.gather, |_, _, _, _| {});
    }

    /// Returns the mapping at `va`, as [`Tree::query`] does.
    #[inline]
    pub fn query(&self, va: VirtAddr) -> Option<(Pfn, Attr)> {
        self.tables.page(self.on(), va.0)
    }

    /// Unmaps one page and keeps its tables; returns frame and attributes of the former mapping. A
    /// large page is [split](Self::split) for it, and a group unfolded. To free tables that become
    /// empty use [`unmap_range`](Self::unmap_range).
    #[cfg_attr(not(feature = "small"), inline(always))]
    #[cfg_attr(feature = "small", inline)]
    pub fn unmap(&mut self, va: VirtAddr) -> Option<(Pfn, Attr)> {
        if va.0 >= F::USER_END {
            return None;
        }
        let Ok(node) = self.tables.leaf(self.gather.on(), va.0) else {
            return if self.tables.may_be_large() { self.unmap_in_large(va) } else { None };
        };
        if self.tables.may_be_groups() && !self.unfold_page(va.0) {
            return None;
        }
        let old = node.take(F::index(Level::PTE, va.0), Use::private(self.gather.is_private()))?;
        let page = va.0 & !((1 << F::PAGE_SHIFT) - 1);
        self.gather.changed_entry::<F>(page, old);
        Some((F::frame(Level::PTE, old), F::attr(Level::PTE, old)))
    }

    /// Clears all entries in `range`, giving the frames to `leaf`, page by page, and gives back
    /// tables by `free`. Never fails for lack of memory: a large page that lies partly in the range
    /// is [split](Self::split) first, for which tables were reserved. Where that is refused, it
    /// stays mapped as a whole.
    ///
    /// The frames may still be in use through TLBs until the flush.
    pub fn unmap_range(&mut self, range: VirtRange, free: Free, mut leaf: impl FnMut(VirtAddr, Pfn, Attr)) {
        self.tables.taking().unmap_sizes(range, free, &mut self.gather, |_, level, va, raw| {
            each_page::<F>(level, va, raw, &mut leaf);
        });
    }

    /// Clears all entries in `range` as [`unmap_range`](Self::unmap_range) does. For each, `owns`
    /// says whether the entry owned a reference to a data frame; the flush drops those, and gives a
    /// frame back whose last one goes. It is called once for a large page, and the reference is one
    /// to the block that begins with its first frame; and once for a group, each of whose leaves
    /// owned one.
    ///
    /// # Safety
    ///
    /// 1. An entry for which `owns` returns true owned a reference to a data frame of this machine,
    ///    which the caller gives away.
    pub unsafe fn unmap_owned(&mut self, range: VirtRange, free: Free, mut owns: impl FnMut(Mapped) -> bool) {
        self.tables.taking().unmap_sizes(range, free, &mut self.gather, |gather, level, va, raw| {
            if owns(Mapped::of::<F>(level, va, raw)) {
                for leaf in leaves::<F>(level, raw, own::<F>(level, va, raw)) {
                    // SAFETY: 1. by the caller. 2. `unmap` tells the gather of every entry that it
                    // clears, and a tree's gather counts in the tree's pages.
                    unsafe { gather.release::<F>(level, leaf) };
                }
            }
        });
    }

    /// Gives the page at `va` other attributes; returns the old ones, with what MMUs had set until
    /// then. Bits that MMUs set meanwhile are kept.
    ///
    /// Where the change [needs a break](Format::needs_break), everything that was changed so far is
    /// flushed, and an access to the page faults until then. In the middle of a flush of this CPU
    /// the entry is left alone, and `None` returned.
    ///
    /// # Errors
    ///
    /// [`Inexpressible`] if entries of a tree cannot have `attr`; the page is unchanged then.
    pub fn protect(&mut self, va: VirtAddr, attr: Attr) -> Result<Option<Attr>, Inexpressible> {
        F::expresses_in_tree(attr)?;
        Ok(self.change_one(va, attr))
    }

    fn change_one(&mut self, va: VirtAddr, attr: Attr) -> Option<Attr> {
        if va.0 >= F::USER_END {
            return None;
        }
        let node = match self.tables.find(self.on(), va.0, Level::PTE) {
            Some(node) => node,
            None => self.page_of_large(va.0)?,
        };
        if self.tables.may_be_groups() && !self.unfold_page(va.0) {
            return None;
        }
        let index = F::index(Level::PTE, va.0);
        let seen = node.load(index);
        if F::is_none(seen) {
            return None;
        }
        self.on().before_changed::<F>(Level::PTE, seen, with_attr::<F>(seen, seen, attr));
        let page = va.0 & !((1 << F::PAGE_SHIFT) - 1);
        let change = |raw| with_attr::<F>(seen, raw, attr);
        let old = match node.update(index, Use::private(self.gather.is_private()), change) {
            Ok(old) => {
                self.gather.changed_entry::<F>(page, old);
                old
            }
            Err(NeedsBreak) => self.tables.change_broken(page, &mut self.gather, change)?,
        };
        Some(F::attr(Level::PTE, old))
    }

    /// Gives every mapped page in `range` the attributes that `change` makes of its own. `change`
    /// is called several times for a page: once before any page changes, and as MMUs set bits in
    /// between. For the same attributes it must return the same. Large pages and groups are changed
    /// as a whole where all of one lies in `range`.
    ///
    /// Pages whose change [needs a break](Format::needs_break) are flushed in batches, see
    /// [`protect`](Self::protect).
    ///
    /// # Errors
    ///
    /// [`Inexpressible`] if entries of a tree cannot have what `change` returns for one of the
    /// pages; all pages are unchanged then.
    pub fn change_range(
        &mut self,
        range: VirtRange,
        change: impl Fn(Attr) -> Attr,
    ) -> Result<(), Inexpressible> {
        let mut expressed = Ok(());
        self.tables.walk_leaves(self.on(), range, |level, _, raw| {
            expressed = expressed.and_then(|()| F::expresses_in_tree(change(F::attr(level, raw))));
        });
        expressed?;
        self.tables.taking().change(range, &mut self.gather, |level, _, raw| {
            F::map_attr(level, raw, |attr| of_user(change(attr)))
        });
        Ok(())
    }

    /// Flushes the changes; afterwards no unmapped page is in use, and tables are given back. So
    /// does the end of its scope, which does not move it.
    pub fn flush(self) {
        drop(self);
    }

    /// Tables and data frames that wait for the flush.
    pub fn waiting(&self) -> (u32, u32) {
        self.gather.waiting()
    }

    /// Flushes now, and waits for all CPUs; see [`Gather::flush`].
    pub fn into_released(self) -> crate::gather::Released<'a, M> {
        self.gather.flush()
    }
}

/// Flushes the changes of an operation so far, if it took pages in `start..end` away, before others
/// come there: an architecture that wants breaks wants one in between. Others keep the flush for
/// the end.
///
/// # Errors
///
/// [`MapError::Refused`] in the middle of a flush of this CPU.
#[inline]
pub(super) fn flush_stale<F: Format, M: Machine>(
    gather: &mut Gather<'_, M>,
    start: u64,
    end: u64,
) -> Result<(), MapError> {
    if const { F::EVER_BREAKS } && gather.is_stale(start, end) {
        gather.flush_so_far()?;
    }
    Ok(())
}

/// The entry `raw` with the attributes `attr`, and those of the MMU's own that it got since it was
/// `seen`.
#[inline]
pub(super) fn with_attr<F: Format>(seen: u64, raw: u64, attr: Attr) -> u64 {
    let news = F::attr(Level::PTE, raw).without(F::attr(Level::PTE, seen));
    let kept = Attr(news.0 & (Attr::ACCESSED | Attr::DIRTY).0);
    F::leaf(Level::PTE, F::frame(Level::PTE, raw), of_user(attr) | kept)
}

/// Returns the part of `attr` that a page of the user's half may have.
#[inline]
pub(super) const fn of_user(attr: Attr) -> Attr {
    attr.without(Attr::GLOBAL)
}
