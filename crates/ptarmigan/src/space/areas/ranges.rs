//! Areas are found by address, joined with their neighbours, cut and taken out.
use super::leaf::{Hint, Spot};
use super::{AreaError, Areas};
use crate::addr::VirtRange;
use crate::machine::{Machine, On};
use crate::space::area::{Area, AreaFlags};

impl Areas {
    /// The area that `va` lies in.
    pub fn find<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<Area> {
        let area = self.get(on, self.seek(on, va)?);
        (area.start <= va).then_some(area)
    }

    /// The first area that ends above `va`: the one it lies in, or the next.
    pub fn at_or_after<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<Area> {
        Some(self.get(on, self.seek(on, va)?))
    }

    /// Where the area is that `va` lies in, and its flags.
    #[inline(never)]
    pub(in crate::space) fn search<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<(Hint, AreaFlags)> {
        let at = self.seek(on, va)?;
        let flags = self.leaf(on, at.leaf, |l| l.at(at.index).flags_around(va))?;
        Some((Hint::of(at), flags))
    }

    /// The flags of the area that `va` lies in, if it is where the hint says.
    #[inline]
    pub(in crate::space) fn hinted<M: Machine>(
        &self,
        on: On<'_, M>,
        hint: Option<Hint>,
        va: u64,
    ) -> Option<(Hint, AreaFlags)> {
        let hint = hint?;
        let at = hint.spot();
        if at.leaf >= self.leaves as usize {
            return None;
        }
        let flags = self.likely_leaf(on, at.leaf, |l| l.used().get(at.index)?.flags_around(va))?;
        Some((hint, flags))
    }

    /// The object of the area that was just found at `hint`, and where `va` is in it.
    #[inline]
    pub(in crate::space) fn object_at<M: Machine>(&self, on: On<'_, M>, hint: Hint, va: u64) -> (u32, u64) {
        let at = hint.spot();
        self.likely_leaf(on, at.leaf, |l| l.at(at.index).object_at(va))
    }

    /// The area that was just found at `hint`.
    #[inline]
    pub(in crate::space) fn found<M: Machine>(&self, on: On<'_, M>, hint: Hint) -> Area {
        let at = hint.spot();
        self.likely_leaf(on, at.leaf, |l| l.at(at.index).area())
    }

    /// Notes that the area that was just found at `hint` has private pages. Others may be doing the
    /// same. If it has no [history](Area::history), that is the one of a neighbour, of the next
    /// area rather than of the one before it, or begins now.
    #[cold]
    #[inline(never)]
    pub(in crate::space) fn begin_private<M: Machine>(&self, on: On<'_, M>, hint: Hint) {
        let at = hint.spot();
        let area = self.get(on, at);
        if area.history != 0 {
            return;
        }
        let next = self.next(on, at).filter(|next| self.range(on, *next).start == area.end);
        let of_next = next.and_then(|next| {
            let next = self.get(on, next);
            area.passes_on(&next, &next)
        });
        let history = of_next.or_else(|| {
            let before = self.before(on, Some(at))?;
            let before = (self.range(on, before).end == area.start).then(|| self.get(on, before))?;
            before.passes_on(&area, &before)
        });
        let history = history.unwrap_or_else(|| self.new_history());
        self.leaf(on, at.leaf, |l| l.at(at.index).begin(history));
    }

    /// Notes that each area that has anything in `range` has private pages.
    pub fn begin_private_in<M: Machine>(&self, on: On<'_, M>, range: VirtRange) {
        self.each(on, range, |area| {
            if let Some((hint, _)) = self.search(on, area.start) {
                self.begin_private(on, hint);
            }
        });
    }

    /// The last area that ends at or below `va`.
    pub fn last_before<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<Area> {
        Some(self.get(on, self.before(on, self.seek(on, va))?))
    }

    /// Calls `visit` for every area that has anything in `range`, in order.
    pub fn each<M: Machine>(&self, on: On<'_, M>, range: VirtRange, mut visit: impl FnMut(&Area)) {
        let mut at = self.seek(on, range.start);
        while let Some(place) = at {
            let Some(area) = self.get_below(on, place, range.end) else { break };
            visit(&area);
            at = self.next(on, place);
        }
    }

    /// Adds an area, joined with its neighbours where they are alike. If their private pages are of
    /// different histories, it goes to the one before, as in Linux.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; the areas are unchanged then.
    pub fn insert<M: Machine>(&mut self, on: On<'_, M>, mut area: Area) -> Result<(), AreaError> {
        let next = self.seek(on, area.start);
        let there = next.map(|next| self.range(on, next).start);
        if there.is_some_and(|start| start < area.end) {
            return Err(AreaError::Overlap(area.range()));
        }
        // Most neighbours are not joined with it: whole records are read of those that touch it.
        let mut place = None;
        if let Some(before) = self.before(on, next)
            && self.range(on, before).end == area.start
        {
            let left = self.get(on, before);
            if left.joins(&area) {
                (place, area) = (Some(before), left.joined(&area));
            }
        }
        if let Some(next) = next
            && there == Some(area.end)
        {
            let right = self.get(on, next);
            if area.joins(&right) {
                area = area.joined(&right);
                if let Some(before) = place {
                    self.set(on, before, area);
                    self.remove(on, next);
                    return Ok(());
                }
                place = Some(next);
            }
        }
        match place {
            Some(place) => {
                self.set(on, place, area);
                Ok(())
            }
            None => self.add(on, next, area),
        }
    }

    /// Makes `at` a border between areas: splits the area it lies inside of.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; the areas are unchanged then.
    fn cut<M: Machine>(&mut self, on: On<'_, M>, va: u64) -> Result<(), AreaError> {
        let Some(at) = self.seek(on, va) else { return Ok(()) };
        let Some(area) = self.get_below(on, at, va) else { return Ok(()) };
        self.add(on, Some(at), Area { end: va, ..area })?;
        // The record added lies before; this one has moved behind it.
        if let Some(rest) = self.seek(on, va) {
            self.set(on, rest, Area { start: va, offset: area.offset_at(va), ..area });
        }
        Ok(())
    }

    /// Takes all areas out of `range`, calling `gone` for each piece; areas that reach beyond it
    /// are cut.
    ///
    /// # Errors
    ///
    /// [`AreaError`] if cutting needed a frame, or more areas than there may be; the areas are
    /// unchanged then.
    pub fn remove_range<M: Machine>(
        &mut self,
        on: On<'_, M>,
        range: VirtRange,
        mut gone: impl FnMut(&Area),
    ) -> Result<(), AreaError> {
        self.cut_out(on, range)?;
        while let Some(at) = self.seek(on, range.start) {
            let Some(area) = self.get_below(on, at, range.end) else { break };
            gone(&area);
            self.remove(on, at);
        }
        Ok(())
    }

    /// Cuts areas that reach beyond `range` at its ends, so that its content can be removed without
    /// lack of memory. The parts are alike, and [`insert`](Self::insert) at either end of `range`
    /// may join one part with it, not both.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; the areas are unchanged then.
    pub(in crate::space) fn cut_out<M: Machine>(
        &mut self,
        on: On<'_, M>,
        range: VirtRange,
    ) -> Result<(), AreaError> {
        self.cut(on, range.start)?;
        let cut = self.cut(on, range.end);
        if cut.is_err() {
            self.join_around(on, range);
        }
        cut
    }

    /// Gives every area in `range` the flags and the tag that `change` makes of its own; areas that
    /// reach beyond are cut.
    ///
    /// # Errors
    ///
    /// As [`remove_range`](Self::remove_range).
    pub fn change_range<M: Machine>(
        &mut self,
        on: On<'_, M>,
        range: VirtRange,
        change: impl Fn(&mut Area),
    ) -> Result<(), AreaError> {
        // Repeated calls often change no area, and others whole areas: no cuts then.
        let mut first = self.seek(on, range.start);
        let (mut differs, mut reaches_beyond) = (false, false);
        let mut at = first;
        while let Some(place) = at {
            let Some(area) = self.get_below(on, place, range.end) else { break };
            let mut changed = area;
            change(&mut changed);
            differs |= changed != area;
            reaches_beyond |= area.start < range.start || area.end > range.end;
            at = self.next(on, place);
        }
        if !differs {
            return Ok(());
        }
        if reaches_beyond {
            self.cut_out(on, range)?;
            first = self.seek(on, range.start);
        }
        let mut at = first;
        while let Some(place) = at {
            let Some(mut area) = self.get_below(on, place, range.end) else { break };
            change(&mut area);
            self.set(on, place, area);
            at = self.next(on, place);
        }
        self.join_from(on, first, range.end);
        Ok(())
    }

    /// Joins areas that have become alike, from the one before `range` to the one after it.
    pub(in crate::space) fn join_around<M: Machine>(&mut self, on: On<'_, M>, range: VirtRange) {
        self.join_from(on, self.seek(on, range.start), range.end);
    }

    /// Joins areas that have become alike, from the one before `first` to the one that starts at or
    /// above `end`.
    fn join_from<M: Machine>(&mut self, on: On<'_, M>, first: Option<Spot>, end: u64) {
        let Some(mut place) = self.before(on, first).or(first) else { return };
        let mut left = self.get(on, place);
        while left.start < end {
            let Some(next) = self.next(on, place) else { break };
            let right = self.get(on, next);
            if !left.joins(&right) {
                (place, left) = (next, right);
                continue;
            }
            left = left.joined(&right);
            self.set(on, place, left);
            if self.remove(on, next) {
                let Some(moved) = self.seek(on, left.start) else { break };
                place = moved;
            }
        }
    }

    /// Changes the areas that have anything in `range` as `change` does, which leaves their
    /// addresses as they are. None is cut or joined with another.
    pub(in crate::space) fn change_whole<M: Machine>(
        &mut self,
        on: On<'_, M>,
        range: VirtRange,
        change: impl Fn(Area) -> Area,
    ) {
        let mut at = self.seek(on, range.start);
        while let Some(place) = at {
            let Some(area) = self.get_below(on, place, range.end) else { break };
            self.set(on, place, change(area));
            at = self.next(on, place);
        }
    }

    /// Replaces the area that starts at `start` by `area`, which must not reach into its
    /// neighbours.
    pub(in crate::space) fn replace<M: Machine>(&mut self, on: On<'_, M>, start: u64, area: Area) -> bool {
        match self.seek(on, start) {
            Some(at) if self.get(on, at).start == start => {
                self.set(on, at, area);
                true
            }
            _ => false,
        }
    }
}
