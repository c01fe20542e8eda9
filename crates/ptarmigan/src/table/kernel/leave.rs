//! Ends the ownership of a range, and carries a range from one owner to the next.
use super::claims::{Hold, Span};
use super::error::KernelRangeError;
use super::range::KernelRange;
use crate::addr::{Pfn, PhysAddr, VirtAddr};
use crate::format::{Entry, Format};
use crate::gather::scrub_unhooked;
use crate::machine::{Machine, On};
use crate::page::{FlushProof, Level, Unhooked};
use crate::table::node::Node;
use crate::tlb::{Mmu, Runs, TlbRefusal};
use crate::window::OpenWindow;
use core::mem::{forget, take};
use core::ops::{Deref, DerefMut};

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
