//! Physical and virtual addresses, frame numbers, page sizes.
//!
//! Addresses are always 64 bits wide, whatever the host's pointers are: a 32-bit kernel with PAE
//! has 36-bit and wider physical addresses, and a 64-bit emulator may build tables for any machine.
use core::fmt;

/// The binary logarithm of [`FRAME_SIZE`].
pub const FRAME_SHIFT: u32 = 12;
/// Bytes in a frame, the unit in which physical memory is handed out: 4096.
pub const FRAME_SIZE: usize = 1 << FRAME_SHIFT;

/// A physical address, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct PhysAddr(pub u64);

/// A virtual address, in bytes, as the architecture under management writes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct VirtAddr(pub u64);

/// The number of a 4 KiB frame: a physical address shifted right by [`FRAME_SHIFT`]. 32 bits reach
/// 16 TiB.
///
/// A number is not the frame: it may be copied, printed and put into an entry. The right to use and
/// give back the memory is [`Frame`](crate::frames::Frame).
///
/// ```
/// use ptarmigan::addr::{Pfn, PhysAddr};
///
/// assert_eq!(PhysAddr(0x5123).pfn(), Pfn(5));
/// assert_eq!(Pfn(5).addr(), PhysAddr(0x5000));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pfn(pub u32);

impl Pfn {
    /// No frame: the end of a chain of frames, never a number of memory.
    pub const NONE: Pfn = Pfn(u32::MAX);

    /// Returns the physical address of the frame's first byte.
    #[inline]
    pub const fn addr(self) -> PhysAddr {
        PhysAddr((self.0 as u64) << FRAME_SHIFT)
    }

    /// Iterates over the 2^`order` frames of the block that begins with this one.
    #[inline]
    pub fn block(self, order: u8) -> impl Iterator<Item = Pfn> {
        (self.0..).take(1 << order).map(Pfn)
    }
}

impl PhysAddr {
    /// Returns the frame that this address lies in.
    #[inline]
    pub const fn pfn(self) -> Pfn {
        Pfn((self.0 >> FRAME_SHIFT) as u32)
    }
}

/// A half-open range of virtual addresses. Its end cannot lie below its start: the code that makes
/// a range of two addresses is told, so that no call that takes one has to ask.
///
/// Both ends are read as fields, by [`Bounds`]. `end` may be 2^64 only where an architecture's
/// addresses are narrower: ranges that touch the last byte of a 64-bit address space cannot be
/// said.
///
/// ```
/// use ptarmigan::addr::{VirtAddr, VirtRange};
///
/// let heap = VirtRange::new(0x40_0000, 0x60_0000)?;
/// assert_eq!((heap.start, heap.end, heap.len()), (0x40_0000, 0x60_0000, 0x20_0000));
/// assert_eq!(VirtRange::pages(VirtAddr(0x40_0000), 512, 12), Some(heap));
/// assert!(heap.contains(0x5f_ffff) && !heap.contains(0x60_0000));
/// assert_eq!(heap.and(VirtRange::up_to(0x40_1000)).len(), 4096);
///
/// let e = VirtRange::new(0x60_0000, 0x40_0000).unwrap_err();
/// assert!(e.to_string().starts_with("the range ends at 0x400000, below its start 0x600000"));
/// # Ok::<(), ptarmigan::addr::BackwardRange>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct VirtRange(Bounds);

/// The ends of a [`VirtRange`], to be read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// First byte.
    pub start: u64,
    /// First byte after it; not below `start`.
    pub end: u64,
}

/// Two addresses in the wrong order, given as a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackwardRange {
    /// First byte, as given.
    pub start: u64,
    /// First byte after it, as given: below `start`.
    pub end: u64,
}

impl fmt::Display for BackwardRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BackwardRange { start, end } = *self;
        write!(f, "the range ends at {end:#x}, below its start {start:#x}; pass the lower address first")
    }
}

impl core::error::Error for BackwardRange {}

impl core::ops::Deref for VirtRange {
    type Target = Bounds;

    #[inline]
    fn deref(&self) -> &Bounds {
        &self.0
    }
}

impl VirtRange {
    /// Returns the range from `start` to the byte before `end`, which is empty if they are equal.
    ///
    /// # Errors
    ///
    /// If `end` lies below `start`.
    #[inline]
    pub const fn new(start: u64, end: u64) -> Result<Self, BackwardRange> {
        if end < start {
            return Err(BackwardRange { start, end });
        }
        Ok(VirtRange(Bounds { start, end }))
    }

    /// Returns a range that is known when the program is compiled. One that runs backward does not
    /// compile:
    ///
    /// ```compile_fail,E0080
    /// let heap = ptarmigan::addr::VirtRange::fixed::<0x60_0000, 0x40_0000>();
    /// ```
    #[inline]
    pub const fn fixed<const START: u64, const END: u64>() -> Self {
        const { assert!(START <= END, "the end of a range lies below its start") };
        VirtRange(Bounds { start: START, end: END })
    }

    /// Returns the addresses from 0 to the byte before `end`.
    #[inline]
    pub const fn up_to(end: u64) -> Self {
        VirtRange(Bounds { start: 0, end })
    }

    /// Returns a range whose ends are in order, as the caller has computed one from the other.
    #[inline]
    pub(crate) const fn ordered(start: u64, end: u64) -> Self {
        debug_assert!(start <= end, "the end of a range lies below its start");
        VirtRange(Bounds { start, end })
    }

    /// Returns the range of `len` bytes from `start` on; `None` if it does not fit into 64 bits.
    #[inline]
    pub fn bytes(start: VirtAddr, len: u64) -> Option<Self> {
        Some(Self::ordered(start.0, start.0.checked_add(len)?))
    }

    /// Returns the range of `pages` pages of 2^`shift` bytes from `start` on; `None` if it does not
    /// fit into 64 bits.
    pub fn pages(start: VirtAddr, pages: u64, shift: u32) -> Option<Self> {
        Self::bytes(start, pages.checked_mul(1u64.checked_shl(shift)?)?)
    }

    /// As [`pages`](Self::pages), by the number of the first page. The part that does not fit into
    /// 64 bits is cut off.
    pub const fn saturating_pages(first: u64, pages: u64, shift: u32) -> Self {
        let size = 1u64 << shift;
        Self::ordered(first.saturating_mul(size), first.saturating_add(pages).saturating_mul(size))
    }

    /// Returns the length in bytes.
    #[inline]
    pub const fn len(self) -> u64 {
        self.0.end - self.0.start
    }

    /// Returns whether it is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0.end == self.0.start
    }

    /// Returns whether `at` lies in it.
    #[inline]
    pub const fn contains(self, at: u64) -> bool {
        self.0.start <= at && at < self.0.end
    }

    /// Returns the intersection of both ranges, which may be empty.
    #[inline]
    pub fn and(self, other: VirtRange) -> VirtRange {
        let start = self.start.max(other.start);
        Self::ordered(start, self.end.min(other.end).max(start))
    }
}

macro_rules! hex {
    ($($t:ty)*) => { $(impl fmt::Debug for $t {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}({:#x})", stringify!($t), self.0)
        }
    }
    impl fmt::Display for $t {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:#x}", self.0)
        }
    })* };
}
hex!(PhysAddr VirtAddr Pfn);

impl fmt::Debug for VirtRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}
