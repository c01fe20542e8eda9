//! A leaf frame and its records, and where a record is.
use crate::addr::{FRAME_SIZE, VirtRange};
use crate::space::area::{Area, AreaFlags};
use crate::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};
use core::num::NonZeroU32;

/// Records of a leaf frame.
pub(super) const LEAF: usize = (FRAME_SIZE - 8) / size_of::<Record>();

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) leaf: usize,
    pub(super) index: usize,
}

/// Where an area was found: good for finding it again quickly, and harmless when it has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::space) struct Hint(NonZeroU32);

impl Hint {
    /// The one that was [stored](Self::store) there, if any was.
    #[inline]
    pub fn load(from: &AtomicU32) -> Option<Self> {
        NonZeroU32::new(from.load(Relaxed)).map(Hint)
    }

    /// Leaves it there for later faults.
    #[inline]
    pub fn store(self, to: &AtomicU32) {
        to.store(self.0.get(), Relaxed);
    }

    #[inline]
    pub(super) fn of(at: Spot) -> Hint {
        Hint(NonZeroU32::MIN | (at.leaf as u32) << 9 | (at.index as u32) << 1)
    }

    #[inline]
    pub(super) fn spot(self) -> Spot {
        let at = self.0.get();
        Spot { leaf: (at >> 9) as usize, index: (at >> 1 & 0xff) as usize }
    }
}

/// The bits of a history in the lower half of an offset, which is one of whole frames.
const HISTORY: u32 = FRAME_SIZE as u32 - 1;

/// Returns the history number `n` of a space.
pub(super) fn history(n: u32) -> u16 {
    (1 + n % HISTORY) as u16
}

/// An area as it is kept. The flags and the history are changed by shared faults too: these only
/// ever add a flag, and give an area without a history one.
#[repr(C)]
pub(super) struct Record {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The lower half of the offset, and the history.
    offset_low: AtomicU32,
    offset_high: u32,
    object: u32,
    pub(super) flags: AtomicU16,
    tag: u16,
}

impl Record {
    #[inline]
    pub(super) fn area(&self) -> Area {
        let flags = AreaFlags(self.flags.load(Relaxed));
        let Record { start, end, object, tag, .. } = *self;
        let low = self.offset_low.load(Relaxed);
        let (offset, history) = (self.offset(low), (low & HISTORY) as u16);
        Area { start, end, offset, object, flags, tag, history }
    }

    /// The offset whose lower half is in `low`.
    #[inline]
    fn offset(&self, low: u32) -> u64 {
        u64::from(self.offset_high) << 32 | u64::from(low & !HISTORY)
    }

    /// The object, and where `va` is in it.
    #[inline]
    pub(super) fn object_at(&self, va: u64) -> (u32, u64) {
        let offset = self.offset(self.offset_low.load(Relaxed));
        (self.object, offset.wrapping_add(va.wrapping_sub(self.start)))
    }

    /// Its addresses.
    #[inline]
    pub(super) fn range(&self) -> VirtRange {
        VirtRange::ordered(self.start, self.end)
    }

    /// Makes it one that fork has passed on. If it has private pages, these begin a history of
    /// their own: the one after `last`, which it becomes.
    #[inline]
    pub(super) fn inherit(&self, last: &mut u32) {
        let flags = AreaFlags(self.flags.load(Relaxed));
        if flags == flags.without(AreaFlags::PRIVATE) {
            // It has no history either.
            return;
        }
        let flags = flags.inherited();
        self.flags.store(flags.0, Relaxed);
        let mut own = 0;
        if flags.has(AreaFlags::PRIVATE_PAGES) {
            *last = if *last < HISTORY { *last + 1 } else { 1 };
            own = *last;
        }
        let low = self.offset_low.load(Relaxed);
        self.offset_low.store(low & !HISTORY | own, Relaxed);
    }

    /// Begins the history `own`, unless it has one, and notes that it has private pages.
    #[inline]
    pub(super) fn begin(&self, own: u16) {
        let low = self.offset_low.load(Relaxed);
        if low & HISTORY == 0 {
            // Another fault may be faster: then that one's history stays.
            let begun = low | u32::from(own) & HISTORY;
            let _ = self.offset_low.compare_exchange(low, begun, Relaxed, Relaxed);
        }
        self.flags.fetch_or(AreaFlags::PRIVATE_PAGES.0, Relaxed);
    }

    /// The area's flags, if `va` lies in it.
    #[inline]
    pub(super) fn flags_around(&self, va: u64) -> Option<AreaFlags> {
        (self.start <= va && va < self.end).then(|| AreaFlags(self.flags.load(Relaxed)))
    }
}

impl From<Area> for Record {
    #[inline]
    fn from(area: Area) -> Self {
        let Area { start, end, offset, object, flags, tag, history } = area;
        let low = offset as u32 & !HISTORY | u32::from(history) & HISTORY;
        let (offset_low, offset_high) = (AtomicU32::new(low), (offset >> 32) as u32);
        Record { start, end, offset_low, offset_high, object, flags: AtomicU16::new(flags.0), tag }
    }
}

#[repr(C)]
pub(super) struct Leaf {
    pub(super) n: u32,
    _pad: u32,
    pub(super) records: [Record; LEAF],
}

impl Leaf {
    /// The record at `index`, which is below the number of places.
    #[inline]
    pub(super) fn at(&self, index: usize) -> &Record {
        debug_assert!(index < LEAF);
        &self.records[index.min(LEAF - 1)]
    }

    /// The same, to be written.
    #[inline]
    pub(super) fn at_mut(&mut self, index: usize) -> &mut Record {
        debug_assert!(index < LEAF);
        &mut self.records[index.min(LEAF - 1)]
    }

    /// The records in use.
    #[inline]
    pub(super) fn used(&self) -> &[Record] {
        &self.records[..(self.n as usize).min(LEAF)]
    }

    /// Moves the records from `from` on, up to the last, to `to`. Both places are in the leaf.
    pub(super) fn shift(&mut self, from: usize, to: usize) {
        let n = (self.n as usize).saturating_sub(from);
        let room = LEAF.saturating_sub(from.max(to));
        debug_assert!(from <= self.n as usize && n <= room);
        let n = n.min(room);
        if n == 0 {
            return;
        }
        let first = self.records.as_mut_ptr();
        // SAFETY: both runs lie within the array: they are not empty, and `n` is at most the places
        // from the later of them on. Records have no destructor, and each place holds one again
        // afterwards.
        unsafe { core::ptr::copy(first.add(from), first.add(to), n) };
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Leaf>() <= FRAME_SIZE && size_of::<Record>() == 32 && LEAF < 256);
