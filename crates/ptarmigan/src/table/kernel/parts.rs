//! Large pages of the kernel's half that change in part, or go.
//!
//! # Splits
//!
//! A change of a part of a large page splits it first, with a table that was reserved when it was
//! mapped. The table takes its place at once: until the flush a CPU uses either, and both say the
//! same. Where the architecture demands a break ([`Format::needs_break`]) all of the large page
//! would fault for a while, also for code that knows nothing of the change. So such a change is
//! refused ([`KernelRangeError::PartOfLarge`]), and
//! [`KernelRange::split`](super::KernelRange::split) is a call of its own. A
//! [group](super::groups) is unfolded in the same way, or refused.
use super::claims::Span;
use super::error::KernelRangeError;
use super::roots::KernelMap;
use super::stale::Stale;
use crate::addr::VirtAddr;
use crate::format::Format;
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::table::broken::Broken;
use crate::table::changes::rehint;
use crate::table::large::{parts, put_parts, size};
use crate::table::node::{Node, Use};
use crate::table::range::Part;
use crate::table::reserve::{Reserve, needed};
use crate::window::OpenWindow;

impl<F: Format, W: OpenWindow> KernelMap<F, W> {
    /// The large page that maps `va`, an address of a range that the caller owns, and the level of
    /// its table.
    pub(super) fn large_at<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<(Level, u64)> {
        let mut found = None;
        self.each_part(on, VirtAddr(va), 1, false, |part| {
            if let Part::Large { node, raw, .. } = part {
                found = Some((node.level(), raw));
            }
        });
        found
    }
}

/// Whether the table of its parts may take the place of the leaf `raw` only after a break.
fn breaks<F: Format>(level: Level, raw: u64) -> bool {
    F::EVER_BREAKS && F::needs_break(level, raw, F::link(level, crate::addr::PhysAddr(0)))
}

/// Splits the large pages of the range `span` that lie partly in `pages` pages from `at` on, and
/// unfolds groups.
///
/// # Errors
///
/// [`KernelRangeError::PartOfLarge`] if that needs a break; no page is split then.
#[inline]
pub(super) fn split_ends<F: Format, W: OpenWindow, M: Machine>(
    map: &KernelMap<F, W>,
    on: On<'_, M>,
    span: Span,
    (at, pages): (VirtAddr, u64),
    reserve: &mut Reserve,
    stale: &mut Stale<'_, M>,
) -> Result<(), KernelRangeError> {
    if F::LEAF_LEVELS > 1 && reserve.is_used() {
        let last = at.0 + ((pages << F::PAGE_SHIFT) - 1);
        return split_around(map, on, span, (at.0, last), reserve, stale);
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn split_around<F: Format, W: OpenWindow, M: Machine>(
    map: &KernelMap<F, W>,
    on: On<'_, M>,
    span: Span,
    (start, last): (u64, u64),
    reserve: &mut Reserve,
    stale: &mut Stale<'_, M>,
) -> Result<(), KernelRangeError> {
    // The first page, and the one behind the last: large pages of a range lie in it.
    let ends = || [Some(start), (last < span.last).then(|| last + 1)].into_iter().flatten();
    let cut_at = |va: u64| map.large_at(on, va).filter(|(level, _)| va & (size::<F>(*level) - 1) != 0);
    for va in ends() {
        if reserve.has_groups()
            && let Some((start, _, true)) = map.group_around(on, va)
        {
            return Err(KernelRangeError::PartOfLarge { at: VirtAddr(start) });
        }
        if let Some((level, raw)) = cut_at(va)
            && breaks::<F>(level, raw)
        {
            return Err(KernelRangeError::PartOfLarge { at: VirtAddr(va & !(size::<F>(level) - 1)) });
        }
    }
    for va in ends() {
        if reserve.has_groups()
            && let Some((_, level, _)) = map.group_around(on, va)
        {
            rehint(|level, va| map.find(on, va, level), (va, level), false, stale)?;
        }
        while let Some((level, _)) = cut_at(va) {
            if !split_one(map, on, (va, level), reserve, stale)? {
                break;
            }
        }
    }
    Ok(())
}

/// Puts a table of its parts in the place of the large page that maps `va`, a leaf of a table of
/// `level`; false if no table was reserved, which is never so.
pub(super) fn split_one<F: Format, W: OpenWindow, M: Machine>(
    map: &KernelMap<F, W>,
    on: On<'_, M>,
    (va, level): (u64, Level),
    reserve: &mut Reserve,
    stale: &mut Stale<'_, M>,
) -> Result<bool, KernelRangeError> {
    let start = va & !(size::<F>(level) - 1);
    let Some(node) = map.find(on, va, level) else { return Ok(false) };
    let index = F::index(level, va);
    let seen = node.load(index);
    if breaks::<F>(level, seen) {
        let mut broken = Broken::<F, M::Window, _, 1>::new(|level, va| map.find(on, va, level));
        stale.change_large(start, F::shift(level));
        broken.add(&node, index, start);
        let mut is_split = false;
        broken.make(
            || stale.flush_so_far(),
            |_, _, was| {
                let table = parts::<F, M>(on, reserve, level, was);
                is_split = table.is_some();
                table.map_or(was, |at| F::link(level, at))
            },
            |_, _, _| {},
        )?;
        return Ok(is_split);
    }
    let Some(at) = parts::<F, M>(on, reserve, level, seen) else { return Ok(false) };
    stale.change_large(start, F::shift(level));
    put_parts::<F, M>(on, &node, index, seen, at, Use::Walked);
    Ok(true)
}

/// Clears the large page at `index` of `node`, which every CPU has forgotten, and gives up the
/// tables that were reserved for it.
#[cold]
pub(super) fn clear_large<F: Format, W: OpenWindow, M: Machine>(
    map: &KernelMap<F, W>,
    on: On<'_, M>,
    node: &Node<'_, F, M::Window>,
    index: usize,
    reserve: &mut Reserve,
) {
    let claims = map.claims().lock();
    // No MMU writes to an entry that is not present.
    node.take(index, Use::Private);
    drop(claims);
    reserve.lower::<F, M>(on, needed::<F>(node.level()));
}
