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

/// A half-open range of virtual addresses, `start <= end`.
///
/// `end` may be 2^64 only where an architecture's addresses are narrower: ranges that touch the
/// last byte of a 64-bit address space cannot be said.
///
/// ```
/// use ptarmigan::addr::{VirtAddr, VirtRange};
///
/// let heap = VirtRange { start: 0x40_0000, end: 0x60_0000 };
/// assert_eq!(VirtRange::pages(VirtAddr(0x40_0000), 512, 12), Some(heap));
/// assert!(heap.contains(0x5f_ffff) && !heap.contains(0x60_0000));
/// assert_eq!(heap.and(VirtRange { start: 0, end: 0x40_1000 }).len(), 4096);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VirtRange {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
}

impl VirtRange {
    /// Returns the range of `pages` pages of 2^`shift` bytes from `start` on; `None` if it does not
    /// fit into 64 bits.
    pub fn pages(start: VirtAddr, pages: u64, shift: u32) -> Option<Self> {
        let len = pages.checked_mul(1u64.checked_shl(shift)?)?;
        Some(VirtRange { start: start.0, end: start.0.checked_add(len)? })
    }

    /// Returns the length in bytes; 0 if `end` lies below `start`.
    #[inline]
    pub const fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Returns whether it is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Returns whether `at` lies in it.
    #[inline]
    pub const fn contains(self, at: u64) -> bool {
        self.start <= at && at < self.end
    }

    /// Returns the intersection of both ranges, which may be empty.
    #[inline]
    pub fn and(self, other: VirtRange) -> VirtRange {
        let start = self.start.max(other.start);
        VirtRange { start, end: self.end.min(other.end).max(start) }
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
