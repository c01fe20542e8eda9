//! Begins and ends the ownership of ranges, and carries a range from one owner to the next.
//!
//! # Protocol
//!
//! ```text
//!             note          fill_roots           release: unmap, flush      cut, unhook
//!   (free) ─────────> Owned ──────────> a range ─────────────────────> Leaving ─────────> (free)
//!                       ^                  │                              │
//!                       │                  └───────── unwinds ────────────┤
//!                       └──── claim of the same span, flush ──── Left <───┘
//! ```
//!
//! 1. A claim notes the span under the lock of the claims, and only then makes tables, without it.
//! 2. A table for an entry of the roots is made first. Under the lock the claim looks again: the
//!    owner of another range may have been faster, and then the table is given back.
//! 3. A release unmaps and flushes. Under the lock it says that it is leaving, and cuts the tables
//!    that no other owner goes through.
//! 4. The tables are flushed and given back without the lock. Then the span is free.
//!
//! # Why
//!
//! Owners map pages without a lock, so that two drivers do not wait for each other. This holds
//! because ranges are made of whole leaf tables, and a table stays linked while any owner has
//! addresses below it. The lock guards only the tables above, which are shared.
//!
//! No memory is allocated under the lock, and no flush is waited for: another CPU may wait for the
//! lock with interrupts masked, and would not answer. If a release unwinds, the span stays taken,
//! because TLBs may know its pages. The next claim of the same span flushes them.
use super::claims::{ClaimError, Hold, Holdings, MAX_ROOT_ENTRIES, Span};
use super::error::KernelRangeError;
use super::range::KernelRange;
use super::roots::KernelMap;
use crate::addr::{Pfn, PhysAddr, VirtAddr};
use crate::format::{Entry, Format};
use crate::frames::AllocFlags;
use crate::gather::scrub_unhooked;
use crate::machine::{Machine, On};
use crate::page::{FlushProof, Level, Unhooked};
use crate::table::adopt::{adopt, free_unlinked};
use crate::table::node::Node;
use crate::table::tables::hashes;
use crate::tlb::{Mmu, Runs, TlbRefusal};
use crate::window::OpenWindow;
use core::mem::{forget, take};
use core::ops::{Deref, DerefMut};

impl<F: Format, W: OpenWindow> KernelMap<F, W> {
    /// The last address of the kernel's half.
    pub(crate) const LAST: u64 = {
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
            <M::Shootdown as Mmu>::FORMATS.demand_kernel::<F>();
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
        let holdings = if left { self.claims().lock().take_left(span) } else { Holdings::none() };
        let mut range = Leaving::of(KernelRange { map: self, span, owes_flush: false, holdings });
        if left {
            let all = span.pages(F::PAGE_SHIFT);
            // The release may have cut links of tables.
            on.tlb().flush_kernel_tables(on.pin(), &all).map_err(ClaimError::Refused)?;
            // SAFETY: 1. the flush has named all addresses of the span.
            unsafe { range.give_tables(on) };
        }
        // Whoever linked them, the first mapping tells the MMU.
        range.0.holdings.linked = Self::ROOT.0;
        if let Err(e) = self.fill_roots(on, span) {
            if !left {
                let _new = range.arrive();
                self.claims().lock().remove(span);
                on.tlb().owner_ends(on.pin());
            }
            return Err(e);
        }
        Ok(range.arrive())
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
}

impl<'k, F: Format, W: OpenWindow> KernelRange<'k, F, W> {
    /// Unmaps whatever is mapped in the range, as [`unmap`](Self::unmap) does, gives back the
    /// tables that are empty then, but for those directly below the root, and ends the ownership.
    /// Tables that map addresses of other owners stay for these.
    ///
    /// If this unwinds, out of `gone` or of the machine's code, the range can be
    /// [claimed](super::KernelMap::claim) as it was left.
    ///
    /// # Errors
    ///
    /// [`KernelRangeError`], with the range, which is unchanged.
    pub fn release<M: Machine>(
        self,
        on: On<'_, M>,
        gone: impl FnMut(VirtAddr, Pfn),
    ) -> Result<(), (KernelRangeError, Self)> {
        let (start, pages) = (self.start(), self.len() >> F::PAGE_SHIFT);
        let mut leaving = Leaving::of(self);
        let unmapped = leaving.pay(on).map_err(KernelRangeError::from);
        if let Err(e) = unmapped.and_then(|()| leaving.unmap(on, start, pages, gone)) {
            return Err((e, leaving.arrive()));
        }
        // Of a call that has unwound.
        let rest = leaving.holdings.reserve.tables();
        leaving.holdings.reserve.lower::<F, M>(on, rest);
        let (map, span) = (leaving.map, leaving.span);
        let mut named = Runs::new(F::PAGE_SHIFT);
        let mut claims = map.claims().lock();
        // From here on this owner goes through no table. It keeps others out until the flush.
        claims.set_hold(span, Hold::Leaving);
        for index in F::index(Self::ROOT, span.first)..=F::index(Self::ROOT, span.last) {
            let raw = map.get(index).unwrap_or(0);
            if let Entry::Link(at) = F::entry(Self::ROOT, raw) {
                let stays = |mapped| claims.is_walked(mapped);
                let below = Level(Self::ROOT.0 - 1);
                cut::<F, M>(on, (at, below), span, &stays, &mut leaving.holdings.tables, &mut named);
            }
        }
        drop(claims);
        if let Err(refused) = leaving.unhook(on, named) {
            // `unmap` has just flushed in the same place.
            debug_assert!(false, "unlinked tables are leaked: {refused}");
            return Ok(());
        }
        let _released = leaving.arrive();
        map.claims().lock().remove(span);
        on.tlb().owner_ends(on.pin());
        Ok(())
    }

    /// Gives back tables that have just been unlinked, after a flush. `named` has an address of
    /// each.
    pub(super) fn unhook<M: Machine>(&mut self, on: On<'_, M>, mut named: Runs) -> Result<(), TlbRefusal> {
        let tables = &mut self.holdings.tables;
        if tables.is_empty() {
            return Ok(());
        }
        if const { F::KEPT != 0 } {
            // `unmap` has had their pages forgotten.
            scrub_unhooked(on, tables);
        }
        // SAFETY: 1. the map's tables came from the policy of its machine, which `on` is.
        unsafe { on.policy().unhooked(tables) };
        if const { !<M::Shootdown as Mmu>::WALKS_TABLES } {
            // No CPU knows tables, and `unmap` has had all forget their pages.
            named.clear();
        }
        on.tlb().flush_kernel_tables(on.pin(), &named)?;
        // SAFETY: 1. `flush_kernel_tables` has had every CPU forget the links of the tables, of
        // each of which an address was named (contract of `Mmu`, point 2).
        unsafe { self.give_tables(on) };
        Ok(())
    }

    /// Gives back tables whose flush has unwound.
    pub(super) fn pay<M: Machine>(&mut self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        if !self.holdings.tables.is_empty() {
            on.tlb().flush_kernel_tables(on.pin(), &self.span.pages(F::PAGE_SHIFT))?;
            // SAFETY: 1. the flush has named all addresses of the range.
            unsafe { self.give_tables(on) };
        }
        Ok(())
    }

    /// Gives back tables that have been unlinked.
    ///
    /// # Safety
    ///
    /// 1. As for [`FlushProof::claim`], of the unlinked tables of the range.
    pub(super) unsafe fn give_tables<M: Machine>(&mut self, on: On<'_, M>) {
        let tables = take(&mut self.holdings.tables);
        if !tables.is_empty() {
            // SAFETY: 1. by the caller.
            let tables = tables.flushed(unsafe { FlushProof::claim() });
            // SAFETY: 1. the map's tables came from the policy of its machine, which `on` is.
            unsafe { on.policy().flushed(tables) };
        }
    }
}

/// Cuts links to tables that are empty, and lie below the table `at` in `span`. Those that map a
/// span for which `stays` is true stay. `named` gets an address of each that goes.
///
/// The caller has the lock of the claims. No owner goes through a table for which `stays` is false,
/// or can begin to.
pub(super) fn cut<F: Format, M: Machine>(
    on: On<'_, M>,
    (at, level): (PhysAddr, Level),
    span: Span,
    stays: &dyn Fn(Span) -> bool,
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
        cut::<F, M>(on, (link.child, below), inner, stays, tables, named);
        if stays(mapped) {
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

/// A range that is on its way from one owner to the next. If that unwinds, it is left, as it is
/// then, to the owner that claims it next.
#[must_use = "it arrives at its new owner"]
pub(super) struct Leaving<'k, F: Format, W: OpenWindow>(KernelRange<'k, F, W>);

impl<'k, F: Format, W: OpenWindow> Leaving<'k, F, W> {
    pub fn of(range: KernelRange<'k, F, W>) -> Self {
        Leaving(range)
    }

    /// Hands the range over.
    pub fn arrive(mut self) -> KernelRange<'k, F, W> {
        let KernelRange { map, span, owes_flush, ref mut holdings } = self.0;
        let range = KernelRange { map, span, owes_flush, holdings: holdings.take() };
        forget(self);
        range
    }
}

impl<'k, F: Format, W: OpenWindow> Deref for Leaving<'k, F, W> {
    type Target = KernelRange<'k, F, W>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<F: Format, W: OpenWindow> DerefMut for Leaving<'_, F, W> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<F: Format, W: OpenWindow> Drop for Leaving<'_, F, W> {
    #[cold]
    fn drop(&mut self) {
        self.0.map.claims().lock().leave(self.0.span, self.0.holdings.take());
    }
}
