//! Which parts of the kernel's half have an owner.
use crate::addr::VirtAddr;
use crate::cpu::WrongMachine;
use crate::frames::NoFrame;
use core::fmt;

/// Ranges that a kernel map has owners for at most.
pub const MAX_RANGES: usize = 16;

/// Entries that a root may have.
pub(super) const MAX_ROOT_ENTRIES: usize = 1024;

/// Addresses from the first to the last, so that a span can end with the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub first: u64,
    pub last: u64,
}

/// What of the kernel's half has an owner.
pub(super) struct Claims {
    pub spans: [Option<Span>; MAX_RANGES],
    /// Entries of the root that ranges have filled, a bit for each.
    filled: [u64; MAX_ROOT_ENTRIES / 64],
    /// Roots smaller than a frame: nobody could fill an entry of theirs.
    pub small_roots: usize,
}

impl Span {
    /// The first of its addresses that entry `index` of a root maps, which has 2^`bits` entries of
    /// 2^`shift` bytes each.
    pub fn first_below(self, index: usize, shift: u32, bits: u32) -> VirtAddr {
        let table = u64::MAX.checked_shl(shift + bits).unwrap_or(0);
        VirtAddr((self.first & table | (index as u64) << shift).max(self.first))
    }
}

impl Claims {
    pub fn new() -> Self {
        Claims { spans: [None; MAX_RANGES], filled: [0; MAX_ROOT_ENTRIES / 64], small_roots: 0 }
    }

    /// Returns whether any range has an owner, or a root links tables that ranges have made.
    pub fn in_use(&self) -> bool {
        self.spans.iter().any(Option::is_some) || (self.small_roots > 0 && self.tables() > 0)
    }

    /// Returns how many entries of the root ranges have filled.
    pub fn tables(&self) -> usize {
        self.filled.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// Returns whether ranges have filled the root's entry `index`.
    pub fn has_filled(&self, index: usize) -> bool {
        self.filled[index / 64 % self.filled.len()] >> (index % 64) & 1 != 0
    }

    pub fn set_filled(&mut self, index: usize) {
        self.filled[index / 64 % self.filled.len()] |= 1 << (index % 64);
    }
}

/// Why a range could not be claimed; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// The range is empty, or not in the kernel's half as a whole.
    NotKernel {
        /// The first address that was asked for.
        at: VirtAddr,
    },
    /// The range does not begin and end where leaf tables do.
    NotWholeTables {
        /// Bytes that a leaf table maps.
        span: u64,
    },
    /// Something of it has an owner already, or the entry of the root was
    /// [set](super::KernelMap::set) by hand.
    Taken {
        /// Where.
        at: VirtAddr,
    },
    /// There are [`MAX_RANGES`] already.
    TooMany,
    /// The root is smaller than a frame, its entry is none, and there are roots that could not
    /// follow: claim before the first space is made.
    TooLate,
    /// There was no memory for a table below the root.
    NoFrame(NoFrame),
    /// The map is of another machine.
    WrongMachine(WrongMachine),
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimError::NotKernel { at } => {
                write!(f, "the range at {at} is empty or not in the kernel's half")
            }
            ClaimError::NotWholeTables { span } => {
                write!(f, "the range is not made of whole leaf tables: align it to {span} bytes")
            }
            ClaimError::Taken { at } => write!(f, "{at} belongs to another range or is mapped by hand"),
            ClaimError::TooMany => write!(f, "there are {MAX_RANGES} ranges already"),
            ClaimError::TooLate => f.write_str(
                "spaces that exist would not see the range: claim it before the first space is made",
            ),
            ClaimError::NoFrame(e) => e.fmt(f),
            ClaimError::WrongMachine(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for ClaimError {}
