//! The frames of areas: leaves, and the directory that lists them.
use super::leaf::{LEAF, Leaf, Record, Spot};
use super::{AreaError, Areas};
use crate::addr::{FRAME_SIZE, Pfn};
use crate::frames::{AllocFlags, Dirty, End, Frame, Frames, NoFrame, Request, Use, ZoneClass};
use crate::machine::{Machine, On};
use crate::space::area::Area;
use crate::window::{OpenWindow, WindowGuard};
use core::mem::swap;

const DIRECTORY: usize = FRAME_SIZE / size_of::<u32>();

impl Areas {
    /// No areas, no frames.
    pub const fn new() -> Self {
        Areas { root: Pfn::NONE, leaves: 0, len: 0 }
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

    /// Puts a record before `at` (at the end if `None`).
    pub(super) fn add<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: Option<Spot>,
        area: Area,
    ) -> Result<(), AreaError> {
        if self.leaves == 0 {
            self.root = Self::take(on)?;
            self.leaves = 1;
            self.leaf_mut(on, 0, |l| l.n = 0);
        }
        let mut at = match at {
            // Rather at the end of the leaf before than at the start of this one.
            Some(Spot { leaf, index: 0 }) if leaf > 0 => {
                Spot { leaf: leaf - 1, index: self.leaf(on, leaf - 1, |l| l.n as usize) }
            }
            Some(at) => at,
            None => {
                let leaf = self.leaves as usize - 1;
                Spot { leaf, index: self.leaf(on, leaf, |l| l.n as usize) }
            }
        };
        if self.leaf(on, at.leaf, |l| l.n as usize) == LEAF {
            at = self.split(on, at)?;
        }
        self.leaf_mut(on, at.leaf, |l| {
            l.shift(at.index, at.index + 1);
            *l.at_mut(at.index) = area.into();
            l.n += 1;
        });
        self.len += 1;
        Ok(())
    }

    /// Moves the upper half of a full leaf to a new one; where `at` has come to lie.
    fn split<M: Machine>(&mut self, on: On<'_, M>, at: Spot) -> Result<Spot, AreaError> {
        if self.leaves as usize == DIRECTORY {
            return Err(AreaError::TooMany);
        }
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
        // A space that grows upwards fills leaves in order: then the new one starts empty.
        let keep = if at.index == LEAF && at.leaf + 2 == self.leaves as usize { LEAF } else { LEAF / 2 };
        let moved = LEAF - keep;
        let (lower, upper) = (self.leaf_pfn(on, at.leaf), self.leaf_pfn(on, at.leaf + 1));
        let (from, to) = (on.window().open_low(lower.addr()), on.window().open_low(upper.addr()));
        // SAFETY: both frames are this map's own and different; `lower` was initialised as a leaf,
        // `upper` is as large and becomes one here; the guards are valid for all of them and
        // aligned to the frame; `&mut self` makes the use exclusive. Records have no destructor.
        unsafe {
            let (from, to) = (from.base().cast::<Leaf>(), to.base().cast::<Leaf>());
            let first = (&raw const (*from).records).cast::<Record>().add(keep);
            core::ptr::copy_nonoverlapping(first, (&raw mut (*to).records).cast::<Record>(), moved);
            (&raw mut (*from).n).write(keep as u32);
            (&raw mut (*to).n).write(moved as u32);
        }
        Ok(if at.index > keep || keep == LEAF {
            Spot { leaf: at.leaf + 1, index: at.index - keep }
        } else {
            at
        })
    }

    /// Takes a record out. Never allocates.
    pub(super) fn remove<M: Machine>(&mut self, on: On<'_, M>, at: Spot) {
        let left = self.leaf_mut(on, at.leaf, |l| {
            l.shift(at.index + 1, at.index);
            l.n -= 1;
            l.n
        });
        self.len -= 1;
        if left > 0 {
            return;
        }
        Self::give(on.frames(), self.leaf_pfn(on, at.leaf));
        match self.leaves {
            1 => self.root = Pfn::NONE,
            2 => {
                let other = self.leaf_pfn(on, 1 - at.leaf);
                Self::give(on.frames(), self.root);
                self.root = other;
            }
            leaves => self.directory(on, |d| {
                // Those behind move down by one place.
                let mut next = Pfn::NONE.0;
                let behind = d.len().saturating_sub(leaves as usize);
                for entry in d.iter_mut().skip(at.leaf).rev().skip(behind) {
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
        let mut directory = Pfn::NONE;
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
                copy.used().iter().for_each(Record::inherit);
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
        Ok(copy)
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
