//! Ranges of the kernel's half, each with an owner that maps pages in it and unmaps them.
//!
//! # Who writes an entry
//!
//! 1. A range is made of whole leaf tables, and ranges do not overlap. So the entries of a leaf
//!    table are written by the owner of one range alone, through `&mut KernelRange`. So is a large
//!    page, once it is there.
//! 2. The tables above them are shared by ranges. Entries come to be in them, and go, under the
//!    lock of the claims, which counts them.
//! 3. A table stays linked as long as an owner has any of the addresses that it maps. So an owner
//!    goes down to its leaf tables without the lock. When several owners leave, the last one cuts
//!    the tables that they shared.
//! 4. The root's entries are filled when a range is claimed, in the reference root and in every
//!    registered one, and stay until the map ends. So no root misses a table that a range links
//!    later, and no fault has to copy entries from one root to another.
//!
//! # Flushes
//!
//! Entries that come to be need no flush. Entries that go are made not present first, then every
//! CPU forgets them, and only then they are cleared and their frames named: pages that
//! [`unmap`](KernelRange::unmap) names are not in any TLB any more.
//!
//! The range notes that it owes a flush until every CPU has done it. So if a flush unwinds, the
//! next call that flushes does so for the whole range. If a release unwinds, the claim of the same
//! range does.
use super::claims::{Holdings, Span};
use super::error::KernelRangeError;
use super::groups::change_groups;
use super::parts::{clear_large, split_ends};
use super::roots::KernelMap;
use super::stale::Stale;
use crate::addr::{FRAME_SHIFT, Pfn, PhysAddr, VirtAddr};
use crate::cpu::MachineId;
use crate::format::{Attr, Entry, Format};
use crate::frames::{AllocFlags, HighUse};
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::table::broken::{BATCH, Broken};
use crate::table::changes::Changes;
use crate::table::group::{Group, has_groups, is_hinted};
use crate::table::grow::Path;
use crate::table::large::size;
use crate::table::map_error::{MapError, check_frames};
use crate::table::mapped::{Mapped, each_page};
use crate::table::node::{NeedsBreak, Node, Use};
use crate::table::range::{Part, each_part_of_table};
use crate::table::tables::{descend, page_of};
use crate::window::OpenWindow;

/// A part of the kernel's half that its owner maps pages in. Dropping it keeps its pages mapped,
/// and the range claimed, for as long as the map is there; [`release`](Self::release) gives it
/// back.
///
/// # Accessed and dirty
///
/// Where the MMU does not note an access itself, as on most RISC-V and AArch64 CPUs, the first one
/// faults. No code serves such a fault of the kernel. So each page that the kernel may use has
/// [`Attr::ACCESSED`], and each one that it may write [`Attr::DIRTY`], on every architecture and
/// from the start. Calls add both to the attributes that they are given.
#[must_use = "a dropped range stays claimed: release it"]
pub struct KernelRange<'k, F: Format, W> {
    pub(super) map: &'k KernelMap<F, W>,
    pub(super) span: Span,
    /// A CPU may not have forgotten entries that have changed: false between two calls, unless a
    /// flush has unwound.
    pub(super) owes_flush: bool,
    pub(super) holdings: Holdings,
}

impl<F: Format, W: OpenWindow> KernelMap<F, W> {
    /// The table of `level` that maps `va`, an address of a range that the caller owns; `None` if
    /// it does not exist.
    pub(super) fn find<'a, M: Machine>(
        &self,
        on: On<'a, M>,
        va: u64,
        level: Level,
    ) -> Option<Node<'a, F, M::Window>> {
        let end = descend::<F, _>(on.window(), self.reference(), Self::ROOT, va, level);
        (end.level == level).then(|| Node::open(on.window(), on.frames(), level, end.at))
    }

    /// Calls `visit` for the leaf tables and the large pages of `pages` pages from `at` on, which
    /// are in a range that the caller owns, in order. If there may be `groups`, it is called for
    /// these too; otherwise entries of tables, and large pages, may have a hint.
    #[inline]
    pub(super) fn each_part<M: Machine>(
        &self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        groups: bool,
        mut visit: impl FnMut(Part<'_, '_, F, M::Window>),
    ) {
        let mut done = 0;
        while done < pages {
            let va = at.0 + done * (1 << F::PAGE_SHIFT);
            let end = descend::<F, _>(on.window(), self.reference(), Self::ROOT, va, Level::PTE);
            let node = Node::<F, M::Window>::open(on.window(), on.frames(), end.level, end.at);
            let index = F::index(end.level, va);
            if end.level > Level::PTE {
                let size = 1u64 << F::shift(end.level);
                let (mut va, raw) = (va & !(size - 1), node.load(index));
                let mut size = size;
                // The owner of a range beside this one may have linked a table.
                if groups && is_hinted::<F>(end.level, raw) {
                    let group = Group::around(&node, va);
                    (va, size) = (group.va(), group.bytes());
                    visit(Part::Group(group));
                } else if F::entry(end.level, raw) == Entry::Leaf {
                    visit(Part::Large { node: &node, index, va, raw });
                }
                done += (size - (at.0 + done * (1 << F::PAGE_SHIFT) - va)) >> F::PAGE_SHIFT;
                continue;
            }
            let n = (pages - done).min((F::entries(Level::PTE) - index) as u64);
            let base = va - index as u64 * (1 << F::PAGE_SHIFT);
            let (first, last) = (index, index + n as usize - 1);
            if const { has_groups::<F>() } && groups {
                each_part_of_table(&node, base, (first, last), &mut visit);
            } else {
                visit(Part::Table { node: &node, base, first, last });
            }
            done += n;
        }
    }

    /// As [`each_part`](Self::each_part), for leaf tables: calls
    /// `visit(leaf table, first address, first index, last index)`.
    #[inline]
    pub(super) fn each_table<M: Machine>(
        &self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        mut visit: impl FnMut(&Node<'_, F, M::Window>, u64, usize, usize),
    ) {
        self.each_part(on, at, pages, false, |part| {
            if let Part::Table { node, base, first, last } = part {
                visit(node, base, first, last);
            }
        });
    }
}

impl<F: Format, W: OpenWindow> KernelRange<'_, F, W> {
    pub(super) const ROOT: Level = F::LAYOUT.root();
    pub(super) const PAGE: u64 = 1 << F::PAGE_SHIFT;

    /// Returns the first address.
    pub fn start(&self) -> VirtAddr {
        VirtAddr(self.span.first)
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        (self.span.last - self.span.first).saturating_add(1)
    }

    /// Returns false: no range is empty.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns where the leaf table that maps `va` is, an address of the range; `None` if it does
    /// not exist.
    pub(super) fn leaf_table_at<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<PhysAddr> {
        self.map.find(on, va, Level::PTE).map(|node| node.at())
    }

    /// Returns where the root of the map is that the range is part of.
    pub(crate) fn map_root(&self) -> PhysAddr {
        self.map.reference()
    }

    /// Returns the machine that the map is of.
    pub(crate) fn machine(&self) -> MachineId {
        self.map.machine()
    }

    /// Returns the map that the range is part of.
    pub(super) fn map_of(&self) -> &KernelMap<F, W> {
        self.map
    }

    /// Whether `pages` pages from `at` on lie in the range.
    fn has(&self, at: VirtAddr, pages: u64) -> bool {
        let bytes = pages.checked_mul(Self::PAGE).and_then(|bytes| bytes.checked_sub(1));
        let last = bytes.and_then(|bytes| at.0.checked_add(bytes));
        let aligned = at.0.is_multiple_of(Self::PAGE);
        aligned && at.0 >= self.span.first && last.is_some_and(|last| last <= self.span.last)
    }

    /// Checks the conditions for a change of pages.
    pub(super) fn accept<M: Machine>(
        &self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
    ) -> Result<(), KernelRangeError> {
        on.check(self.map.machine()).map_err(KernelRangeError::WrongMachine)?;
        if self.has(at, pages) { Ok(()) } else { Err(KernelRangeError::OutOfRange { at }) }
    }

    /// The leaf table that maps `va`, an address of the range, made if it does not exist.
    fn leaf_table<'a, M: Machine>(
        &mut self,
        on: On<'a, M>,
        va: u64,
        flags: AllocFlags,
    ) -> Result<Node<'a, F, M::Window>, MapError> {
        loop {
            let end = descend::<F, _>(on.window(), self.map.reference(), Self::ROOT, va, Level::PTE);
            if end.level == Level::PTE {
                return Ok(Node::open(on.window(), on.frames(), Level::PTE, end.at));
            }
            if self.is_large_at(on, va) {
                return Err(MapError::Occupied { at: VirtAddr(va) });
            }
            // The kernel's own tables are used at any time.
            let path = Path::<F>::make(on, va, end.level, flags.with_high(HighUse::Never))?;
            // Still a table of this map: it maps an address of the range.
            let claims = self.map.claims().lock();
            let parent = Node::<F, M::Window>::open(on.window(), on.frames(), end.level, end.at);
            let index = F::index(end.level, va);
            if F::is_none(parent.load(index)) {
                parent.put(index, F::link(end.level, path.first()));
                self.holdings.linked = self.holdings.linked.max(end.level.0);
            } else {
                // The owner of a range beside this one was faster.
                drop(claims);
                path.free(on);
            }
        }
    }

    /// Checks the conditions for mapping pages.
    pub(super) fn accept_mapping<M: Machine>(
        &self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
    ) -> Result<(), MapError> {
        self.accept(on, at, pages).map_err(|e| match e {
            KernelRangeError::WrongMachine(e) => e.into(),
            _ => MapError::OutOfRange { at },
        })
    }

    /// Does all of a mapping that may fail once it is [accepted](Self::accept_mapping): nobody else
    /// writes to the range meanwhile. Flushes if the flush of unlinked tables has unwound.
    pub(super) fn prepare<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        flags: AllocFlags,
    ) -> Result<(), MapError> {
        // A CPU may know links of theirs in the places of tables that are made now.
        self.pay(on)?;
        let mut done = 0;
        while done < pages {
            let va = at.0 + done * Self::PAGE;
            let index = F::index(Level::PTE, va);
            let n = (pages - done).min((F::entries(Level::PTE) - index) as u64);
            let node = self.leaf_table(on, va, flags)?;
            let mut occupied = None;
            node.each(index, index + n as usize - 1, |at, _| occupied = occupied.or(Some(at)));
            if let Some(at) = occupied {
                return Err(MapError::Occupied { at: VirtAddr(va + (at - index) as u64 * Self::PAGE) });
            }
            done += n;
        }
        Ok(())
    }

    /// Maps `pages` pages from `at` on to the frames from `first` on. On failure no page is mapped;
    /// tables that were made stay for later. The attributes of the pages are `attr`, and those that
    /// [an MMU would note](Self#accessed-and-dirty).
    ///
    /// # Errors
    ///
    /// [`MapError`]: no page is mapped then.
    ///
    /// # Safety
    ///
    /// 1. Whatever is allowed to the kernel, and to programs if `attr` says [`Attr::USER`], with
    ///    the permissions of `attr` and with those that [`protect`](Self::protect) gives later, is
    ///    allowed to each of the frames until it has been unmapped.
    pub unsafe fn map<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        first: Pfn,
        pages: u64,
        attr: Attr,
        flags: AllocFlags,
    ) -> Result<(), MapError> {
        self.accept_mapping(on, at, pages)?;
        check_frames::<F>(first, pages)?;
        F::expresses(attr)?;
        self.prepare(on, at, pages, flags)?;
        self.put_pages(on, at, first, pages, attr.noted(), false);
        self.holdings.linked = 0;
        Ok(())
    }

    /// Maps pages, once all that may fail has been [done](Self::prepare); with the `hint`, whole
    /// groups.
    pub(super) fn put_pages<M: Machine>(
        &self,
        on: On<'_, M>,
        at: VirtAddr,
        first: Pfn,
        pages: u64,
        attr: Attr,
        hint: bool,
    ) {
        self.map.each_table(on, at, pages, |node, base, low, high| {
            let start = base + low as u64 * Self::PAGE - at.0;
            let mut pfn = Pfn(first.0.wrapping_add((start >> FRAME_SHIFT) as u32));
            on.before_mapped::<F>(attr, pfn, (high - low + 1) as u64);
            node.put_run(low, high - low + 1, || {
                let raw = F::leaf(Level::PTE, pfn, attr);
                pfn = Pfn(pfn.0.wrapping_add(1 << F::PAGE_ORDER));
                if (const { has_groups::<F>() }) && hint { F::hinted(Level::PTE, raw) } else { raw }
            });
            let va = base + low as u64 * Self::PAGE;
            let place = (va, F::PAGE_SHIFT, (high - low + 1) as u64);
            on.became_reachable(None, self.holdings.linked, place, 0, node.load(low));
        });
    }

    /// Returns the mapping of the page at `va`, which may be a part of a large one.
    pub fn query<M: Machine>(&self, on: On<'_, M>, va: VirtAddr) -> Option<(Pfn, Attr)> {
        let (level, raw) = self.leaf_at(on, va)?;
        let (frame, attr) = page_of::<F>(level, raw, va.0);
        if is_hinted::<F>(level, raw) {
            // Bits that an MMU has set in one entry are the group's.
            return Some((frame, attr | self.query_leaf(on, va)?.attr));
        }
        Some((frame, attr))
    }

    /// Returns the page or group at `va`, large or not.
    pub fn query_leaf<M: Machine>(&self, on: On<'_, M>, va: VirtAddr) -> Option<Mapped> {
        let (level, raw) = self.leaf_at(on, va)?;
        if is_hinted::<F>(level, raw) {
            let node = self.map.find(on, va.0, level)?;
            let group = Group::around(&node, va.0);
            return Some(Mapped::of::<F>(level, group.va(), F::hinted(level, group.leaf())));
        }
        Some(Mapped::of::<F>(level, va.0 & !(size::<F>(level) - 1), raw))
    }

    fn leaf_at<M: Machine>(&self, on: On<'_, M>, va: VirtAddr) -> Option<(Level, u64)> {
        self.accept(on, VirtAddr(va.0 & !(Self::PAGE - 1)), 1).ok()?;
        self.map.leaf_at(on, va.0)
    }

    /// Unmaps `pages` pages from `at` on, has every CPU forget them, and then calls
    /// `gone(address, frame)` for each that was mapped. Does not allocate: large pages that lie
    /// partly in there are split, for which tables are reserved, and groups unfolded. Tables stay.
    ///
    /// # Errors
    ///
    /// [`KernelRangeError`]; the pages are mapped as they were then.
    pub fn unmap<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        mut gone: impl FnMut(VirtAddr, Pfn),
    ) -> Result<(), KernelRangeError> {
        self.unmap_leaves(on, at, pages, |level, va, raw| {
            if level == Level::PTE {
                return gone(VirtAddr(va), F::frame(level, raw));
            }
            each_page::<F>(level, va, raw, |va, pfn, _| gone(va, pfn));
        })
    }

    /// As [`unmap`](Self::unmap): calls `gone(level, address, entry)` once for each leaf.
    pub(crate) fn unmap_leaves<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        mut gone: impl FnMut(Level, u64, u64),
    ) -> Result<(), KernelRangeError> {
        self.accept(on, at, pages)?;
        let mut stale = Stale::begin(on, self.span, F::PAGE_SHIFT, &mut self.owes_flush)?;
        split_ends(self.map, on, self.span, (at, pages), &mut self.holdings.reserve, &mut stale)?;
        let groups = self.holdings.reserve.has_groups();
        self.map.each_part(on, at, pages, groups, |part| match part {
            Part::Table { node, base, first, last } => {
                stale.pages_follow();
                node.each(first, last, |index, _| {
                    let va = base + index as u64 * Self::PAGE;
                    stale.change::<F>(va, || node.break_off(index));
                });
            }
            Part::Large { node, index, va, .. } => {
                stale.change_large(va, F::shift(node.level()));
                node.break_off(index);
            }
            // Its entries have no hint then.
            Part::Group(group) => {
                stale.note_group(&group);
                group.break_off();
            }
        });
        stale.flush()?;
        let (map, reserve) = (self.map, &mut self.holdings.reserve);
        map.each_part(on, at, pages, false, |part| match part {
            Part::Table { node, base, first, last } => {
                // No MMU writes to an entry that is not present, and no entry is hashed.
                node.clear(first, last, Use::Private, |index, old| {
                    gone(Level::PTE, base + index as u64 * Self::PAGE, old);
                });
                if const { F::KEPT != 0 } {
                    node.scrub(first, last);
                }
            }
            Part::Large { node, index, va, raw } => {
                clear_large(map, on, node, index, reserve);
                gone(node.level(), va, raw);
            }
            // They have been broken off.
            Part::Group(_) => {}
        });
        Ok(())
    }

    /// Gives each mapped page of `pages` pages from `at` on the attributes that `change` makes of
    /// its own, with those that [an MMU would note](Self#accessed-and-dirty), and has every CPU
    /// forget its translations of those that differ. `change` is called
    /// several times for a page: once before any page changes, and as MMUs set bits in between. For
    /// the same attributes it must return the same. Large pages that lie partly in there are
    /// split, for which tables are reserved, and groups unfolded. A group is changed as a whole.
    ///
    /// Pages whose change [needs a break](Format::needs_break) are broken off in batches, flushed,
    /// and made. Until then an access of any CPU to them faults: they must not be used meanwhile.
    ///
    /// # Errors
    ///
    /// [`KernelRangeError`]; the pages are mapped as they were then.
    pub fn protect<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        change: impl Fn(Attr) -> Attr,
    ) -> Result<(), KernelRangeError> {
        self.accept(on, at, pages)?;
        let mut expressed = Ok(());
        let mut express = |level, raw| {
            expressed = expressed.and_then(|()| F::expresses(change(F::attr(level, raw))));
        };
        let groups = self.holdings.reserve.has_groups();
        self.map.each_part(on, at, pages, groups, |part| match part {
            Part::Table { node, first, last, .. } => {
                node.each(first, last, |_, raw| express(Level::PTE, raw));
            }
            Part::Large { node, raw, .. } => express(node.level(), raw),
            Part::Group(group) => express(group.level(), group.leaf()),
        });
        expressed?;
        let mut stale = Stale::begin(on, self.span, F::PAGE_SHIFT, &mut self.owes_flush)?;
        split_ends(self.map, on, self.span, (at, pages), &mut self.holdings.reserve, &mut stale)?;
        let change = |level, raw| F::map_attr(level, raw, |attr| change(attr).noted());
        if groups {
            change_groups(self.map, on, (at, pages), &mut stale, &|level, _, raw| change(level, raw))?;
        }
        let valid = |level, va, raw| on.became_valid(None, va, F::shift(level), 1, 0, raw);
        let mut broken = Broken::<_, _, _, BATCH>::new(|level, va| self.map.find(on, va, level));
        let mut refused = None;
        let mut change_one = |node: &Node<'_, F, M::Window>, index, va, raw| {
            let level = node.level();
            let new = change(level, raw);
            if new == raw || refused.is_some() {
                return;
            }
            on.before_changed::<F>(level, raw, new);
            let mut breaks = false;
            // The MMU need not be told of translations that are forgotten everywhere.
            let mut update = || {
                let changed = node.update_seen(index, raw, new, Use::Walked, |raw| change(level, raw));
                changed.map_or_else(
                    |NeedsBreak| {
                        breaks = true;
                        raw
                    },
                    |(_, now)| now,
                )
            };
            if level == Level::PTE {
                stale.pages_follow();
                stale.change::<F>(va, update);
            } else {
                stale.change_large(va, F::shift(level));
                update();
            }
            if !breaks {
                return;
            }
            broken.add(node, index, va);
            if broken.is_full() {
                let made = broken.make(|| stale.flush_so_far(), |level, _, raw| change(level, raw), valid);
                refused = made.err();
            }
        };
        self.map.each_part(on, at, pages, groups, |part| match part {
            Part::Table { node, base, first, last } => node.each(first, last, |index, raw| {
                change_one(node, index, base + index as u64 * Self::PAGE, raw);
            }),
            Part::Large { node, index, va, raw } => change_one(node, index, va, raw),
            // They have been changed.
            Part::Group(_) => {}
        });
        if !broken.is_empty() {
            broken.make(|| stale.flush_so_far(), |level, _, raw| change(level, raw), valid)?;
        }
        drop(broken);
        refused.map_or(Ok(()), Err)?;
        Ok(stale.flush()?)
    }
}
