//! Ranges of the kernel's half, each with an owner that maps pages in it and unmaps them.
//!
//! # Who writes an entry
//!
//! 1. A range is made of whole leaf tables, and ranges do not overlap. So the entries of a leaf
//!    table are written by the owner of one range alone, through `&mut KernelRange`.
//! 2. The tables above them are shared by ranges. Links are written to them, and cut, under the
//!    lock of the claims.
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
use super::claims::{ClaimError, Claims, Hold, MAX_ROOT_ENTRIES, Span};
use super::roots::KernelMap;
use crate::addr::{FRAME_SHIFT, Pfn, PhysAddr, VirtAddr};
use crate::cpu::{MachineId, WrongMachine};
use crate::error::error;
use crate::format::{Attr, Entry, Format, Inexpressible};
use crate::frames::{AllocFlags, HighUse};
use crate::gather::scrub_unhooked;
use crate::machine::{Machine, On};
use crate::page::{FlushProof, Level, Unhooked};
use crate::table::broken::{BATCH, Broken};
use crate::table::map_error::{MapError, check_frames};
use crate::table::node::{NeedsBreak, Node, Use};
use crate::table::tables::{Path, adopt, descend, free_unlinked, hashes};
use crate::tlb::{Facts, Mmu, Runs, TlbRefusal};
use crate::window::OpenWindow;
use core::fmt;
use core::mem::{ManuallyDrop, forget, take};

/// The reason for which pages of a range could not be changed; they are unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelRangeError {
    /// The pages are not in the range.
    OutOfRange {
        /// The first of them.
        at: VirtAddr,
    },
    /// The range is of another machine.
    WrongMachine(WrongMachine),
    /// The CPU cannot flush now.
    Refused(TlbRefusal),
    /// Entries cannot have the attributes.
    Inexpressible(Inexpressible),
}

impl fmt::Display for KernelRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelRangeError::OutOfRange { at } => write!(f, "the pages at {at} are not in the range"),
            KernelRangeError::WrongMachine(e) => e.fmt(f),
            KernelRangeError::Refused(e) => e.fmt(f),
            KernelRangeError::Inexpressible(e) => e.fmt(f),
        }
    }
}

error!(KernelRangeError: TlbRefusal => Refused, Inexpressible => Inexpressible);

/// A part of the kernel's half that its owner maps pages in. Dropping it keeps its pages mapped,
/// and the range claimed, for as long as the map is there; [`release`](Self::release) gives it
/// back.
#[must_use = "a dropped range stays claimed: release it"]
pub struct KernelRange<'k, F: Format, W> {
    map: &'k KernelMap<F, W>,
    span: Span,
    /// A CPU may not have forgotten entries that have changed: false between two calls, unless a
    /// flush has unwound.
    owes_flush: bool,
}

impl<F: Format, W: OpenWindow> KernelMap<F, W> {
    /// The last address of the kernel's half.
    const LAST: u64 = {
        let entries = F::LAYOUT.levels as usize - 1;
        let entries = (1u64 << F::INDEX_BITS[entries]) - F::USER_ROOT_ENTRIES as u64;
        let mut shift = F::PAGE_SHIFT;
        let mut level = 0;
        while level + 1 < F::LAYOUT.levels as usize {
            shift += F::INDEX_BITS[level] as u32;
            level += 1;
        }
        F::KERNEL_START.wrapping_add(entries << shift).wrapping_sub(1)
    };

    /// Makes the caller the owner of `bytes` of the kernel's half from `start` on. Both are
    /// multiples of the span of a leaf table. Takes a table for each entry of the root that no
    /// range has used yet.
    ///
    /// Empty entries of the root are filled in all roots, in those in use and in those that rest on
    /// lists.
    ///
    /// A range whose claim or [release](KernelRange::release) has unwound is had again as it was
    /// left, by the same `start` and `bytes`: pages that were not named yet are in it. The claim
    /// first has every CPU forget its translations of the range.
    ///
    /// # Errors
    ///
    /// [`ClaimError`]; only tables below the root, which stay, have been added then.
    pub fn claim<'k, M: Machine>(
        &'k self,
        on: On<'_, M>,
        start: VirtAddr,
        bytes: u64,
    ) -> Result<KernelRange<'k, F, W>, ClaimError> {
        const {
            assert!(F::LAYOUT.levels > 1, "a root of pages has no ranges");
            assert!(1 << F::INDEX_BITS[F::LAYOUT.levels as usize - 1] <= MAX_ROOT_ENTRIES);
            hashes::<F, M>();
        }
        on.check(self.machine()).map_err(ClaimError::WrongMachine)?;
        let outside = ClaimError::NotKernel { at: start };
        let length = bytes.checked_sub(1).ok_or(outside)?;
        let last = start.0.checked_add(length).ok_or(outside)?;
        if start.0 < F::KERNEL_START || last > Self::LAST {
            return Err(outside);
        }
        let table = 1u64 << F::shift(Level(1));
        if !start.0.is_multiple_of(table) || !bytes.is_multiple_of(table) {
            return Err(ClaimError::NotWholeTables { span: table });
        }
        let span = Span { first: start.0, last };
        let left = self.note(span)? == Hold::Left;
        if !left {
            // Before code that may unwind: a range that is left stays counted.
            on.tlb().owner_begins(on.pin());
        }
        let leaving = Leaving { map: self, span, tables: Unhooked::new() };
        if left {
            let all = span.pages(F::PAGE_SHIFT);
            // The release may have cut links of tables.
            on.tlb().flush_kernel_tables(on.pin(), &all).map_err(ClaimError::Refused)?;
            let owed = self.claims().lock().take_owed(span);
            if !owed.is_empty() {
                // SAFETY: 1. the flush has named all addresses of the span, of which they were.
                let owed = owed.flushed(unsafe { FlushProof::claim() });
                // SAFETY: 1. the map's tables came from the policy of its machine, which `on` is.
                unsafe { on.policy().flushed(owed) };
            }
        }
        if let Err(e) = self.fill_roots(on, span) {
            if !left {
                forget(leaving);
                self.claims().lock().remove(span);
                on.tlb().owner_ends(on.pin());
            }
            return Err(e);
        }
        forget(leaving);
        Ok(KernelRange { map: self, span, owes_flush: false })
    }

    /// Notes that `span` has an owner. Returns how it was held: [`Hold::Left`], or as a new one.
    fn note(&self, span: Span) -> Result<Hold, ClaimError> {
        let mut claims = self.claims().lock();
        match claims.meeting(span) {
            Some((other, Hold::Left)) if other == span => {
                claims.set_hold(span, Hold::Owned);
                return Ok(Hold::Left);
            }
            Some((other, _)) => {
                return Err(ClaimError::Taken { at: VirtAddr(other.first.max(span.first)) });
            }
            None => {}
        }
        for index in F::index(Self::ROOT, span.first)..=F::index(Self::ROOT, span.last) {
            let none = self.get(index).is_none_or(F::is_none);
            if !none && !claims.has_filled(index) {
                let bits = F::entries(Self::ROOT).trailing_zeros();
                let at = span.first_below(index, F::shift(Self::ROOT), bits);
                return Err(ClaimError::Taken { at });
            }
            if none && claims.small_roots > 0 {
                return Err(ClaimError::TooLate);
            }
        }
        if claims.add(span) { Ok(Hold::Owned) } else { Err(ClaimError::TooMany) }
    }

    /// Links a table in each entry of the roots that `span` needs.
    fn fill_roots<M: Machine>(&self, on: On<'_, M>, span: Span) -> Result<(), ClaimError> {
        let below = Level(Self::ROOT.0 - 1);
        for index in F::index(Self::ROOT, span.first)..=F::index(Self::ROOT, span.last) {
            if self.claims().lock().has_filled(index) {
                continue;
            }
            let page = on.alloc(below, AllocFlags::NORMAL).map_err(ClaimError::NoFrame)?;
            let (at, _) = adopt(on.frames(), below, page);
            let mut claims = self.claims().lock();
            // The owner of another range, or a root, may have been faster.
            let (filled, late) = (claims.has_filled(index), claims.small_roots > 0);
            if filled || late {
                drop(claims);
                // SAFETY: 1. to 3. taken just now, and linked nowhere.
                unsafe { free_unlinked(on, below, at) };
                if filled {
                    continue;
                }
                return Err(ClaimError::TooLate);
            }
            claims.set_filled(index);
            // SAFETY: 1. it links a table that stays until the map ends, with no root left then. 2.
            // `note` found it empty or filled by a range.
            unsafe { self.set(on.frames(), index, F::link(Self::ROOT, at)) };
        }
        Ok(())
    }

    /// The leaf table that maps `va`, an address of a range that the caller owns; `None` if it does
    /// not exist.
    fn find<'a, M: Machine>(&self, on: On<'a, M>, va: u64) -> Option<Node<'a, F, M::Window>> {
        let end = descend::<F, _>(on.window(), self.reference(), Self::ROOT, va, Level::PTE);
        (end.level == Level::PTE).then(|| Node::open(on.window(), on.frames(), Level::PTE, end.at))
    }

    /// Calls `visit(leaf table, first address, first index, last index)` for the leaf tables of
    /// `pages` pages from `at` on, which are in a range that the caller owns.
    pub(super) fn each_table<M: Machine>(
        &self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        mut visit: impl FnMut(&Node<'_, F, M::Window>, u64, usize, usize),
    ) {
        let mut done = 0;
        while done < pages {
            let va = at.0 + done * (1 << F::PAGE_SHIFT);
            let first = F::index(Level::PTE, va);
            let n = (pages - done).min((F::entries(Level::PTE) - first) as u64);
            if let Some(node) = self.find(on, va) {
                let base = va - first as u64 * (1 << F::PAGE_SHIFT);
                visit(&node, base, first, first + n as usize - 1);
            }
            done += n;
        }
    }
}

impl<F: Format, W: OpenWindow> KernelRange<'_, F, W> {
    const ROOT: Level = F::LAYOUT.root();
    const PAGE: u64 = 1 << F::PAGE_SHIFT;

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
        self.map.find(on, va).map(|node| node.at())
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
    fn accept<M: Machine>(&self, on: On<'_, M>, at: VirtAddr, pages: u64) -> Result<(), KernelRangeError> {
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
            // The kernel's own tables are used at any time.
            let path = Path::<F>::make(on, va, end.level, flags.with_high(HighUse::Never))?;
            // Still a table of this map: it maps an address of the range.
            let claims = self.map.claims().lock();
            let parent = Node::<F, M::Window>::open(on.window(), on.frames(), end.level, end.at);
            let index = F::index(end.level, va);
            if F::is_none(parent.load(index)) {
                parent.put(index, F::link(end.level, path.first()));
            } else {
                // The owner of a range beside this one was faster.
                drop(claims);
                path.unmake(on, va);
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
    /// writes to the range meanwhile.
    pub(super) fn prepare<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        flags: AllocFlags,
    ) -> Result<(), MapError> {
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
    /// tables that were made stay for later.
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
        self.map.each_table(on, at, pages, |node, base, low, high| {
            let start = base + low as u64 * Self::PAGE - at.0;
            let mut pfn = Pfn(first.0.wrapping_add((start >> FRAME_SHIFT) as u32));
            on.before_mapped::<F>(attr, pfn, (high - low + 1) as u64);
            node.put_run(low, high - low + 1, || {
                let raw = F::leaf(Level::PTE, pfn, attr);
                pfn = Pfn(pfn.0.wrapping_add(1 << F::PAGE_ORDER));
                raw
            });
            let va = base + low as u64 * Self::PAGE;
            on.became_valid(None, va, F::PAGE_SHIFT, (high - low + 1) as u64, 0, node.load(low));
        });
        Ok(())
    }

    /// Returns the mapping at `va`.
    pub fn query<M: Machine>(&self, on: On<'_, M>, va: VirtAddr) -> Option<(Pfn, Attr)> {
        let page = VirtAddr(va.0 & !(Self::PAGE - 1));
        self.accept(on, page, 1).ok()?;
        let raw = self.map.find(on, va.0)?.load(F::index(Level::PTE, va.0));
        (!F::is_none(raw)).then(|| (F::frame(Level::PTE, raw), F::attr(Level::PTE, raw)))
    }

    /// Unmaps `pages` pages from `at` on, has every CPU forget them, and then calls
    /// `gone(address, frame)` for each that was mapped. Does not allocate. Tables stay.
    ///
    /// # Errors
    ///
    /// [`KernelRangeError`]; the pages are unchanged then.
    pub fn unmap<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        mut gone: impl FnMut(VirtAddr, Pfn),
    ) -> Result<(), KernelRangeError> {
        self.accept(on, at, pages)?;
        let mut stale = Stale::begin(on, self.span, F::PAGE_SHIFT, &mut self.owes_flush)?;
        self.map.each_table(on, at, pages, |node, base, first, last| {
            node.each(first, last, |index, _| {
                let va = base + index as u64 * Self::PAGE;
                stale.change::<F>(va, || node.break_off(index));
            });
        });
        stale.flush()?;
        self.map.each_table(on, at, pages, |node, base, first, last| {
            // No MMU writes to an entry that is not present, and no entry is hashed.
            node.clear(first, last, Use::Private, |index, old| {
                gone(VirtAddr(base + index as u64 * Self::PAGE), F::frame(Level::PTE, old));
            });
            if const { F::KEPT != 0 } {
                node.scrub(first, last);
            }
        });
        Ok(())
    }

    /// Gives each mapped page of `pages` pages from `at` on the attributes that `change` makes of
    /// its own, and has every CPU forget its translations of those that differ. `change` is called
    /// several times for a page: once before any page changes, and as MMUs set bits in between. For
    /// the same attributes it must return the same.
    ///
    /// Pages whose change [needs a break](Format::needs_break) are broken off in batches, flushed,
    /// and made. Until then an access of any CPU to them faults: they must not be used meanwhile.
    ///
    /// # Errors
    ///
    /// [`KernelRangeError`]; the pages are unchanged then.
    pub fn protect<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        change: impl Fn(Attr) -> Attr,
    ) -> Result<(), KernelRangeError> {
        self.accept(on, at, pages)?;
        let mut expressed = Ok(());
        self.map.each_table(on, at, pages, |node, _, first, last| {
            node.each(first, last, |_, raw| {
                expressed = expressed.and_then(|()| F::expresses(change(F::attr(Level::PTE, raw))));
            });
        });
        expressed?;
        let mut stale = Stale::begin(on, self.span, F::PAGE_SHIFT, &mut self.owes_flush)?;
        let change = |raw| F::map_attr(Level::PTE, raw, &change);
        let valid = |_, va, raw| on.became_valid(None, va, F::PAGE_SHIFT, 1, 0, raw);
        let mut broken = Broken::<_, _, _, BATCH>::new(|_, va| self.map.find(on, va));
        let mut refused = None;
        self.map.each_table(on, at, pages, |node, base, first, last| {
            node.each(first, last, |index, raw| {
                let new = change(raw);
                if new == raw || refused.is_some() {
                    return;
                }
                on.before_changed::<F>(Level::PTE, raw, new);
                let va = base + index as u64 * Self::PAGE;
                let mut breaks = false;
                // The MMU need not be told of translations that are forgotten everywhere.
                stale.change::<F>(va, || {
                    let changed = node.update_seen(index, raw, new, Use::Walked, change);
                    changed.map_or_else(
                        |NeedsBreak| {
                            breaks = true;
                            raw
                        },
                        |(_, now)| now,
                    )
                });
                if !breaks {
                    return;
                }
                broken.add(node, index, va);
                if broken.is_full() {
                    let made = broken.make(|| stale.flush_so_far(), |_, _, raw| change(raw), valid);
                    refused = made.err();
                }
            });
        });
        if !broken.is_empty() {
            broken.make(|| stale.flush_so_far(), |_, _, raw| change(raw), valid)?;
        }
        drop(broken);
        refused.map_or(Ok(()), Err)?;
        Ok(stale.flush()?)
    }

    /// Unmaps whatever is mapped in the range, as [`unmap`](Self::unmap) does, gives back the
    /// tables that are empty then, but for those directly below the root, and ends the ownership.
    /// Tables that map addresses of other owners stay for these.
    ///
    /// If this unwinds, out of `gone` or of the machine's code, the range can be
    /// [claimed](KernelMap::claim) as it was left.
    ///
    /// # Errors
    ///
    /// [`KernelRangeError`], with the range, which is unchanged.
    pub fn release<M: Machine>(
        mut self,
        on: On<'_, M>,
        gone: impl FnMut(VirtAddr, Pfn),
    ) -> Result<(), (KernelRangeError, Self)> {
        let (start, pages) = (self.start(), self.len() >> F::PAGE_SHIFT);
        let mut leaving = self.leaving();
        if let Err(e) = self.unmap(on, start, pages, gone) {
            forget(leaving);
            return Err((e, self));
        }
        let Span { first, last } = self.span;
        let mut named = Runs::new(F::PAGE_SHIFT);
        let mut claims = self.map.claims().lock();
        // From here on this owner goes through no table. It keeps others out until the flush.
        claims.set_hold(self.span, Hold::Leaving);
        for index in F::index(Self::ROOT, first)..=F::index(Self::ROOT, last) {
            let raw = self.map.get(index).unwrap_or(0);
            if let Entry::Link(at) = F::entry(Self::ROOT, raw) {
                cut::<F, M>(
                    on,
                    at,
                    Level(Self::ROOT.0 - 1),
                    self.span,
                    &claims,
                    &mut leaving.tables,
                    &mut named,
                );
            }
        }
        drop(claims);
        if !leaving.tables.is_empty() {
            if const { F::KEPT != 0 } {
                // `unmap` has had their pages forgotten.
                scrub_unhooked(on, &leaving.tables);
            }
            // SAFETY: 1. the map's tables came from the policy of its machine, which `on` is.
            unsafe { on.policy().unhooked(&mut leaving.tables) };
            if const { !<M::Shootdown as Mmu>::WALKS_TABLES } {
                // No CPU knows tables, and `unmap` has just had all forget the pages.
                named.clear();
            }
            if let Err(refused) = on.tlb().flush_kernel_tables(on.pin(), &named) {
                // `unmap` has just flushed in the same place.
                debug_assert!(false, "unlinked tables are leaked: {refused}");
                return Ok(());
            }
            // SAFETY: 1. `flush_kernel_tables` has had every CPU forget the links of the tables, of
            // each of which an address was named (contract of `Mmu`, point 2), or there are no
            // tables.
            let tables = take(&mut leaving.tables).flushed(unsafe { FlushProof::claim() });
            // SAFETY: 1. as above.
            unsafe { on.policy().flushed(tables) };
        }
        forget(leaving);
        self.map.claims().lock().remove(self.span);
        on.tlb().owner_ends(on.pin());
        Ok(())
    }
}

/// Cuts links to tables that are empty, and lie below the table of `level` at `at` in `span`. Those
/// that map an address of an owner stay. `named` gets an address of each that goes.
fn cut<F: Format, M: Machine>(
    on: On<'_, M>,
    at: PhysAddr,
    level: Level,
    span: Span,
    claims: &Claims,
    tables: &mut Unhooked,
    named: &mut Runs,
) {
    if level == Level::PTE {
        return;
    }
    let node = Node::<F, M::Window>::open(on.window(), on.frames(), level, at);
    let shift = F::shift(level);
    let whole = F::entries(level) as u64 - 1;
    let base = span.first >> shift & !whole;
    node.each_link(F::index(level, span.first), F::index(level, span.last), |link| {
        let first = (base + link.index as u64) << shift;
        let mapped = Span { first, last: first + ((1 << shift) - 1) };
        let inner = Span { first: first.max(span.first), last: mapped.last.min(span.last) };
        let below = Level(level.0 - 1);
        cut::<F, M>(on, link.child, below, inner, claims, tables, named);
        if claims.is_walked(mapped) {
            return;
        }
        let child = Node::<F, M::Window>::open(on.window(), on.frames(), below, link.child);
        if child.is_empty()
            && let Some(record) = child.record()
        {
            let pfn = link.child.pfn();
            link.cut();
            named.insert(first, first.wrapping_add(1 << F::PAGE_SHIFT));
            // SAFETY: 1. the entry was its only link, and has just been cut under the lock of the
            // claims; no owner of a range goes through the table, or can begin to. 2. no entry is
            // left. 3. opened with the table.
            unsafe { tables.push(pfn, record) };
        }
    });
}

impl<'k, F: Format, W: OpenWindow> KernelRange<'k, F, W> {
    /// Leaves the range to the next claim of it, as it is then, if the call that holds the result
    /// unwinds. Forgotten otherwise.
    pub(super) fn leaving(&self) -> Leaving<'k, F, W> {
        Leaving { map: self.map, span: self.span, tables: Unhooked::new() }
    }
}

/// A range that is on its way from one owner to the next. If that unwinds, it is left to the owner
/// that claims it next. Forgotten otherwise.
#[must_use = "it is forgotten when the range has arrived"]
pub(super) struct Leaving<'k, F: Format, W: OpenWindow> {
    map: &'k KernelMap<F, W>,
    span: Span,
    /// Tables that are unlinked and were not flushed.
    tables: Unhooked,
}

impl<F: Format, W: OpenWindow> Drop for Leaving<'_, F, W> {
    #[cold]
    fn drop(&mut self) {
        self.map.claims().lock().leave(self.span, take(&mut self.tables));
    }
}

/// Pages of the kernel's half that CPUs have to forget: flushed when this is dropped, also if a
/// callback panics.
struct Stale<'a, M: Machine> {
    on: On<'a, M>,
    runs: Runs,
    /// Pages in it that were hashed.
    hashed: u32,
    /// Whether the flush of the range is still to come.
    owed: &'a mut bool,
}

impl<'a, M: Machine> Stale<'a, M> {
    /// Begins, if this CPU can flush at all. If a flush of the range is owed, everything in the
    /// range is stale.
    fn begin(on: On<'a, M>, range: Span, shift: u32, owed: &'a mut bool) -> Result<Self, TlbRefusal> {
        on.tlb().may_flush(on.pin())?;
        let runs = if *owed { range.pages(shift) } else { Runs::new(shift) };
        *owed = true;
        Ok(Stale { on, runs, hashed: 0, owed })
    }

    /// Notes that `change` changes the entry of the page at `va`; it returns the entry, from before
    /// or after. Where the entry says that the page was not hashed, no CPU knows it.
    #[inline]
    fn change<F: Format>(&mut self, va: u64, change: impl FnOnce() -> u64) -> u64 {
        if const { F::KEPT == 0 } {
            self.insert(va);
            return change();
        }
        let raw = change();
        if F::cleared(raw) != 0 {
            self.hashed = self.hashed.saturating_add(1);
            self.insert(va);
        }
        raw
    }

    fn insert(&mut self, va: u64) {
        self.runs.insert(va, va.wrapping_add(1 << self.runs.shift()));
    }

    fn flush(self) -> Result<(), TlbRefusal> {
        ManuallyDrop::new(self).flush_now()
    }

    /// Flushes the pages that are stale so far; the range owes its flush until the last one.
    #[cold]
    fn flush_so_far(&mut self) -> Result<(), TlbRefusal> {
        let facts = Facts { hashed: Some(self.hashed as u64), ..Facts::UNKNOWN };
        self.on.tlb().flush_kernel_with(self.on.pin(), &self.runs, &facts)?;
        self.runs.clear();
        self.hashed = 0;
        Ok(())
    }

    fn flush_now(&mut self) -> Result<(), TlbRefusal> {
        let facts = Facts { hashed: Some(self.hashed as u64), ..Facts::UNKNOWN };
        self.on.tlb().flush_kernel_with(self.on.pin(), &self.runs, &facts)?;
        *self.owed = false;
        Ok(())
    }
}

impl<M: Machine> Drop for Stale<'_, M> {
    fn drop(&mut self) {
        let done = self.flush_now();
        debug_assert!(done.is_ok(), "the CPU could flush when this was made");
    }
}
