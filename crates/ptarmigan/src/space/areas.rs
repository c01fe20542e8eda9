//! The areas of a space, in order of address, in frames of the library's own.
//!
//! Records lie sorted in leaf frames of 127; from the second leaf on, a directory frame lists the
//! leaves in order. So a small process needs one frame, lookup is two binary searches, and fork
//! copies frames. The directory holds 1024 leaves: 130,000 areas if they come in order, 65,000 at
//! the least, which is what Linux allows.
use super::area::{Area, AreaFlags};
use crate::addr::{FRAME_SIZE, Pfn, VirtRange};
use crate::cpu::{MachineId, WrongMachine};
use crate::frames::{AllocFlags, Dirty, End, Frame, Frames, NoFrame, Request, Use, ZoneClass};
use crate::machine::{Machine, On};
use crate::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};
use crate::tlb::TlbRefusal;
use crate::window::{OpenWindow, WindowGuard};
use core::fmt;
use core::num::NonZeroU32;

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
    /// The space is of another machine.
    WrongMachine(WrongMachine),
    /// In the middle of a switch or a flush of this CPU, where what is taken away cannot be
    /// flushed.
    Refused(TlbRefusal),
}

impl fmt::Display for AreaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AreaError::NoFrame(e) => e.fmt(f),
            AreaError::TooMany => write!(f, "too many areas in one address space"),
            AreaError::BadRange(r) => write!(f, "{r:?} is not a range of whole pages of user addresses"),
            AreaError::Overlap(r) => write!(f, "an area lies in {r:?} already"),
            AreaError::NoArea(r) => write!(f, "no area lies in {r:?}"),
            AreaError::WrongMachine(e) => e.fmt(f),
            AreaError::Refused(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for AreaError {}

impl From<NoFrame> for AreaError {
    fn from(e: NoFrame) -> Self {
        AreaError::NoFrame(e)
    }
}

impl From<WrongMachine> for AreaError {
    fn from(e: WrongMachine) -> Self {
        AreaError::WrongMachine(e)
    }
}

impl From<TlbRefusal> for AreaError {
    fn from(e: TlbRefusal) -> Self {
        AreaError::Refused(e)
    }
}

/// The areas of a space, to read them. They lie in frames of the space's machine: on another one
/// there are none.
///
/// Only the calls of [`SpaceMut`](super::SpaceMut) change them:
///
/// ```compile_fail,E0603
/// use ptarmigan::space::areas::Areas; // private
/// ```
///
/// ```compile_fail,E0599
/// use ptarmigan::{format::X86_64, machine::On, space::{Space, SpaceMachine}};
/// fn forget<M: SpaceMachine>(on: On<'_, M>, space: &mut Space<X86_64>) {
///     space.areas().clear(on); // its pages would be mapped without an area
/// }
/// ```
#[derive(Clone, Copy)]
pub struct AreasRef<'a> {
    areas: &'a Areas,
    machine: MachineId,
}

impl<'a> AreasRef<'a> {
    #[inline(always)]
    pub(super) fn new(areas: &'a Areas, machine: MachineId) -> Self {
        AreasRef { areas, machine }
    }

    /// Returns how many areas there are.
    pub fn len(self) -> usize {
        self.areas.len as usize
    }

    /// Returns whether there are none.
    pub fn is_empty(self) -> bool {
        self.areas.len == 0
    }

    /// Returns the number of frames in use for records.
    pub fn frames(self) -> u32 {
        self.areas.frames()
    }

    /// Returns the area that `va` lies in.
    pub fn find<M: Machine>(self, on: On<'_, M>, va: u64) -> Option<Area> {
        self.on(on).ok()?.find(on, va)
    }

    /// Returns the first area that ends above `va`: the one it lies in, or the next.
    pub fn at_or_after<M: Machine>(self, on: On<'_, M>, va: u64) -> Option<Area> {
        self.on(on).ok()?.at_or_after(on, va)
    }

    /// Returns the last area that ends at or below `va`.
    pub fn last_before<M: Machine>(self, on: On<'_, M>, va: u64) -> Option<Area> {
        self.on(on).ok()?.last_before(on, va)
    }

    /// Calls `visit` for every area that has anything in `range`, in order.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if the space is of another machine.
    pub fn each<M: Machine>(
        self,
        on: On<'_, M>,
        range: VirtRange,
        visit: impl FnMut(&Area),
    ) -> Result<(), WrongMachine> {
        self.on(on)?.each(on, range, visit);
        Ok(())
    }

    fn on<M: Machine>(self, on: On<'_, M>) -> Result<&'a Areas, WrongMachine> {
        on.check(self.machine)?;
        Ok(self.areas)
    }
}

/// The areas of one space. They do not know their machine: callers pass the one that they have
/// compared with the space's.
pub(super) struct Areas {
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
pub(super) struct Hint(NonZeroU32);

impl Hint {
    /// The one that was [stored](Self::store) there, if any was.
    #[inline(always)]
    pub fn load(from: &AtomicU32) -> Option<Self> {
        NonZeroU32::new(from.load(Relaxed)).map(Hint)
    }

    /// Leaves it there for later faults.
    #[inline(always)]
    pub fn store(self, to: &AtomicU32) {
        to.store(self.0.get(), Relaxed);
    }

    #[inline(always)]
    fn of(at: Spot) -> Hint {
        Hint(NonZeroU32::MIN | (at.leaf as u32) << 9 | (at.index as u32) << 1)
    }

    #[inline(always)]
    fn spot(self) -> Spot {
        let at = self.0.get();
        Spot { leaf: (at >> 9) as usize, index: (at >> 1 & 0xff) as usize }
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
    tag: u16,
}

impl Record {
    #[inline(always)]
    fn area(&self) -> Area {
        let flags = AreaFlags(self.flags.load(Relaxed));
        let Record { start, end, offset, object, tag, .. } = *self;
        Area { start, end, offset, object, flags, tag }
    }

    /// Makes it one that fork has passed on.
    #[inline(always)]
    fn inherit(&self) {
        let flags = AreaFlags(self.flags.load(Relaxed));
        self.flags.store(flags.inherited().0, Relaxed);
    }

    /// The area's flags, if `va` lies in it.
    #[inline(always)]
    fn flags_around(&self, va: u64) -> Option<AreaFlags> {
        (self.start <= va && va < self.end).then(|| AreaFlags(self.flags.load(Relaxed)))
    }
}

impl From<Area> for Record {
    #[inline(always)]
    fn from(area: Area) -> Self {
        let Area { start, end, offset, object, flags, tag } = area;
        Record { start, end, offset, object, flags: AtomicU16::new(flags.0), tag }
    }
}

#[repr(C)]
struct Leaf {
    n: u32,
    _pad: u32,
    records: [Record; LEAF],
}

impl Leaf {
    /// The record at `index`, which is below the number of places.
    #[inline(always)]
    fn at(&self, index: usize) -> &Record {
        debug_assert!(index < LEAF);
        &self.records[index.min(LEAF - 1)]
    }

    /// The same, to be written.
    #[inline(always)]
    fn at_mut(&mut self, index: usize) -> &mut Record {
        debug_assert!(index < LEAF);
        &mut self.records[index.min(LEAF - 1)]
    }

    /// The records in use.
    #[inline(always)]
    fn used(&self) -> &[Record] {
        &self.records[..(self.n as usize).min(LEAF)]
    }

    /// Moves the records from `from` on, up to the last, to `to`.
    fn shift(&mut self, from: usize, to: usize) {
        let n = self.n as usize - from;
        assert!(from.max(to) + n <= LEAF);
        let first = self.records.as_mut_ptr();
        // SAFETY: both runs lie within the array (checked above); records have no destructor, and
        // each place holds one again afterwards.
        unsafe { core::ptr::copy(first.add(from), first.add(to), n) };
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Leaf>() <= FRAME_SIZE && size_of::<Record>() == 32 && LEAF < 256);

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
        // promises nothing.
        frames.give(unsafe { Frame::<Dirty>::from_raw(frames.machine(), pfn, 0) });
    }

    /// Runs `f` on a leaf.
    #[inline(always)]
    fn leaf<M: Machine, R>(&self, on: On<'_, M>, leaf: usize, f: impl FnOnce(&Leaf) -> R) -> R {
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

    #[inline(always)]
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

    fn get<M: Machine>(&self, on: On<'_, M>, at: Spot) -> Area {
        self.leaf(on, at.leaf, |l| l.at(at.index).area())
    }

    fn set<M: Machine>(&mut self, on: On<'_, M>, at: Spot, area: Area) {
        self.leaf_mut(on, at.leaf, |l| *l.at_mut(at.index) = area.into());
    }

    /// The first record whose end lies above `va`; `None` if there is none.
    fn seek<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<Spot> {
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

    fn next<M: Machine>(&self, on: On<'_, M>, at: Spot) -> Option<Spot> {
        if at.index + 1 < self.leaf(on, at.leaf, |l| l.n as usize) {
            Some(Spot { index: at.index + 1, ..at })
        } else {
            (at.leaf + 1 < self.leaves as usize).then_some(Spot { leaf: at.leaf + 1, index: 0 })
        }
    }

    fn before<M: Machine>(&self, on: On<'_, M>, at: Option<Spot>) -> Option<Spot> {
        let at = at.unwrap_or(Spot { leaf: self.leaves as usize, index: 0 });
        if at.index > 0 {
            return Some(Spot { index: at.index - 1, ..at });
        }
        let leaf = at.leaf.checked_sub(1)?;
        Some(Spot { leaf, index: self.leaf(on, leaf, |l| l.n as usize).checked_sub(1)? })
    }

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
    pub(super) fn search<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<(Hint, AreaFlags)> {
        let at = self.seek(on, va)?;
        let flags = self.leaf(on, at.leaf, |l| l.at(at.index).flags_around(va))?;
        Some((Hint::of(at), flags))
    }

    /// The flags of the area that `va` lies in, if it is where the hint says.
    #[inline(always)]
    pub(super) fn hinted<M: Machine>(
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
        let flags = self.leaf(on, at.leaf, |l| l.used().get(at.index)?.flags_around(va))?;
        Some((hint, flags))
    }

    /// The area that was just found at `hint`.
    #[inline]
    pub(super) fn found<M: Machine>(&self, on: On<'_, M>, hint: Hint) -> Area {
        self.get(on, hint.spot())
    }

    /// Adds `flags` to the area that was just found at `hint`. Others may be doing the same.
    pub(super) fn mark<M: Machine>(&self, on: On<'_, M>, hint: Hint, flags: AreaFlags) {
        let at = hint.spot();
        self.leaf(on, at.leaf, |l| l.at(at.index).flags.fetch_or(flags.0, Relaxed));
    }

    /// The last area that ends at or below `va`.
    pub fn last_before<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<Area> {
        Some(self.get(on, self.before(on, self.seek(on, va))?))
    }

    /// Calls `visit` for every area that has anything in `range`, in order.
    pub fn each<M: Machine>(&self, on: On<'_, M>, range: VirtRange, mut visit: impl FnMut(&Area)) {
        let mut at = self.seek(on, range.start);
        while let Some(place) = at {
            let area = self.get(on, place);
            if area.start >= range.end {
                break;
            }
            visit(&area);
            at = self.next(on, place);
        }
    }

    /// Adds an area, joined with its neighbours where they are alike.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; nothing has changed then.
    pub fn insert<M: Machine>(&mut self, on: On<'_, M>, mut area: Area) -> Result<(), AreaError> {
        let next = self.seek(on, area.start);
        if let Some(next) = next {
            let there = self.get(on, next);
            if there.start < area.end {
                return Err(AreaError::Overlap(area.range()));
            }
            if area.joins(&there) {
                area.end = there.end;
                area.flags = area.flags.with(there.flags);
                if let Some(before) = self.before(on, Some(next)) {
                    let mut left = self.get(on, before);
                    if left.joins(&area) {
                        left.end = area.end;
                        left.flags = left.flags.with(area.flags);
                        self.set(on, before, left);
                        self.remove(on, next);
                        return Ok(());
                    }
                }
                self.set(on, next, area);
                return Ok(());
            }
        }
        if let Some(before) = self.before(on, next) {
            let mut left = self.get(on, before);
            if left.joins(&area) {
                left.end = area.end;
                left.flags = left.flags.with(area.flags);
                self.set(on, before, left);
                return Ok(());
            }
        }
        self.add(on, next, area)
    }

    /// Puts a record before `at` (at the end if `None`).
    fn add<M: Machine>(&mut self, on: On<'_, M>, at: Option<Spot>, area: Area) -> Result<(), AreaError> {
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
            d.copy_within(at.leaf + 1..leaves, at.leaf + 2);
            d[at.leaf + 1] = fresh.0;
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
    fn remove<M: Machine>(&mut self, on: On<'_, M>, at: Spot) {
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
            leaves => self.directory(on, |d| d.copy_within(at.leaf + 1..leaves as usize, at.leaf)),
        }
        self.leaves -= 1;
    }

    /// Makes `at` a border between areas: splits the area it lies inside of.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; nothing has changed then.
    fn cut<M: Machine>(&mut self, on: On<'_, M>, va: u64) -> Result<(), AreaError> {
        let Some(at) = self.seek(on, va) else { return Ok(()) };
        let area = self.get(on, at);
        if area.start >= va {
            return Ok(());
        }
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
    /// [`AreaError`] if cutting needed a frame; then nothing has changed but where areas are cut.
    pub fn remove_range<M: Machine>(
        &mut self,
        on: On<'_, M>,
        range: VirtRange,
        mut gone: impl FnMut(&Area),
    ) -> Result<(), AreaError> {
        self.cut(on, range.start)?;
        self.cut(on, range.end)?;
        while let Some(at) = self.seek(on, range.start) {
            let area = self.get(on, at);
            if area.start >= range.end {
                break;
            }
            gone(&area);
            self.remove(on, at);
        }
        Ok(())
    }

    /// Cuts areas that reach beyond `range` at its ends, so that what lies in it can be removed
    /// without lack of memory. The parts are alike, and [`insert`](Self::insert) at either end of
    /// `range` may join one part with it, not both.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; nothing has changed then.
    pub(super) fn cut_out<M: Machine>(&mut self, on: On<'_, M>, range: VirtRange) -> Result<(), AreaError> {
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
        // Nothing to do is the common case of repeated calls: no cuts then.
        let mut differs = false;
        self.each(on, range, |a| {
            let mut changed = *a;
            change(&mut changed);
            differs |= changed != *a;
        });
        if !differs {
            return Ok(());
        }
        self.cut(on, range.start)?;
        self.cut(on, range.end)?;
        let mut at = self.seek(on, range.start);
        while let Some(place) = at {
            let mut area = self.get(on, place);
            if area.start >= range.end {
                break;
            }
            change(&mut area);
            self.set(on, place, area);
            at = self.next(on, place);
        }
        self.join_around(on, range);
        Ok(())
    }

    /// Joins areas that have become alike, from the one before `range` to the one after it.
    pub(super) fn join_around<M: Machine>(&mut self, on: On<'_, M>, range: VirtRange) {
        let mut at = match self.before(on, self.seek(on, range.start)) {
            Some(before) => Some(before),
            None => self.seek(on, range.start),
        };
        while let Some(place) = at {
            let left = self.get(on, place);
            if left.start >= range.end {
                break;
            }
            let Some(next) = self.next(on, place) else { break };
            let right = self.get(on, next);
            if left.joins(&right) {
                self.remove(on, next);
                self.set(on, place, Area { end: right.end, flags: left.flags.with(right.flags), ..left });
            } else {
                at = Some(next);
            }
        }
    }

    /// Replaces the area that starts at `start` by `area`, which must not reach into its
    /// neighbours.
    pub(super) fn replace<M: Machine>(&mut self, on: On<'_, M>, start: u64, area: Area) -> bool {
        match self.seek(on, start) {
            Some(at) if self.get(on, at).start == start => {
                self.set(on, at, area);
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
                copy.directory(on, |d| d[i] = fresh.0);
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
            for i in 0..n {
                let leaf = self.directory(on, |d| d[i]);
                Self::give(on.frames(), Pfn(leaf));
            }
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
