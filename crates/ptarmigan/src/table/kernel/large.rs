//! Large pages in ranges of the kernel's half.
//!
//! They are leaves of tables below the root: entries of the root are the same in every root, and
//! stay. Code of trees ([`large`](crate::table::large)) makes and compares the entries; what is
//! particular to the kernel's half is that other CPUs may use a page at any time.
//!
//! # Tables in the way
//!
//! Tables of a range stay when their pages go. Before a large page takes the place of an empty
//! one, the table is unlinked, and every CPU forgets it.
use super::claims::Span;
use super::error::KernelRangeError;
use super::owner::cut;
use super::parts::split_one;
use super::range::KernelRange;
use super::stale::Stale;
use crate::addr::{FRAME_SHIFT, Pfn, VirtAddr};
use crate::format::{Attr, Format};
use crate::frames::{AllocFlags, HighUse, NoFrame};
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::table::adopt::{adopt, free_unlinked};
use crate::table::changes::rehint;
use crate::table::group::{Group, group_shift, is_hinted};
use crate::table::large::{has_leaves, size, united};
use crate::table::map_error::{CollapseError, MapError, check_frames};
use crate::table::node::{Node, Use};
use crate::table::range::Part;
use crate::table::sizes::{Sizes, Stretch, check_block, check_group, needed_for, stretches};
use crate::table::tables::descend;
use crate::tlb::Runs;
use crate::window::OpenWindow;

/// A link that a large page, or what will be one, has taken the place of. It comes back when this
/// is dropped.
struct Replaced<'n, 'w, F: Format, M: Machine>
where
    M::Window: 'w,
{
    node: &'n Node<'w, F, M::Window>,
    index: usize,
    link: u64,
}

impl<F: Format, M: Machine> Drop for Replaced<'_, '_, F, M> {
    #[cold]
    fn drop(&mut self) {
        self.node.exchange_large(self.index, self.link, Use::Walked);
    }
}

impl<F: Format, W: OpenWindow> KernelRange<'_, F, W> {
    /// Whether a large page maps `va`, an address of the range.
    #[cold]
    #[inline(never)]
    pub(super) fn is_large_at<M: Machine>(&self, on: On<'_, M>, va: u64) -> bool {
        F::LEAF_LEVELS > 1 && self.map.large_at(on, va).is_some()
    }

    fn has_size(level: Level) -> Result<(), MapError> {
        let has = has_leaves::<F>(level) && level < Self::ROOT;
        if has { Ok(()) } else { Err(MapError::NoSuchSize { level, format: F::NAME }) }
    }

    /// Refuses a place that no leaf of a table of `level` can have.
    fn accept_large<M: Machine>(&self, on: On<'_, M>, at: VirtAddr, level: Level) -> Result<(), MapError> {
        Self::has_size(level)?;
        let page = size::<F>(level);
        if at.0 & (page - 1) != 0 {
            return Err(MapError::Misaligned { at, page });
        }
        self.accept_mapping(on, at, page >> F::PAGE_SHIFT)
    }

    /// Maps a large page, a leaf of a table of `level`, to the frames from `first` on. It reserves
    /// the tables that it may be [split](Self::split) into. For [`Level::PTE`] it maps a page.
    ///
    /// # Errors
    ///
    /// [`MapError`]: nothing is mapped then. Tables that were made stay for later.
    ///
    /// # Safety
    ///
    /// 1. As for [`map`](Self::map), for each of the frames.
    pub unsafe fn map_large<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        level: Level,
        first: Pfn,
        attr: Attr,
        flags: AllocFlags,
    ) -> Result<(), MapError> {
        self.accept_large(on, at, level)?;
        check_block::<F>(first, level)?;
        let pages = size::<F>(level) >> F::PAGE_SHIFT;
        // SAFETY: 1. by the caller.
        unsafe { self.map_range_large(on, at, first, pages, attr, level, flags) }
    }

    /// Maps `pages` pages from `at` on to the frames from `first` on, with the largest leaves of
    /// `sizes` that addresses and frames are aligned for: a direct map, a framebuffer, the memory
    /// of a device. With [`Level::PTE`] it maps pages alone, and with [groups](Sizes::with_groups)
    /// each whole group has the hint. Tables for all that may be split are reserved at once.
    ///
    /// Empty tables that are in the way are given back, for which all CPUs are flushed.
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
    /// # let kernel = host.kernel();
    /// use ptarmigan::addr::{Pfn, VirtAddr};
    /// use ptarmigan::format::Attr;
    /// use ptarmigan::frames::AllocFlags;
    /// use ptarmigan::page::Level;
    ///
    /// // 16 MiB of a framebuffer.
    /// let (start, pages) = (VirtAddr(0xffff_c000_0000_0000), 4096);
    /// let mut range = kernel.claim(on, start, 16 << 20)?;
    /// let (first, attr) = (Pfn(0x8_0000), Attr::READ | Attr::WRITE);
    /// // SAFETY: no code uses the addresses.
    /// unsafe { range.map_range_large(on, start, first, pages, attr, Level(1), AllocFlags::NORMAL)? };
    /// let leaf = range.query_leaf(on, start).expect("it is mapped");
    /// assert_eq!((leaf.shift, leaf.attr), (21, attr | Attr::ACCESSED | Attr::DIRTY));
    ///
    /// // One page less: no table is needed that was not reserved.
    /// range.unmap(on, VirtAddr(start.0 + 0x3000), 1, |_, frame| assert_eq!(frame, Pfn(0x8_0003)))?;
    /// assert_eq!(range.query_leaf(on, start).map(|leaf| leaf.shift), Some(12));
    /// range.release(on, |_, _| {}).map_err(|(error, _)| error)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`MapError`]: no page is mapped then. Tables that were made stay for later.
    /// [`MapError::NoSuchSize`] for the level of the root, too, whose entries stay.
    /// [`MapError::Refused`] if tables are in the way, and this CPU cannot flush now.
    ///
    /// # Safety
    ///
    /// 1. As for [`map`](Self::map), for each page and its frame.
    #[allow(clippy::too_many_arguments, reason = "those of `map`, and the largest level")]
    pub unsafe fn map_range_large<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        first: Pfn,
        pages: u64,
        attr: Attr,
        sizes: impl Into<Sizes>,
        flags: AllocFlags,
    ) -> Result<(), MapError> {
        let sizes: Sizes = sizes.into();
        self.accept_mapping(on, at, pages)?;
        check_frames::<F>(first, pages)?;
        F::expresses(attr)?;
        let attr = attr.noted();
        Self::has_size(sizes.largest)?;
        let stretches = || stretches::<F>(at.0, pages << F::PAGE_SHIFT, first, sizes);
        let Some(wanted) = needed_for::<F>(stretches()) else {
            return Err(NoFrame::new(0, on.node(), on.frames().node_free(on.node())).into());
        };
        if wanted > 0 {
            self.pay(on)?;
            self.holdings.reserve.raise::<F, M>(on, wanted)?;
        }
        if let Err(e) = self.prepare_all(on, stretches, flags) {
            self.holdings.reserve.lower::<F, M>(on, wanted);
            return Err(e);
        }
        for stretch in stretches() {
            let Stretch { va, first, level, n, hint } = stretch;
            if hint {
                self.holdings.reserve.note_groups();
            }
            if level == Level::PTE {
                self.put_pages(on, VirtAddr(va), first, n, attr, hint);
            } else {
                self.put_large(on, stretch, attr);
            }
        }
        self.holdings.linked = 0;
        Ok(())
    }

    /// Does all of a mapping that may fail.
    fn prepare_all<M: Machine, S: Iterator<Item = Stretch>>(
        &mut self,
        on: On<'_, M>,
        stretches: impl Fn() -> S,
        flags: AllocFlags,
    ) -> Result<(), MapError> {
        let mut in_the_way = false;
        for Stretch { va, level, n, .. } in stretches() {
            if level == Level::PTE {
                self.prepare(on, VirtAddr(va), n, flags)?;
                continue;
            }
            let node = self.table(on, va, level, flags)?;
            let from = F::index(level, va);
            in_the_way |= (from..from + n as usize).any(|index| !F::is_none(node.load(index)));
            let mut mapped = None;
            let pages = n << (F::shift(level) - F::PAGE_SHIFT);
            self.map.each_part(on, VirtAddr(va), pages, false, |part| match part {
                Part::Table { node, base, first, last } => node.each(first, last, |index, _| {
                    mapped = mapped.or(Some(base + index as u64 * Self::PAGE));
                }),
                Part::Large { va, .. } => mapped = mapped.or(Some(va)),
                Part::Group(group) => mapped = mapped.or(Some(group.va())),
            });
            if let Some(at) = mapped {
                return Err(MapError::Occupied { at: VirtAddr(at) });
            }
        }
        if !in_the_way {
            return Ok(());
        }
        on.tlb().may_flush(on.pin())?;
        let mut named = Runs::new(F::PAGE_SHIFT);
        let claims = self.map.claims().lock();
        for stretch in stretches().filter(|stretch| stretch.level > Level::PTE) {
            let Some(node) = self.map.find(on, stretch.va, stretch.level) else { continue };
            let span = Span { first: stretch.va, last: stretch.va + (stretch.bytes::<F>() - 1) };
            let tables = &mut self.holdings.tables;
            cut::<F, M>(on, (node.at(), stretch.level), span, &|_| false, tables, &mut named);
        }
        drop(claims);
        self.unhook(on, named)?;
        Ok(())
    }

    /// The table of `level` that maps `va`, an address of the range, made with those above it if it
    /// does not exist.
    pub(super) fn table<'a, M: Machine>(
        &mut self,
        on: On<'a, M>,
        va: u64,
        level: Level,
        flags: AllocFlags,
    ) -> Result<Node<'a, F, M::Window>, MapError> {
        loop {
            let end = descend::<F, _>(on.window(), self.map.reference(), Self::ROOT, va, level);
            let node = Node::<F, M::Window>::open(on.window(), on.frames(), end.level, end.at);
            if end.level == level {
                return Ok(node);
            }
            if self.is_large_at(on, va) {
                return Err(MapError::Occupied { at: VirtAddr(va) });
            }
            let below = Level(end.level.0 - 1);
            let page = on.alloc_table(below, flags.with_high(HighUse::Never))?;
            let (at, _) = adopt(on.frames(), below, page);
            let claims = self.map.claims().lock();
            let index = F::index(end.level, va);
            if F::is_none(node.load(index)) {
                node.put(index, F::link(end.level, at));
                self.holdings.linked = self.holdings.linked.max(end.level.0);
            } else {
                // The owner of a range beside this one was faster.
                drop(claims);
                // SAFETY: 1. to 3. taken just now, and linked nowhere.
                unsafe { free_unlinked(on, below, at) };
            }
        }
    }

    /// Maps a stretch of large pages of one table, once all that may fail has been done.
    fn put_large<M: Machine>(&self, on: On<'_, M>, stretch: Stretch, attr: Attr) {
        let Stretch { va, first, level, n, hint } = stretch;
        let Some(node) = self.map.find(on, va, level) else { return };
        let pages = 1u64 << (F::shift(level) - F::PAGE_SHIFT);
        on.before_mapped::<F>(attr, first, pages * n);
        let (index, step) = (F::index(level, va), 1u32 << (F::shift(level) - FRAME_SHIFT));
        let mut pfn = first;
        let claims = self.map.claims().lock();
        node.put_run(index, n as usize, || {
            let raw = F::leaf(level, pfn, attr);
            pfn = Pfn(pfn.0.wrapping_add(step));
            if hint { F::hinted(level, raw) } else { raw }
        });
        drop(claims);
        on.became_reachable(None, self.holdings.linked, (va, F::shift(level), n), 0, node.load(index));
    }

    /// Splits the page that maps `va` until it is a leaf of a table of `level` or lower, and takes
    /// the hint from a group of leaves of `level`. Mappings stay as they are. Where no break is
    /// needed, operations on parts of large pages do it
    /// themselves.
    ///
    /// Where the architecture demands a [break](Format::needs_break), an access of any CPU to any
    /// address of the large page faults until it is split: no code may use it meanwhile. In
    /// particular it must not map code, stacks or tables that are in use.
    ///
    /// # Errors
    ///
    /// [`KernelRangeError`]; the page is mapped as it was then.
    pub fn split<M: Machine>(
        &mut self,
        on: On<'_, M>,
        va: VirtAddr,
        level: Level,
    ) -> Result<(), KernelRangeError> {
        let page = va.0 & !(Self::PAGE - 1);
        self.accept(on, VirtAddr(page), 1)?;
        let mut stale = Stale::begin(on, self.span, F::PAGE_SHIFT, &mut self.owes_flush)?;
        let groups = self.holdings.reserve.has_groups();
        while let Some((found, raw)) = self.map.leaf_at(on, page) {
            if groups && found >= level && is_hinted::<F>(found, raw) {
                rehint(|level, va| self.map.find(on, va, level), (page, found), false, &mut stale)?;
            } else if found <= level
                || !split_one(self.map, on, (page, found), &mut self.holdings.reserve, &mut stale)?
            {
                break;
            }
        }
        Ok(stale.flush()?)
    }

    /// Puts a large page, a leaf of a table of `level`, in the place of the table of its parts.
    /// They map frames that follow each other, the first one aligned to the size of the large page,
    /// with the same attributes but for bits that MMUs set. A page that is as large already, or
    /// larger, stays.
    ///
    /// The large page takes the place of the table at once, and then every CPU forgets the table.
    /// Where the architecture demands a [break](Format::needs_break), an access of any CPU to the
    /// pages faults for a while, as for [`split`](Self::split).
    ///
    /// # Errors
    ///
    /// [`CollapseError`]; the pages are mapped as they were.
    pub fn collapse<M: Machine>(
        &mut self,
        on: On<'_, M>,
        va: VirtAddr,
        level: Level,
    ) -> Result<(), CollapseError> {
        if level == Level::PTE {
            return Err(CollapseError::BadPlace(MapError::NoSuchSize { level, format: F::NAME }));
        }
        self.accept_large(on, va, level).map_err(CollapseError::BadPlace)?;
        if self.map.large_at(on, va.0).is_some_and(|(found, _)| found >= level) {
            return Ok(());
        }
        let differs = CollapseError::Differs { at: va };
        let (below, index) = (Level(level.0 - 1), F::index(level, va.0));
        let node = self.map.find(on, va.0, level).ok_or(differs)?;
        let link = node.load(index);
        let table = F::linked(level, link).ok_or(differs)?;
        let child = Node::<F, M::Window>::open(on.window(), on.frames(), below, table);
        let at = |index: usize| VirtAddr(va.0 + index as u64 * size::<F>(below));
        let mut leaf = united::<F, M>(&child, level).map_err(|i| CollapseError::Differs { at: at(i) })?;
        self.pay(on)?;
        let mut stale = Stale::begin(on, self.span, F::PAGE_SHIFT, &mut self.owes_flush)?;
        self.holdings.reserve.raise::<F, M>(on, 1)?;
        let breaks = F::EVER_BREAKS && F::needs_break(level, link, leaf);
        let unused = F::map_attr(level, leaf, Attr::without_access);
        if !breaks {
            leaf = F::map_attr(level, leaf, Attr::noted);
        }
        node.exchange_large(index, if breaks { unused } else { leaf }, Use::Walked);
        let replaced = Replaced::<F, M> { node: &node, index, link };
        stale.change_all(va.0, size::<F>(level));
        if let Err(e) = stale.flush_tables() {
            drop(replaced);
            self.holdings.reserve.lower::<F, M>(on, 1);
            return Err(e.into());
        }
        core::mem::forget(replaced);
        if breaks {
            // No MMU notes anything in the parts any more.
            leaf = united::<F, M>(&child, level).unwrap_or(leaf);
            node.make(va.0, leaf);
        }
        child.clear(0, F::entries(below) - 1, Use::Private, |_, _| {});
        if let Some(record) = child.record() {
            let tables = &mut self.holdings.tables;
            // SAFETY: 1. the entry was its only link, and shows a large page now; its addresses are
            // the range's alone. 2. just cleared. 3. `record` is its own.
            unsafe { tables.push(table.pfn(), record) };
            // SAFETY: 1. the map's tables came from the policy of its machine, which `on` is.
            unsafe { on.policy().unhooked(tables) };
        }
        // SAFETY: 1. the flush has just named all addresses of the table, which was unlinked.
        unsafe { self.give_tables(on) };
        on.became_valid(None, va.0, F::shift(level), 1, 0, leaf);
        Ok(())
    }

    /// Makes a [group](Format::GROUP_BITS) of existing leaves of a table of `level`, from `va` on,
    /// as [`TreeMut::make_group`](crate::table::TreeMut::make_group) does. A group, or a larger
    /// page, stays.
    ///
    /// Where the architecture demands a [break](Format::needs_break), an access of any CPU to the
    /// pages faults for a while, as for [`split`](Self::split).
    ///
    /// # Errors
    ///
    /// [`CollapseError`]; the leaves are as they were.
    pub fn make_group<M: Machine>(
        &mut self,
        on: On<'_, M>,
        va: VirtAddr,
        level: Level,
    ) -> Result<(), CollapseError> {
        check_group::<F>(va, level).map_err(CollapseError::BadPlace)?;
        let pages = 1 << (group_shift::<F>(level) - F::PAGE_SHIFT);
        self.accept_mapping(on, va, pages).map_err(CollapseError::BadPlace)?;
        let differs = CollapseError::Differs { at: va };
        if self.map_of().leaf_at(on, va.0).ok_or(differs)?.0 > level {
            return Ok(());
        }
        let node = self.map_of().find(on, va.0, level).ok_or(differs)?;
        Group::around(&node, va.0).fits().map_err(|at| CollapseError::Differs { at })?;
        self.pay(on)?;
        let mut stale = Stale::begin(on, self.span, F::PAGE_SHIFT, &mut self.owes_flush)?;
        self.holdings.reserve.note_groups();
        rehint(|level, va| self.map.find(on, va, level), (va.0, level), true, &mut stale)?;
        Ok(stale.flush()?)
    }
}
