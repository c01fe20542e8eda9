//! Changes the leaves of a range: their permissions, and marks of their owner's.
use super::broken::{BATCH, Broken};
use super::change_effect::{ChangeEffect, ChangeEffects};
use super::changes::make_broken;
use super::node::{NeedsBreak, Node, Use};
use super::range::{Part, is_inside};
use super::stale::{Gained, Stale};
use super::tables::Tables;
use crate::addr::VirtRange;
use crate::format::Format;
use crate::gather::Gather;
use crate::machine::Machine;
use crate::page::Level;

impl<F: Format> Tables<F> {
    /// Calls `change(level, address, entry)` for every leaf in `range` and writes the result, which
    /// must be an entry, where it differs. `change` may be called several times for one entry, as
    /// MMUs set bits in between. Records changed pages in the gather. Large pages that lie partly
    /// in the range are split first, and groups unfolded. It is called for the first leaf of a
    /// group, without the hint, and all get the attributes of the result.
    pub fn change<M: Machine>(
        &mut self,
        range: VirtRange,
        gather: &mut Gather<'_, M>,
        change: impl Fn(Level, u64, u64) -> u64,
    ) {
        self.change_leaves::<M, false>(range, gather, change);
    }

    /// As [`change`](Self::change), for the permissions of the pages of a space. A page that only
    /// gains some needs no flush: a CPU that still has the old ones faults, and finds the new.
    /// Where entries are kept elsewhere too ([`Format::KEPT`]), all changes are noted.
    pub fn change_permissions<M: Machine>(
        &mut self,
        range: VirtRange,
        gather: &mut Gather<'_, M>,
        change: impl Fn(Level, u64, u64) -> u64,
    ) {
        self.change_leaves::<M, true>(range, gather, change);
    }

    #[inline]
    fn change_leaves<M: Machine, const GAINS: bool>(
        &mut self,
        range: VirtRange,
        gather: &mut Gather<'_, M>,
        change: impl Fn(Level, u64, u64) -> u64,
    ) {
        self.split_ends(range, gather);
        if self.may_be_groups() {
            self.change_groups(range, gather, &change);
        }
        let (on, others) = (gather.on(), Use::private(gather.is_private()));
        if const { F::EVER_BREAKS } && others == Use::Walked {
            self.change_breaking::<M, GAINS>(range, gather, change);
            return;
        }
        let (effects, mut gained) = (ChangeEffects::<F>::new(), Gained::default());
        self.each_part(on, range, &mut |part| match part {
            Part::Table { node, base, first, last } => {
                let place = (node, base, first, last);
                let how = (&change, &effects, others);
                change_pages::<F, M, GAINS>(place, how, gather, &mut gained, |_, _, _, _| {});
            }
            Part::Large { node, index, va, raw } if is_inside::<F>(node.level(), va, range) => {
                let place = (node, index, va, raw);
                change_large::<F, M, GAINS>(place, others, gather, &change, |_, _, _, _| {});
            }
            Part::Large { .. } | Part::Group(_) => {}
        });
        gained.tell::<F, M>(gather);
    }

    /// As [`change`](Self::change), for entries that may have to be broken off first. Those that
    /// need a break and cannot be flushed now, as this CPU is in the middle of a flush, stay as
    /// they were.
    #[cold]
    #[inline(never)]
    fn change_breaking<M: Machine, const GAINS: bool>(
        &self,
        range: VirtRange,
        gather: &mut Gather<'_, M>,
        change: impl Fn(Level, u64, u64) -> u64,
    ) {
        let on = gather.on();
        let mut broken = Broken::<_, _, _, BATCH>::new(|level, va| self.find(on, va, level));
        let (effects, mut gained) = (ChangeEffects::<F>::new(), Gained::default());
        self.each_part(on, range, &mut |part| match part {
            Part::Table { node, base, first, last } => {
                let place = (node, base, first, last);
                let how = (&change, &effects, Use::Walked);
                change_pages::<F, M, GAINS>(place, how, gather, &mut gained, |gather, node, index, va| {
                    let old = break_off(&mut broken, gather, &change, (node, index, va));
                    gather.changed_entry::<F>(va, old);
                });
            }
            Part::Large { node, index, va, raw } if is_inside::<F>(node.level(), va, range) => {
                let (place, others) = ((node, index, va, raw), Use::Walked);
                change_large::<F, M, GAINS>(place, others, gather, &change, |gather, node, index, va| {
                    break_off(&mut broken, gather, &change, (node, index, va));
                });
            }
            // It could not be split.
            Part::Large { .. } => {}
            // They have been changed.
            Part::Group(_) => {}
        });
        let _ = make_broken(&mut broken, gather, &change);
        gained.tell::<F, M>(gather);
    }

    /// Changes the entry of the page at `va`, which [needs a break](NeedsBreak); the one that was
    /// there. `None` if there is no such entry, or if this CPU is in the middle of a flush: the
    /// entry is unchanged then.
    #[cold]
    #[inline(never)]
    pub fn change_broken<M: Machine>(
        &self,
        va: u64,
        gather: &mut Gather<'_, M>,
        change: impl Fn(u64) -> u64,
    ) -> Option<u64> {
        let on = gather.on();
        let node = self.find(on, va, Level::PTE)?;
        let mut broken = Broken::<_, _, _, 1>::new(|level, va| self.find(on, va, level));
        let was = broken.add(&node, F::index(Level::PTE, va), va);
        gather.changed_entry::<F>(va, was);
        make_broken(&mut broken, gather, &|_, _, raw| change(raw)).ok().map(|()| was)
    }
}

/// Adds the attributes of the leaf `new` of a table of `level` to those of an entry.
#[inline]
fn gain<F: Format>(level: Level, new: u64) -> impl Fn(u64) -> u64 {
    move |now| F::map_attr(level, now, |attr| attr | F::attr(level, new))
}

/// Changes entries `first` to `last` of the leaf table `node`, which maps addresses from `base` on,
/// to what `change` makes of them. If one needs a break, `break_off(gather, table, index, address)`
/// is called, which notes it in the gather.
#[inline(always)]
fn change_pages<F: Format, M: Machine, const GAINS: bool>(
    (node, base, first, last): (&Node<'_, F, M::Window>, u64, usize, usize),
    (change, effects, others): (&impl Fn(Level, u64, u64) -> u64, &ChangeEffects<F>, Use),
    gather: &mut Gather<'_, M>,
    gained: &mut Gained,
    mut break_off: impl FnMut(&mut Gather<'_, M>, &Node<'_, F, M::Window>, usize, u64),
) {
    let on = gather.on();
    let stale = Stale::new(gather, base, F::PAGE_SHIFT, (first, last));
    let changed = node.each_noted(first, last, |index, raw| {
        let va = base + ((index as u64) << F::PAGE_SHIFT);
        let new = change(Level::PTE, va, raw);
        if new == raw {
            return false;
        }
        let effect = effects.of(raw, new);
        if effect.told {
            on.before_changed::<F>(Level::PTE, raw, new);
        }
        let gains = const { GAINS && F::KEPT == 0 } && effect.gains;
        let again = |now| changed_meanwhile::<F>(change, va, now, gains.then_some(new));
        match node.update_seen(index, raw, new, others, again) {
            Ok((_, now)) if gains => {
                gained.add::<F, M>(stale.gather, va, raw, now);
                false
            }
            Ok((_, now)) if const { F::KEPT != 0 } => {
                stale.gather.changed_entry::<F>(va, now);
                false
            }
            Ok(_) => true,
            Err(NeedsBreak) => {
                break_off(stale.gather, node, index, va);
                false
            }
        }
    });
    stale.end(changed);
}

/// Returns what becomes of a leaf table's entry that a CPU or an MMU has changed meanwhile: what it
/// gains with `gained`, or what `change` makes of it. Apart from the loop, which has its first call
/// of `change` inline.
#[cold]
#[inline(never)]
fn changed_meanwhile<F: Format>(
    change: &impl Fn(Level, u64, u64) -> u64,
    va: u64,
    now: u64,
    gained: Option<u64>,
) -> u64 {
    match gained {
        // `change` may look at the frame's record: once is enough.
        Some(new) => F::map_attr(Level::PTE, now, |attr| attr | F::attr(Level::PTE, new)),
        None => change(Level::PTE, va, now),
    }
}

/// Changes the large page `raw` at `index` of `node`; see [`Tables::change`]. If that needs a
/// break, `break_off(gather, table, index, address)` is called.
#[cold]
#[inline(never)]
fn change_large<F: Format, M: Machine, const GAINS: bool>(
    (node, index, va, raw): (&Node<'_, F, M::Window>, usize, u64, u64),
    others: Use,
    gather: &mut Gather<'_, M>,
    change: &impl Fn(Level, u64, u64) -> u64,
    break_off: impl FnOnce(&mut Gather<'_, M>, &Node<'_, F, M::Window>, usize, u64),
) {
    let (level, shift) = (node.level(), F::shift(node.level()));
    let new = change(level, va, raw);
    if new == raw {
        return;
    }
    let effect = ChangeEffect::of::<F>(level, raw, new);
    if effect.told {
        gather.on().before_changed::<F>(level, raw, new);
    }
    if GAINS
        && effect.gains
        && let Ok((_, now)) = node.update_seen(index, raw, new, others, gain::<F>(level, new))
    {
        return gather.became_valid_leaf(va, shift, raw, now);
    }
    if let Err(NeedsBreak) = node.update_seen(index, raw, new, others, |now| change(level, va, now)) {
        break_off(gather, node, index, va);
    }
    gather.changed_large(va, va + (1 << shift), shift);
}

/// Breaks off the leaf of `va` at `index` of `node`, after those in `broken` if there are too many
/// of them; the one that was there.
#[cold]
#[inline(never)]
fn break_off<'a, 'w, F: Format, M: Machine + 'a, T>(
    broken: &mut Broken<'w, F, M::Window, T, BATCH>,
    gather: &mut Gather<'a, M>,
    change: &impl Fn(Level, u64, u64) -> u64,
    (node, index, va): (&Node<'_, F, M::Window>, usize, u64),
) -> u64
where
    M::Window: 'w,
    T: Fn(Level, u64) -> Option<Node<'w, F, M::Window>>,
{
    if broken.is_full() {
        let _ = make_broken(broken, gather, change);
    }
    broken.add(node, index, va)
}
