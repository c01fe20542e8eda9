//! Maps frames that come one after another, and blocks of them.
use super::claims::{Holdings, Span};
use super::owner::cut;
use super::parts::clear_large;
use super::range::KernelRange;
use crate::addr::{Pfn, VirtAddr};
use crate::format::{Attr, Format};
use crate::frames::AllocFlags;
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::table::large::size;
use crate::table::map_error::MapError;
use crate::table::node::Use;
use crate::table::range::Part;
use crate::table::reserve::needed;
use crate::tlb::Runs;
use crate::window::OpenWindow;

/// The level whose leaves show blocks.
const LARGE: Level = Level(1);

/// The parts of `pages` pages from `at` on that lie in one leaf table each: the first address, and
/// the number of pages.
fn by_table<F: Format>(at: VirtAddr, pages: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        if done == pages {
            return None;
        }
        let va = at.0 + (done << F::PAGE_SHIFT);
        let n = (pages - done).min((F::entries(Level::PTE) - F::index(Level::PTE, va)) as u64);
        done += n;
        Some((va, n))
    })
}

impl<F: Format, W: OpenWindow> KernelRange<'_, F, W> {
    /// Maps `pages` pages from `at` on to frames that `next` gives, one for each. No CPU reaches
    /// any of them before all are there. If `next` fails, `back` gets the frames that it has given,
    /// and no page stays mapped; tables that were made stay for later.
    ///
    /// If `next` or `back` unwinds, the remaining entries allow no access; the next
    /// [`unmap`](Self::unmap) of the pages names their frames.
    ///
    /// # Errors
    ///
    /// [`MapError`] before the first frame is asked for, and the error of `next`.
    ///
    /// # Safety
    ///
    /// 1. As for [`map`](Self::map), for each frame that `next` gives.
    #[allow(clippy::too_many_arguments, reason = "a page range, its attributes, and two callbacks")]
    pub unsafe fn map_each<M: Machine, E: From<MapError>>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        attr: Attr,
        flags: AllocFlags,
        next: impl FnMut() -> Result<Pfn, E>,
        back: impl FnMut(Pfn),
    ) -> Result<(), E> {
        self.accept_mapping(on, at, pages)?;
        F::expresses(attr).map_err(MapError::from)?;
        let attr = attr.noted();
        self.prepare(on, at, pages, flags)?;
        let filled = self.fill_pages(on, at, pages, attr.without_access(), next);
        self.finish_filling(on, at, pages, attr, filled, back)
    }

    /// As [`map_each`](Self::map_each), with a block of frames that `block` gives, shown by a large
    /// page of level 1, wherever such a page lies in the range as a whole. `block` returns the
    /// first frame, or `None` if there is no block: then it is asked for no other, and the
    /// remaining pages have frames that `next` gives. `back` gets the first frame of a block.
    ///
    /// Empty tables that are in the way of large pages are given back with one flush, before the
    /// first page can be used. If this CPU cannot flush now, they have pages.
    ///
    /// If a callback unwinds, the next [`unmap_leaves`](Self::unmap_leaves) names each block.
    ///
    /// # Errors
    ///
    /// [`MapError`], and the error of `next`.
    ///
    /// # Safety
    ///
    /// 1. As for [`map`](Self::map), for each frame that `next` gives, and each of a block.
    /// 2. Each block must have the size of a large page of level 1, and be aligned to it.
    #[allow(clippy::too_many_arguments, reason = "those of `map_each`, and one more callback")]
    pub(crate) unsafe fn map_each_large<M: Machine, E: From<MapError>>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        attr: Attr,
        flags: AllocFlags,
        block: impl FnMut() -> Option<Pfn>,
        next: impl FnMut() -> Result<Pfn, E>,
        back: impl FnMut(Pfn),
    ) -> Result<(), E> {
        self.accept_mapping(on, at, pages)?;
        F::expresses(attr).map_err(MapError::from)?;
        let attr = attr.noted();
        self.accept_empty(on, at, pages)?;
        let absent = attr.without_access();
        let fill = || {
            self.fill_blocks(on, at, pages, absent, flags, block)?;
            for (va, n) in by_table::<F>(at, pages) {
                if !self.is_large_at(on, va) {
                    self.prepare(on, VirtAddr(va), n, flags)?;
                }
            }
            self.fill_pages(on, at, pages, absent, next)
        };
        let filled = fill();
        self.finish_filling(on, at, pages, attr, filled, back)
    }

    /// Refuses pages of which one is mapped.
    fn accept_empty<M: Machine>(&self, on: On<'_, M>, at: VirtAddr, pages: u64) -> Result<(), MapError> {
        let mut mapped = None;
        self.map_of().each_part(on, at, pages, false, |part| match part {
            Part::Table { node, base, first, last } => node.each(first, last, |index, _| {
                mapped = mapped.or(Some(base + index as u64 * Self::PAGE));
            }),
            Part::Large { va, .. } => mapped = mapped.or(Some(va)),
            Part::Group(group) => mapped = mapped.or(Some(group.va())),
        });
        mapped.map_or(Ok(()), |at| Err(MapError::Occupied { at: VirtAddr(at) }))
    }

    /// Puts blocks into entries that allow no access, for which tables are reserved.
    fn fill_blocks<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        absent: Attr,
        flags: AllocFlags,
        mut block: impl FnMut() -> Option<Pfn>,
    ) -> Result<(), MapError> {
        let can_flush = on.tlb().may_flush(on.pin()).is_ok() && self.pay(on).is_ok();
        let whole = size::<F>(LARGE) >> F::PAGE_SHIFT;
        let mut named = Runs::new(F::PAGE_SHIFT);
        let mut made = Ok(());
        for (va, _) in by_table::<F>(at, pages).filter(|(_, n)| *n == whole) {
            let node = match self.table(on, va, LARGE, flags) {
                Ok(node) => node,
                Err(e) => {
                    made = Err(e);
                    break;
                }
            };
            let index = F::index(LARGE, va);
            if !can_flush && !F::is_none(node.load(index)) {
                continue;
            }
            let Holdings { reserve, tables, .. } = &mut self.holdings;
            if reserve.raise::<F, M>(on, needed::<F>(LARGE)).is_err() {
                break;
            }
            let Some(first) = block() else {
                reserve.lower::<F, M>(on, needed::<F>(LARGE));
                break;
            };
            let span = Span { first: va, last: va + (size::<F>(LARGE) - 1) };
            let claims = self.map.claims().lock();
            // CPUs that know the link find no page in the table until the flush.
            cut::<F, M>(on, (node.at(), LARGE), span, &|_| false, tables, &mut named);
            node.put(index, F::leaf(LARGE, first, absent));
            drop(claims);
        }
        if !named.is_empty() {
            self.unhook(on, named)?;
        }
        made
    }

    /// Puts frames into the entries of all leaf tables, which allow no access.
    fn fill_pages<M: Machine, E>(
        &self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        absent: Attr,
        mut next: impl FnMut() -> Result<Pfn, E>,
    ) -> Result<(), E> {
        let mut filled = Ok(());
        self.map_of().each_table(on, at, pages, |node, _, low, high| {
            for index in low..=high {
                if filled.is_err() {
                    return;
                }
                match next() {
                    Ok(pfn) => node.put(index, F::leaf(Level::PTE, pfn, absent)),
                    Err(e) => filled = Err(e),
                }
            }
        });
        filled
    }

    /// Has the entries of the pages allow what `attr` does, or clears them if they could not be
    /// filled.
    fn finish_filling<M: Machine, E>(
        &mut self,
        on: On<'_, M>,
        at: VirtAddr,
        pages: u64,
        attr: Attr,
        filled: Result<(), E>,
        mut back: impl FnMut(Pfn),
    ) -> Result<(), E> {
        let (map, linked) = (self.map, core::mem::take(&mut self.holdings.linked));
        let reserve = &mut self.holdings.reserve;
        if filled.is_err() {
            // No MMU has found, or writes to, entries that are not present.
            map.each_part(on, at, pages, false, |part| match part {
                Part::Table { node, first, last, .. } => {
                    node.clear(first, last, Use::Private, |_, old| back(F::frame(Level::PTE, old)));
                }
                Part::Large { node, index, raw, .. } => {
                    clear_large(map, on, node, index, reserve);
                    back(F::frame(node.level(), raw));
                }
                // None of them has been put.
                Part::Group(_) => {}
            });
            return filled;
        }
        map.each_part(on, at, pages, false, |part| match part {
            Part::Table { node, base, first, last } => {
                for index in first..=last {
                    on.before_mapped::<F>(attr, F::frame(Level::PTE, node.load(index)), 1);
                    node.replace(index, Use::Private, |raw| F::map_attr(Level::PTE, raw, |_| attr));
                }
                let va = base + first as u64 * Self::PAGE;
                let place = (va, F::PAGE_SHIFT, (last - first + 1) as u64);
                on.became_reachable(None, linked, place, 0, node.load(first));
            }
            Part::Large { node, index, va, raw } => {
                let level = node.level();
                on.before_mapped::<F>(attr, F::frame(level, raw), size::<F>(level) >> F::PAGE_SHIFT);
                node.replace(index, Use::Private, |raw| F::map_attr(level, raw, |_| attr));
                on.became_reachable(None, linked, (va, F::shift(level), 1), 0, node.load(index));
            }
            Part::Group(_) => {}
        });
        filled
    }
}
