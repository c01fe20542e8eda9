//! The frames of areas: leaves, and the directory that lists them.
use super::leaf::{LEAF, Leaf, Record, Spot, history};
use super::{AreaError, Areas, MAX_AREAS};
use crate::addr::{FRAME_SIZE, Pfn, VirtRange};
use crate::frames::{AllocFlags, Dirty, End, Frame, Frames, NoFrame, Request, Use, ZoneClass};
use crate::machine::{Machine, On};
use crate::space::area::Area;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crate::window::{OpenWindow, WindowGuard};
use core::mem::swap;

const DIRECTORY: usize = FRAME_SIZE / size_of::<u32>();

/// Records that two neighbouring leaves have together at the most when they become one. Fewer than
/// a leaf has room for, so that the next record does not split it again.
const JOINED: usize = LEAF / 4 * 3;

/// Of the removals from a leaf, every so many look at its neighbours.
const LOOKS: u32 = 16;

// In a full directory of fewer areas than the most, two neighbouring leaves fit into one.
#[cfg(not(loom))]
const _: () = assert!(MAX_AREAS as usize <= DIRECTORY / 2 * (LEAF + 1));

/// Keeps the branch that calls it. Otherwise the compiler reads the directory's entry or the only
/// leaf's by one load of a chosen address: four instructions more on each fault, and the time of
/// the load.
#[cold]
#[inline(always)]
fn rare() {}

impl Areas {
    /// No areas, no frames.
    pub fn new() -> Self {
        Areas { root: Pfn::NONE, leaves: 0, len: 0, histories: AtomicU32::new(0) }
    }

    /// Frames in use for records.
    pub fn frames(&self) -> u32 {
        self.leaves + u32::from(self.leaves > 1)
    }

    fn take<M: Machine>(on: On<'_, M>) -> Result<Pfn, NoFrame> {
        let request = Request {
            node: on.node(),
            order: 0,
            zero: false,
            class: ZoneClass::Low,
            end: End::Low,
            flags: AllocFlags::NORMAL,
        };
        on.frames().take(request).map(|t| t.dirty().into_raw())
    }

    fn give(frames: &Frames, pfn: Pfn) {
        frames.meta(pfn).set_usage(Use::Taken);
        // SAFETY: 1. `take` took it with `into_raw`, and this is where its use ends. 2. `Dirty`
        // makes no promise.
        frames.give(unsafe { Frame::<Dirty>::from_raw(frames.machine(), pfn, 0) });
    }

    /// Runs `f` on a leaf.
    #[inline]
    pub(super) fn leaf<M: Machine, R>(&self, on: On<'_, M>, leaf: usize, f: impl FnOnce(&Leaf) -> R) -> R {
        let guard = on.window().open_low(self.leaf_pfn(on, leaf).addr());
        // SAFETY: the frame is this map's own and was initialised as a leaf when it was taken; the
        // guard is valid for all of it and aligned to the frame; `&self` keeps it from being
        // changed meanwhile.
        f(unsafe { &*guard.base().cast::<Leaf>() })
    }

    /// As [`leaf`](Self::leaf), for faults: most spaces have one leaf alone.
    #[inline]
    pub(super) fn likely_leaf<M: Machine, R>(
        &self,
        on: On<'_, M>,
        leaf: usize,
        f: impl FnOnce(&Leaf) -> R,
    ) -> R {
        let leaf = if self.leaves <= 1 {
            self.root
        } else {
            rare();
            self.leaf_pfn(on, leaf)
        };
        let guard = on.window().open_low(leaf.addr());
        // SAFETY: as in `leaf`.
        f(unsafe { &*guard.base().cast::<Leaf>() })
    }

    fn leaf_mut<M: Machine, R>(&mut self, on: On<'_, M>, leaf: usize, f: impl FnOnce(&mut Leaf) -> R) -> R {
        let guard = on.window().open_low(self.leaf_pfn(on, leaf).addr());
        // SAFETY: as in `leaf`; `&mut self` makes the use exclusive.
        f(unsafe { &mut *guard.base().cast::<Leaf>() })
    }

    #[inline]
    fn leaf_pfn<M: Machine>(&self, on: On<'_, M>, leaf: usize) -> Pfn {
        if self.leaves <= 1 {
            return self.root;
        }
        let guard = on.window().open_low(self.root.addr());
        // SAFETY: with more than one leaf the root is the directory, this map's own frame; `leaf`
        // is below `leaves`, which is at most `DIRECTORY`.
        Pfn(unsafe { guard.base().cast::<u32>().add(leaf).read() })
    }

    /// The directory's first `leaves` entries.
    fn directory<M: Machine, R>(&mut self, on: On<'_, M>, f: impl FnOnce(&mut [u32; DIRECTORY]) -> R) -> R {
        let guard = on.window().open_low(self.root.addr());
        // SAFETY: called with a directory as the root only: this map's own frame, all bytes valid
        // as `u32`.
        f(unsafe { &mut *guard.base().cast::<[u32; DIRECTORY]>() })
    }

    pub(super) fn get<M: Machine>(&self, on: On<'_, M>, at: Spot) -> Area {
        self.leaf(on, at.leaf, |l| l.at(at.index).area())
    }

    /// The area at `at`, if it begins below `end`.
    pub(super) fn get_below<M: Machine>(&self, on: On<'_, M>, at: Spot, end: u64) -> Option<Area> {
        self.leaf(on, at.leaf, |l| {
            let record = l.at(at.index);
            (record.start < end).then(|| record.area())
        })
    }

    /// The addresses of the area at `at`.
    #[inline]
    pub(super) fn range<M: Machine>(&self, on: On<'_, M>, at: Spot) -> VirtRange {
        self.leaf(on, at.leaf, |l| l.at(at.index).range())
    }

    pub(super) fn set<M: Machine>(&mut self, on: On<'_, M>, at: Spot, area: Area) {
        self.leaf_mut(on, at.leaf, |l| *l.at_mut(at.index) = area.into());
    }

    /// The first record whose end lies above `va`; `None` behind the last.
    pub(super) fn seek<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<Spot> {
        if self.len == 0 {
            return None;
        }
        // The last leaf that begins at or below `va` holds it, or the one after that.
        let (mut low, mut high) = (0, self.leaves as usize);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if self.leaf(on, middle, |l| l.records[0].start) <= va { low = middle } else { high = middle }
        }
        let (index, n) = self.leaf(on, low, |l| (l.used().partition_point(|a| a.end <= va), l.n as usize));
        if index < n {
            Some(Spot { leaf: low, index })
        } else {
            (low + 1 < self.leaves as usize).then_some(Spot { leaf: low + 1, index: 0 })
        }
    }

    pub(super) fn next<M: Machine>(&self, on: On<'_, M>, at: Spot) -> Option<Spot> {
        if at.index + 1 < self.leaf(on, at.leaf, |l| l.n as usize) {
            Some(Spot { index: at.index + 1, ..at })
        } else {
            (at.leaf + 1 < self.leaves as usize).then_some(Spot { leaf: at.leaf + 1, index: 0 })
        }
    }

    pub(super) fn before<M: Machine>(&self, on: On<'_, M>, at: Option<Spot>) -> Option<Spot> {
        let at = at.unwrap_or(Spot { leaf: self.leaves as usize, index: 0 });
        if at.index > 0 {
            return Some(Spot { index: at.index - 1, ..at });
        }
        let leaf = at.leaf.checked_sub(1)?;
        Some(Spot { leaf, index: self.leaf(on, leaf, |l| l.n as usize).checked_sub(1)? })
    }

    /// The number of records of a leaf.
    #[inline]
    fn count<M: Machine>(&self, on: On<'_, M>, leaf: usize) -> usize {
        self.leaf(on, leaf, |l| l.n as usize)
    }

    /// Puts a record before `at` (at the end if `None`).
    ///
    /// # Errors
    ///
    /// [`AreaError::TooMany`] and [`AreaError::NoFrame`]; the records are as they were then.
    pub(super) fn add<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: Option<Spot>,
        area: Area,
    ) -> Result<(), AreaError> {
        if self.len >= MAX_AREAS {
            return Err(AreaError::TooMany);
        }
        if self.leaves == 0 {
            self.root = Self::take(on)?;
            self.leaves = 1;
            self.leaf_mut(on, 0, |l| l.n = 0);
        }
        let mut at = self.place(on, at);
        let is_full = self.count(on, at.leaf) == LEAF;
        if is_full {
            at = self.make_room(on, at, area.start)?;
        }
        self.leaf_mut(on, at.leaf, |l| {
            l.shift(at.index, at.index + 1);
            *l.at_mut(at.index) = area.into();
            l.n += 1;
        });
        self.len += 1;
        if is_full {
            // A split may have left few records on either side.
            self.join(on, at.leaf + 1, JOINED);
            if let Some(before) = at.leaf.checked_sub(1) {
                self.join(on, before, JOINED);
            }
        }
        Ok(())
    }

    /// The place of a record that is put before `at`: rather at the end of the leaf before than at
    /// the start of a leaf.
    fn place<M: Machine>(&self, on: On<'_, M>, at: Option<Spot>) -> Spot {
        let leaf = match at {
            Some(Spot { leaf, index: 0 }) if leaf > 0 => leaf - 1,
            Some(at) => return at,
            None => self.leaves as usize - 1,
        };
        Spot { leaf, index: self.count(on, leaf) }
    }

    /// Makes room in the full leaf of `at`, or in the one after it, for the record of an area that
    /// begins at `start`. Returns the place of that record then.
    #[cold]
    #[inline(never)]
    fn make_room<M: Machine>(&mut self, on: On<'_, M>, at: Spot, start: u64) -> Result<Spot, AreaError> {
        let (mut at, leaves) = (at, self.leaves as usize);
        if leaves == DIRECTORY {
            if !(0..leaves).any(|leaf| self.join(on, leaf, LEAF)) {
                debug_assert!(false, "{} records fill {leaves} leaves", self.len);
                return Err(AreaError::TooMany);
            }
            at = self.place(on, self.seek(on, start));
            if self.count(on, at.leaf) < LEAF {
                return Ok(at);
            }
        }
        let next = at.leaf + 1;
        if at.index == LEAF && next < self.leaves as usize && self.count(on, next) < LEAF {
            return Ok(Spot { leaf: next, index: 0 });
        }
        self.split(on, at)
    }

    /// Moves the records of a full leaf from `at` on to a new one; where `at` has come to lie. A
    /// leaf that is filled in order, up or down, so loses no room.
    fn split<M: Machine>(&mut self, on: On<'_, M>, at: Spot) -> Result<Spot, AreaError> {
        let fresh = Self::take(on)?;
        if self.leaves == 1 {
            match Self::take(on) {
                Ok(directory) => {
                    let only = self.root;
                    self.root = directory;
                    self.directory(on, |d| d[0] = only.0);
                }
                Err(e) => {
                    Self::give(on.frames(), fresh);
                    return Err(e.into());
                }
            }
        }
        let leaves = self.leaves as usize;
        self.directory(on, |d| {
            // Those behind move up by one place.
            let mut next = fresh.0;
            for entry in d.iter_mut().take(leaves + 1).skip(at.leaf + 1) {
                swap(entry, &mut next);
            }
        });
        self.leaves += 1;
        self.leaf_mut(on, at.leaf + 1, |l| l.n = 0);
        self.hand_over(on, (at.leaf, at.index), at.leaf + 1);
        Ok(if at.index == LEAF { Spot { leaf: at.leaf + 1, index: 0 } } else { at })
    }

    /// Moves the records of the leaf after `leaf` to it, if both have at most `most` together.
    /// Returns whether they have moved.
    fn join<M: Machine>(&mut self, on: On<'_, M>, leaf: usize, most: usize) -> bool {
        let next = leaf + 1;
        if next >= self.leaves as usize || self.count(on, leaf) + self.count(on, next) > most.min(LEAF) {
            return false;
        }
        self.hand_over(on, (next, 0), leaf);
        self.give_leaf(on, next);
        true
    }

    /// Moves the records of leaf `from` from the index `first` on to the end of the leaf `to`,
    /// which has room for them.
    fn hand_over<M: Machine>(&mut self, on: On<'_, M>, (from, first): (usize, usize), to: usize) {
        let (had, all) = (self.count(on, to), self.count(on, from));
        let moved = all.saturating_sub(first).min(LEAF - had.min(LEAF));
        debug_assert!(from != to && first + moved == all, "the leaf has room for all");
        let (source, target) = (self.leaf_pfn(on, from), self.leaf_pfn(on, to));
        let (source, target) = (on.window().open_low(source.addr()), on.window().open_low(target.addr()));
        // SAFETY: both frames are this map's own leaves, and different; `source` has `first` +
        // `moved` records, and `target` room for as many more; the guards are valid for all of them
        // and aligned to the frame; `&mut self` makes the use exclusive. Records have no
        // destructor.
        unsafe {
            let (source, target) = (source.base().cast::<Leaf>(), target.base().cast::<Leaf>());
            let out = (&raw const (*source).records).cast::<Record>().add(first);
            let place = (&raw mut (*target).records).cast::<Record>().add(had);
            core::ptr::copy_nonoverlapping(out, place, moved);
            (&raw mut (*source).n).write(first as u32);
            (&raw mut (*target).n).write((had + moved) as u32);
        }
    }

    /// Takes a record out. Never allocates. Returns whether records of other leaves have moved.
    pub(super) fn remove<M: Machine>(&mut self, on: On<'_, M>, at: Spot) -> bool {
        let left = self.leaf_mut(on, at.leaf, |l| {
            l.shift(at.index + 1, at.index);
            l.n -= 1;
            l.n
        });
        self.len -= 1;
        if !left.is_multiple_of(LOOKS) {
            return false;
        }
        if left == 0 {
            self.give_leaf(on, at.leaf);
            return true;
        }
        self.join_neighbours(on, at.leaf)
    }

    /// Joins a leaf with one of its neighbours, if they have few records.
    #[cold]
    #[inline(never)]
    fn join_neighbours<M: Machine>(&mut self, on: On<'_, M>, leaf: usize) -> bool {
        self.join(on, leaf, JOINED) || leaf > 0 && self.join(on, leaf - 1, JOINED)
    }

    /// Gives back a leaf without records.
    fn give_leaf<M: Machine>(&mut self, on: On<'_, M>, leaf: usize) {
        Self::give(on.frames(), self.leaf_pfn(on, leaf));
        match self.leaves {
            1 => self.root = Pfn::NONE,
            2 => {
                let other = self.leaf_pfn(on, 1 - leaf);
                Self::give(on.frames(), self.root);
                self.root = other;
            }
            leaves => self.directory(on, |d| {
                // Those behind move down by one place.
                let mut next = Pfn::NONE.0;
                let behind = d.len().saturating_sub(leaves as usize);
                for entry in d.iter_mut().skip(leaf).rev().skip(behind) {
                    swap(entry, &mut next);
                }
            }),
        }
        self.leaves -= 1;
    }

    /// A copy, for fork.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then.
    pub fn copy<M: Machine>(&self, on: On<'_, M>) -> Result<Areas, NoFrame> {
        let mut copy = Areas::new();
        if self.leaves == 0 {
            return Ok(copy);
        }
        let (mut directory, mut last_history) = (Pfn::NONE, 0);
        if self.leaves > 1 {
            directory = Self::take(on)?;
        }
        for i in 0..self.leaves as usize {
            let fresh = match Self::take(on) {
                Ok(fresh) => fresh,
                Err(e) => {
                    copy.drop_leaves(on, i, directory);
                    return Err(e);
                }
            };
            let guard = on.window().open_low(fresh.addr());
            self.leaf(on, i, |l| {
                // Header and the records in use only.
                let bytes = 8 + l.n as usize * size_of::<Record>();
                // SAFETY: `l` is a leaf frame with `n` initialised records; the new frame is ours
                // alone, and the guard is valid for all of it and aligned to the frame.
                let copy = unsafe {
                    core::ptr::copy_nonoverlapping(core::ptr::from_ref(l).cast::<u8>(), guard.base(), bytes);
                    &*guard.base().cast::<Leaf>()
                };
                copy.used().iter().for_each(|record| record.inherit(&mut last_history));
            });
            if directory == Pfn::NONE {
                copy.root = fresh;
            } else {
                copy.root = directory;
                copy.directory(on, |d| {
                    if let Some(entry) = d.get_mut(i) {
                        *entry = fresh.0;
                    }
                });
            }
        }
        copy.leaves = self.leaves;
        copy.len = self.len;
        copy.histories = AtomicU32::new(last_history);
        Ok(copy)
    }

    /// Returns a history that no area of the space has, until there have been as many as
    /// [`Area::history`] has room for.
    pub(super) fn new_history(&self) -> u16 {
        history(self.histories.fetch_add(1, Relaxed))
    }

    /// Gives back the first `n` leaves of an unfinished copy, and its directory.
    fn drop_leaves<M: Machine>(&mut self, on: On<'_, M>, n: usize, directory: Pfn) {
        if directory != Pfn::NONE {
            self.root = directory;
            self.directory(on, |d| {
                for leaf in d.iter().take(n) {
                    Self::give(on.frames(), Pfn(*leaf));
                }
            });
            Self::give(on.frames(), directory);
        } else if n > 0 {
            Self::give(on.frames(), self.root);
        }
    }

    /// Gives all frames back.
    pub fn clear<M: Machine>(&mut self, on: On<'_, M>) {
        for i in 0..self.leaves as usize {
            Self::give(on.frames(), self.leaf_pfn(on, i));
        }
        if self.leaves > 1 {
            Self::give(on.frames(), self.root);
        }
        *self = Areas::new();
    }
}
