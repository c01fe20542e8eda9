//! Gives leaves of a tree the hint of a [group](super::group), takes it from them, and changes and
//! clears groups.
use super::broken::{BATCH, Broken};
use super::changes::{Changes, change_group, make_broken, rehint};
use super::group::{Group, has_groups};
use super::map_error::CollapseError;
use super::node::Use;
use super::range::Part;
use super::reserve::needed;
use super::tables::Tables;
use crate::addr::{VirtAddr, VirtRange};
use crate::format::{Attr, Format};
use crate::gather::Gather;
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::tlb::TlbRefusal;

impl<F: Format> Tables<F> {
    /// Whether there may be groups.
    #[inline(always)]
    pub fn may_be_groups(&self) -> bool {
        (const { has_groups::<F>() }) && self.reserve.has_groups()
    }

    /// The group of leaves of tables of `level` that maps `va`: its first address, and the entry
    /// with the bits of all.
    #[cold]
    pub(super) fn group_at<M: Machine>(&self, on: On<'_, M>, va: u64, level: Level) -> Option<(u64, u64)> {
        let node = self.find(on, va, level)?;
        let group = Group::around(&node, va);
        Some((group.va(), F::hinted(level, group.leaf())))
    }

    /// Calls `change(level, address, leaf)` for each group in `range`, with the leaf of its first
    /// entry, and gives all entries the attributes of the result. A group that needs a break, and
    /// cannot be flushed now, stays as it was.
    #[cold]
    pub(super) fn change_groups<M: Machine>(
        &self,
        range: VirtRange,
        gather: &mut Gather<'_, M>,
        change: &impl Fn(Level, u64, u64) -> u64,
    ) {
        let on = gather.on();
        let mut broken = Broken::<_, _, _, BATCH>::new(|level, va| self.find(on, va, level));
        self.each_part(on, range, &mut |part| {
            if let Part::Group(group) = part
                && group.is_inside(range)
            {
                let _ = change_group(&group, true, &mut broken, gather, change);
            }
        });
        let _ = make_broken(&mut broken, gather, change);
    }

    /// Takes the hint from the group of leaves of tables of `level` that maps `va`, if it has one.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if that needs a break in the middle of a flush of this CPU; it is unchanged
    /// then.
    #[cold]
    pub(super) fn unfold<M: Machine>(
        &self,
        va: u64,
        level: Level,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), TlbRefusal> {
        let on = gather.on();
        rehint(|level, va| self.find(on, va, level), (va, level), false, gather)
    }

    /// Takes the hints from the groups of leaves of tables of `lowest` or higher that map a part
    /// of `range`: where breaks are needed, many with one flush.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if breaks are needed in the middle of a flush of this CPU; some may have been
    /// unfolded.
    #[cold]
    pub(super) fn unfold_range<M: Machine>(
        &self,
        range: VirtRange,
        lowest: Level,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), TlbRefusal> {
        let (on, mut done) = (gather.on(), Ok(()));
        let find = |level, va| self.find(on, va, level);
        let mut broken = Broken::<_, _, _, BATCH>::new(find).with_hints(false);
        self.each_part(on, range, &mut |part| {
            if let Part::Group(group) = part
                && group.level() >= lowest
                && done.is_ok()
            {
                done = change_group(&group, false, &mut broken, gather, &|_, _, raw| raw);
            }
        });
        make_broken(&mut broken, gather, &|_, _, raw| raw)?;
        done
    }

    /// The part of `range` without groups that lie partly in it: those that could not be unfolded.
    pub(super) fn without_parts_of_groups<M: Machine>(&self, on: On<'_, M>, range: VirtRange) -> VirtRange {
        if !self.may_be_groups() {
            return range;
        }
        let page = (1 << F::PAGE_SHIFT) - 1;
        let cut = |at: u64| {
            let leaf = self.leaf_at(on, at)?;
            (leaf.hint && leaf.range.start != at).then_some(leaf.range)
        };
        let start = cut(range.start & !page).map_or(range.start, |group| group.end);
        let end = cut((range.end + page) & !page).map_or(range.end, |group| group.start);
        VirtRange::ordered(start, end.max(start))
    }

    /// Clears the groups in `range`, and calls `leaf(gather, level, address, entry)` once for each,
    /// with an entry that has the hint, and the bits of all. Returns the tables that were reserved
    /// for them.
    #[cold]
    pub(super) fn clear_groups<'a, M: Machine>(
        &self,
        range: VirtRange,
        gather: &mut Gather<'a, M>,
        leaf: &mut (impl FnMut(&mut Gather<'a, M>, Level, u64, u64) + ?Sized),
    ) -> u32 {
        let (on, others, mut spare) = (gather.on(), Use::private(gather.is_private()), 0);
        self.each_part(on, range, &mut |part| {
            let Part::Group(group) = part else { return };
            if !group.is_inside(range) {
                return;
            }
            let level = group.level();
            gather.note_group(&group);
            let old = group.clear(others);
            spare += group.indices().len() as u32 * needed::<F>(level);
            leaf(gather, level, group.va(), F::hinted(level, old));
        });
        spare
    }

    /// Takes `bits` from the group, as [`take_bits`](Self::take_bits) does from a leaf; returns the
    /// entry as it was then, `None` if it has none of them.
    #[cold]
    pub(super) fn take_from_group<M: Machine>(
        group: &Group<'_, '_, F, M::Window>,
        gather: &mut Gather<'_, M>,
        bits: Attr,
        without: impl Fn(u64) -> u64,
    ) -> Option<u64> {
        let (level, seen) = (group.level(), group.leaf());
        if F::attr(level, seen).only(bits) == Attr::default() {
            return None;
        }
        gather.note_group(group);
        let old = group.write(seen, without(seen), true, Use::private(gather.is_private()));
        Some(F::hinted(level, old))
    }

    /// Gives the leaves of tables of `level` from `start` on, as many as a group has, the hint. A
    /// group, or a larger page, stays.
    ///
    /// # Errors
    ///
    /// [`CollapseError`]; they are unchanged then.
    pub(super) fn make_group<M: Machine>(
        &mut self,
        start: u64,
        level: Level,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), CollapseError> {
        let on = gather.on();
        let differs = CollapseError::Differs { at: VirtAddr(start) };
        if self.lookup(on, start).ok_or(differs)?.0 > level {
            return Ok(());
        }
        let node = self.find(on, start, level).ok_or(differs)?;
        Group::around(&node, start).fits().map_err(|at| CollapseError::Differs { at })?;
        self.reserve.note_groups();
        Ok(rehint(|level, va| self.find(on, va, level), (start, level), true, gather)?)
    }
}
