//! The areas of a space, in order of address, in frames of the library's own.
//!
//! Records lie sorted in leaf frames of 127; from the second leaf on, a directory frame lists the leaves in order.
//! So a small process needs one frame, lookup is two binary searches, and fork copies frames. The directory holds
//! 1024 leaves: 130,000 areas if they come in order, 65,000 at the least, which is what Linux allows.
use super::area::{Area, AreaFlags};
use crate::addr::{FRAME_SIZE, Pfn, VirtRange};
use crate::cpu::Pinned;
use crate::frames::{AllocFlags, Dirty, End, Frame, Frames, NoFrame, Request, Use, ZoneClass};
use crate::sync::atomic::{AtomicU16, Ordering::Relaxed};
use crate::table::Machine;
use crate::window::{Window, WindowGuard};
use core::fmt;

const LEAF: usize = (FRAME_SIZE - 8) / size_of::<Record>();
const DIRECTORY: usize = FRAME_SIZE / size_of::<u32>();

/// Why areas could not be changed; they are as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AreaError {
    /// A frame was needed for records and there was none.
    NoFrame(NoFrame),
    /// There are too many areas: 65,000 fit in any order.
    TooMany,
    /// The range is empty, or not made of whole pages of user addresses.
    BadRange(VirtRange),
    /// An area lies there already.
    Overlap(VirtRange),
    /// There is no area there.
    NoArea(VirtRange),
}

impl fmt::Display for AreaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AreaError::NoFrame(e) => e.fmt(f),
            AreaError::TooMany => write!(f, "too many areas in one address space"),
            AreaError::BadRange(r) => write!(f, "{r:?} is not a range of whole pages of user addresses"),
            AreaError::Overlap(r) => write!(f, "an area lies in {r:?} already"),
            AreaError::NoArea(r) => write!(f, "no area lies in {r:?}"),
        }
    }
}

impl core::error::Error for AreaError {}

impl From<NoFrame> for AreaError {
    fn from(e: NoFrame) -> Self {
        AreaError::NoFrame(e)
    }
}

/// The areas of one space.
pub struct Areas {
    /// The only leaf, or the directory.
    root: Pfn,
    leaves: u32,
    len: u32,
}

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    leaf: usize,
    index: usize,
}

/// Where an area was found: good for finding it again quickly, and harmless when it has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hint(pub u32);

impl Hint {
    fn of(at: Spot) -> Hint {
        Hint(((at.leaf as u32) << 8 | at.index as u32) + 1)
    }

    fn spot(self) -> Option<Spot> {
        let at = self.0.checked_sub(1)?;
        Some(Spot { leaf: (at >> 8) as usize, index: (at & 0xff) as usize })
    }
}

/// An area as it is kept. The flags are changed by shared faults too: these only ever add one.
#[repr(C)]
struct Record {
    start: u64,
    end: u64,
    offset: u64,
    object: u32,
    flags: AtomicU16,
    _pad: u16,
}

impl Record {
    #[inline(always)]
    fn area(&self) -> Area {
        let flags = AreaFlags(self.flags.load(Relaxed));
        Area { start: self.start, end: self.end, offset: self.offset, object: self.object, flags }
    }
}

impl From<Area> for Record {
    #[inline(always)]
    fn from(area: Area) -> Self {
        let Area { start, end, offset, object, flags } = area;
        Record { start, end, offset, object, flags: AtomicU16::new(flags.0), _pad: 0 }
    }
}

#[repr(C)]
struct Leaf {
    n: u32,
    _pad: u32,
    records: [Record; LEAF],
}

impl Leaf {
    /// Moves the records from `from` on, up to the last, to `to`.
    fn shift(&mut self, from: usize, to: usize) {
        let n = self.n as usize - from;
        assert!(from.max(to) + n <= LEAF);
        let first = self.records.as_mut_ptr();
        // SAFETY: both runs lie within the array (checked above); records have no destructor, and each place holds one
        // again afterwards.
        unsafe { core::ptr::copy(first.add(from), first.add(to), n) };
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Leaf>() <= FRAME_SIZE && size_of::<Record>() == 32 && LEAF < 256);

impl Default for Areas {
    fn default() -> Self {
        Self::new()
    }
}

impl Areas {
    /// No areas, no frames.
    pub const fn new() -> Self {
        Areas { root: Pfn::NONE, leaves: 0, len: 0 }
    }

    /// How many areas there are.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Frames in use for records.
    pub fn frames(&self) -> u32 {
        self.leaves + u32::from(self.leaves > 1)
    }

    fn take<M: Machine>(m: &M, pin: &Pinned<'_>) -> Result<Pfn, NoFrame> {
        let request = Request {
            node: pin.node(),
            order: 0,
            zero: false,
            class: ZoneClass::Low,
            end: End::Low,
            flags: AllocFlags::NORMAL,
        };
        m.frames().take(request).map(|t| t.dirty().into_raw())
    }

    fn give(frames: &Frames, pfn: Pfn) {
        frames.meta(pfn).set_usage(Use::Taken);
        // SAFETY: 1. `take` took it with `into_raw`, and this is where its use ends. 2. `Dirty` promises nothing.
        frames.give(unsafe { Frame::<Dirty>::from_raw(pfn, 0) });
    }

    /// Runs `f` on a leaf.
    #[inline(always)]
    fn leaf<M: Machine, R>(&self, m: &M, leaf: usize, f: impl FnOnce(&Leaf) -> R) -> R {
        let guard = m.window().map(self.leaf_pfn(m, leaf).addr());
        // SAFETY: the frame is this map's own and was initialised as a leaf when it was taken; the guard is valid
        // for all of it and aligned to the frame; `&self` keeps it from being changed meanwhile.
        f(unsafe { guard.base().cast::<Leaf>().as_ref() })
    }

    fn leaf_mut<M: Machine, R>(&mut self, m: &M, leaf: usize, f: impl FnOnce(&mut Leaf) -> R) -> R {
        let guard = m.window().map(self.leaf_pfn(m, leaf).addr());
        // SAFETY: as in `leaf`; `&mut self` makes the use exclusive.
        f(unsafe { guard.base().cast::<Leaf>().as_mut() })
    }

    #[inline(always)]
    fn leaf_pfn<M: Machine>(&self, m: &M, leaf: usize) -> Pfn {
        if self.leaves <= 1 {
            return self.root;
        }
        let guard = m.window().map(self.root.addr());
        // SAFETY: with more than one leaf the root is the directory, this map's own frame; `leaf` is below
        // `leaves`, which is at most `DIRECTORY`.
        Pfn(unsafe { guard.base().cast::<u32>().add(leaf).read() })
    }

    /// The directory's first `leaves` entries.
    fn directory<M: Machine, R>(&mut self, m: &M, f: impl FnOnce(&mut [u32; DIRECTORY]) -> R) -> R {
        let guard = m.window().map(self.root.addr());
        // SAFETY: called with a directory as the root only: this map's own frame, all bytes valid as `u32`.
        f(unsafe { guard.base().cast::<[u32; DIRECTORY]>().as_mut() })
    }

    fn get<M: Machine>(&self, m: &M, at: Spot) -> Area {
        self.leaf(m, at.leaf, |l| l.records[at.index].area())
    }

    fn set<M: Machine>(&mut self, m: &M, at: Spot, area: Area) {
        self.leaf_mut(m, at.leaf, |l| l.records[at.index] = area.into());
    }

    /// The first record whose end lies above `va`; `None` if there is none.
    fn seek<M: Machine>(&self, m: &M, va: u64) -> Option<Spot> {
        if self.len == 0 {
            return None;
        }
        // The last leaf that begins at or below `va` holds it, or the one after that.
        let (mut low, mut high) = (0, self.leaves as usize);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if self.leaf(m, middle, |l| l.records[0].start) <= va { low = middle } else { high = middle }
        }
        let index = self.leaf(m, low, |l| l.records[..l.n as usize].partition_point(|a| a.end <= va));
        if index < self.leaf(m, low, |l| l.n as usize) {
            Some(Spot { leaf: low, index })
        } else {
            (low + 1 < self.leaves as usize).then_some(Spot { leaf: low + 1, index: 0 })
        }
    }

    fn next<M: Machine>(&self, m: &M, at: Spot) -> Option<Spot> {
        if at.index + 1 < self.leaf(m, at.leaf, |l| l.n as usize) {
            Some(Spot { index: at.index + 1, ..at })
        } else {
            (at.leaf + 1 < self.leaves as usize).then_some(Spot { leaf: at.leaf + 1, index: 0 })
        }
    }

    fn before<M: Machine>(&self, m: &M, at: Option<Spot>) -> Option<Spot> {
        let at = at.unwrap_or(Spot { leaf: self.leaves as usize, index: 0 });
        if at.index > 0 {
            return Some(Spot { index: at.index - 1, ..at });
        }
        let leaf = at.leaf.checked_sub(1)?;
        Some(Spot { leaf, index: self.leaf(m, leaf, |l| l.n as usize).checked_sub(1)? })
    }

    /// The area that `va` lies in.
    pub fn find<M: Machine>(&self, m: &M, va: u64) -> Option<Area> {
        let area = self.get(m, self.seek(m, va)?);
        (area.start <= va).then_some(area)
    }

    /// The first area that ends above `va`: the one it lies in, or the next.
    pub fn at_or_after<M: Machine>(&self, m: &M, va: u64) -> Option<Area> {
        Some(self.get(m, self.seek(m, va)?))
    }

    /// As [`at_or_after`](Self::at_or_after), with the place where it was found.
    pub(super) fn search<M: Machine>(&self, m: &M, va: u64) -> Option<(Hint, Area)> {
        let at = self.seek(m, va)?;
        Some((Hint::of(at), self.get(m, at)))
    }

    /// The area that `va` lies in, if it is where the hint says.
    #[inline(always)]
    pub(super) fn hinted<M: Machine>(&self, m: &M, hint: Hint, va: u64) -> Option<Area> {
        let at = hint.spot()?;
        if at.leaf >= self.leaves as usize {
            return None;
        }
        self.leaf(m, at.leaf, |l| {
            let record = l.records[..l.n as usize].get(at.index)?;
            (record.start <= va && va < record.end).then(|| record.area())
        })
    }

    /// Adds `flags` to the area that was just found at `hint`. Others may be doing the same.
    pub(super) fn mark<M: Machine>(&self, m: &M, hint: Hint, flags: AreaFlags) {
        if let Some(at) = hint.spot() {
            self.leaf(m, at.leaf, |l| l.records[at.index].flags.fetch_or(flags.0, Relaxed));
        }
    }

    /// The last area that ends at or below `va`.
    pub fn last_before<M: Machine>(&self, m: &M, va: u64) -> Option<Area> {
        Some(self.get(m, self.before(m, self.seek(m, va))?))
    }

    /// Calls `visit` for every area that has anything in `range`, in order.
    pub fn each<M: Machine>(&self, m: &M, range: VirtRange, mut visit: impl FnMut(&Area)) {
        let mut at = self.seek(m, range.start);
        while let Some(place) = at {
            let area = self.get(m, place);
            if area.start >= range.end {
                break;
            }
            visit(&area);
            at = self.next(m, place);
        }
    }

    /// Adds an area, joined with its neighbours where they are alike.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; nothing has changed then.
    pub fn insert<M: Machine>(&mut self, m: &M, pin: &Pinned<'_>, mut area: Area) -> Result<(), AreaError> {
        let next = self.seek(m, area.start);
        if let Some(next) = next {
            let there = self.get(m, next);
            if there.start < area.end {
                return Err(AreaError::Overlap(area.range()));
            }
            if area.joins(&there) {
                area.end = there.end;
                area.flags = area.flags.with(there.flags);
                if let Some(before) = self.before(m, Some(next)) {
                    let mut left = self.get(m, before);
                    if left.joins(&area) {
                        left.end = area.end;
                        left.flags = left.flags.with(area.flags);
                        self.set(m, before, left);
                        self.remove(m, next);
                        return Ok(());
                    }
                }
                self.set(m, next, area);
                return Ok(());
            }
        }
        if let Some(before) = self.before(m, next) {
            let mut left = self.get(m, before);
            if left.joins(&area) {
                left.end = area.end;
                left.flags = left.flags.with(area.flags);
                self.set(m, before, left);
                return Ok(());
            }
        }
        self.add(m, pin, next, area)
    }

    /// Puts a record before `at` (at the end if `None`).
    fn add<M: Machine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        at: Option<Spot>,
        area: Area,
    ) -> Result<(), AreaError> {
        if self.leaves == 0 {
            self.root = Self::take(m, pin)?;
            self.leaves = 1;
            self.leaf_mut(m, 0, |l| l.n = 0);
        }
        let mut at = match at {
            // Rather at the end of the leaf before than at the start of this one.
            Some(Spot { leaf, index: 0 }) if leaf > 0 => {
                Spot { leaf: leaf - 1, index: self.leaf(m, leaf - 1, |l| l.n as usize) }
            }
            Some(at) => at,
            None => {
                let leaf = self.leaves as usize - 1;
                Spot { leaf, index: self.leaf(m, leaf, |l| l.n as usize) }
            }
        };
        if self.leaf(m, at.leaf, |l| l.n as usize) == LEAF {
            at = self.split(m, pin, at)?;
        }
        self.leaf_mut(m, at.leaf, |l| {
            l.shift(at.index, at.index + 1);
            l.records[at.index] = area.into();
            l.n += 1;
        });
        self.len += 1;
        Ok(())
    }

    /// Moves the upper half of a full leaf to a new one; where `at` has come to lie.
    fn split<M: Machine>(&mut self, m: &M, pin: &Pinned<'_>, at: Spot) -> Result<Spot, AreaError> {
        if self.leaves as usize == DIRECTORY {
            return Err(AreaError::TooMany);
        }
        let fresh = Self::take(m, pin)?;
        if self.leaves == 1 {
            match Self::take(m, pin) {
                Ok(directory) => {
                    let only = self.root;
                    self.root = directory;
                    self.directory(m, |d| d[0] = only.0);
                }
                Err(e) => {
                    Self::give(m.frames(), fresh);
                    return Err(e.into());
                }
            }
        }
        let leaves = self.leaves as usize;
        self.directory(m, |d| {
            d.copy_within(at.leaf + 1..leaves, at.leaf + 2);
            d[at.leaf + 1] = fresh.0;
        });
        self.leaves += 1;
        // A space that grows upwards fills leaves in order: then the new one starts empty.
        let keep = if at.index == LEAF && at.leaf + 2 == self.leaves as usize { LEAF } else { LEAF / 2 };
        let mut upper = [Area::NONE; LEAF];
        let moved = LEAF - keep;
        self.leaf_mut(m, at.leaf, |l| {
            for (copy, record) in upper.iter_mut().zip(&l.records[keep..]) {
                *copy = record.area();
            }
            l.n = keep as u32;
        });
        self.leaf_mut(m, at.leaf + 1, |l| {
            for (record, area) in l.records.iter_mut().zip(&upper[..moved]) {
                *record = (*area).into();
            }
            l.n = moved as u32;
        });
        Ok(if at.index > keep || keep == LEAF {
            Spot { leaf: at.leaf + 1, index: at.index - keep }
        } else {
            at
        })
    }

    /// Takes a record out. Never allocates.
    fn remove<M: Machine>(&mut self, m: &M, at: Spot) {
        let left = self.leaf_mut(m, at.leaf, |l| {
            l.shift(at.index + 1, at.index);
            l.n -= 1;
            l.n
        });
        self.len -= 1;
        if left > 0 {
            return;
        }
        Self::give(m.frames(), self.leaf_pfn(m, at.leaf));
        match self.leaves {
            1 => self.root = Pfn::NONE,
            2 => {
                let other = self.leaf_pfn(m, 1 - at.leaf);
                Self::give(m.frames(), self.root);
                self.root = other;
            }
            leaves => self.directory(m, |d| d.copy_within(at.leaf + 1..leaves as usize, at.leaf)),
        }
        self.leaves -= 1;
    }

    /// Makes `at` a border between areas: splits the area it lies inside of.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; nothing has changed then.
    fn cut<M: Machine>(&mut self, m: &M, pin: &Pinned<'_>, va: u64) -> Result<(), AreaError> {
        let Some(at) = self.seek(m, va) else { return Ok(()) };
        let area = self.get(m, at);
        if area.start >= va {
            return Ok(());
        }
        self.add(m, pin, Some(at), Area { end: va, ..area })?;
        // The record added lies before; this one has moved behind it.
        if let Some(rest) = self.seek(m, va) {
            self.set(m, rest, Area { start: va, offset: area.offset_at(va), ..area });
        }
        Ok(())
    }

    /// Takes all areas out of `range`, calling `gone` for each piece; areas that reach beyond it are cut.
    ///
    /// # Errors
    ///
    /// [`AreaError`] if cutting needed a frame; then nothing has changed but where areas are cut.
    pub fn remove_range<M: Machine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        range: VirtRange,
        mut gone: impl FnMut(&Area),
    ) -> Result<(), AreaError> {
        self.cut(m, pin, range.start)?;
        self.cut(m, pin, range.end)?;
        while let Some(at) = self.seek(m, range.start) {
            let area = self.get(m, at);
            if area.start >= range.end {
                break;
            }
            gone(&area);
            self.remove(m, at);
        }
        Ok(())
    }

    /// Gives every area in `range` the flags that `change` makes of its own; areas that reach beyond are cut.
    ///
    /// # Errors
    ///
    /// As [`remove_range`](Self::remove_range).
    pub fn change_range<M: Machine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        range: VirtRange,
        mut change: impl FnMut(&Area) -> super::AreaFlags,
    ) -> Result<(), AreaError> {
        // Nothing to do is the common case of repeated calls: no cuts then.
        let mut differs = false;
        self.each(m, range, |a| differs |= change(a) != a.flags);
        if !differs {
            return Ok(());
        }
        self.cut(m, pin, range.start)?;
        self.cut(m, pin, range.end)?;
        let mut at = self.seek(m, range.start);
        while let Some(place) = at {
            let mut area = self.get(m, place);
            if area.start >= range.end {
                break;
            }
            area.flags = change(&area);
            self.set(m, place, area);
            at = self.next(m, place);
        }
        self.join_around(m, range);
        Ok(())
    }

    /// Joins areas that have become alike, from the one before `range` to the one after it.
    fn join_around<M: Machine>(&mut self, m: &M, range: VirtRange) {
        let mut at = match self.before(m, self.seek(m, range.start)) {
            Some(before) => Some(before),
            None => self.seek(m, range.start),
        };
        while let Some(place) = at {
            let left = self.get(m, place);
            if left.start >= range.end {
                break;
            }
            let Some(next) = self.next(m, place) else { break };
            let right = self.get(m, next);
            if left.joins(&right) {
                self.remove(m, next);
                self.set(m, place, Area { end: right.end, flags: left.flags.with(right.flags), ..left });
            } else {
                at = Some(next);
            }
        }
    }

    /// Replaces the area that starts at `start` by `area`, which must not reach into its neighbours.
    pub(super) fn replace<M: Machine>(&mut self, m: &M, start: u64, area: Area) -> bool {
        match self.seek(m, start) {
            Some(at) if self.get(m, at).start == start => {
                self.set(m, at, area);
                true
            }
            _ => false,
        }
    }

    /// A copy, for fork.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; nothing has been taken then.
    pub fn copy<M: Machine>(&self, m: &M, pin: &Pinned<'_>) -> Result<Areas, NoFrame> {
        let mut copy = Areas::new();
        if self.leaves == 0 {
            return Ok(copy);
        }
        let mut directory = Pfn::NONE;
        if self.leaves > 1 {
            directory = Self::take(m, pin)?;
        }
        for i in 0..self.leaves as usize {
            let fresh = match Self::take(m, pin) {
                Ok(fresh) => fresh,
                Err(e) => {
                    copy.drop_leaves(m, i, directory);
                    return Err(e);
                }
            };
            let guard = m.window().map(fresh.addr());
            self.leaf(m, i, |l| {
                // Header and the records in use only.
                let bytes = 8 + l.n as usize * size_of::<Record>();
                // SAFETY: `l` is a leaf frame with `n` initialised records; the new frame is ours alone, and the
                // guard is valid for all of it.
                unsafe {
                    core::ptr::copy_nonoverlapping(
                        core::ptr::from_ref(l).cast::<u8>(),
                        guard.base().as_ptr(),
                        bytes,
                    )
                }
            });
            if directory == Pfn::NONE {
                copy.root = fresh;
            } else {
                copy.root = directory;
                copy.directory(m, |d| d[i] = fresh.0);
            }
        }
        copy.leaves = self.leaves;
        copy.len = self.len;
        Ok(copy)
    }

    /// Gives back the first `n` leaves of an unfinished copy, and its directory.
    fn drop_leaves<M: Machine>(&mut self, m: &M, n: usize, directory: Pfn) {
        if directory != Pfn::NONE {
            self.root = directory;
            for i in 0..n {
                let leaf = self.directory(m, |d| d[i]);
                Self::give(m.frames(), Pfn(leaf));
            }
            Self::give(m.frames(), directory);
        } else if n > 0 {
            Self::give(m.frames(), self.root);
        }
    }

    /// Gives all frames back.
    pub fn clear<M: Machine>(&mut self, m: &M) {
        for i in 0..self.leaves as usize {
            Self::give(m.frames(), self.leaf_pfn(m, i));
        }
        if self.leaves > 1 {
            Self::give(m.frames(), self.root);
        }
        *self = Areas::new();
    }
}
