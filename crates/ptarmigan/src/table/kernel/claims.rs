//! Records which parts of the kernel's half have an owner.
use crate::addr::VirtAddr;
use crate::cpu::WrongMachine;
use crate::frames::NoFrame;
use crate::page::Unhooked;
use crate::table::reserve::Reserve;
use crate::tlb::{Runs, TlbRefusal};
use core::fmt;
use core::mem::replace;

/// Ranges that a kernel map has owners for at most.
pub const MAX_RANGES: usize = 16;

/// Entries that a root may have.
pub(super) const MAX_ROOT_ENTRIES: usize = 2048;

/// Addresses from the first to the last, so that a span can end with the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub first: u64,
    pub last: u64,
}

/// The owner's use of the tables of its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Goes through them, and links others in them.
    Owned,
    /// Has unlinked those that were its own, and waits for the flush.
    Leaving,
    /// Unusable: a claim or a release has unwound, and nobody has the range.
    Left,
}

/// Memory of a range beside its linked tables.
pub(super) struct Holdings {
    /// Tables that are unlinked, and whose flush has unwound.
    pub tables: Unhooked,
    /// The tables that its large pages have reserved.
    pub reserve: Reserve,
    /// The most levels of tables that were linked at once since the MMU was told of entries below
    /// them.
    pub linked: u8,
}

impl Holdings {
    /// No memory.
    pub fn none() -> Self {
        Holdings { tables: Unhooked::new(), reserve: Reserve::none(), linked: 0 }
    }

    /// Takes it out.
    pub fn take(&mut self) -> Self {
        replace(self, Self::none())
    }
}

/// A part of the kernel's half that nobody else can have.
pub(super) struct Claim {
    span: Span,
    hold: Hold,
    /// The memory of a range that is [left](Hold::Left).
    left: Holdings,
}

/// The owned parts of the kernel's half.
pub(super) struct Claims {
    all: [Option<Claim>; MAX_RANGES],
    /// Entries of the root that ranges have filled, a bit for each.
    filled: [u64; MAX_ROOT_ENTRIES / 64],
    /// Roots smaller than a frame: nobody could fill an entry of theirs.
    pub small_roots: usize,
}

impl Span {
    /// Its pages of 2^`shift` bytes.
    pub fn pages(self, shift: u32) -> Runs {
        Runs::one(self.first, self.last.wrapping_add(1), shift)
    }

    /// Whether any address is in both.
    fn meets(self, other: Span) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The first of its addresses that entry `index` of a root maps, which has 2^`bits` entries of
    /// 2^`shift` bytes each.
    pub fn first_below(self, index: usize, shift: u32, bits: u32) -> VirtAddr {
        let table = u64::MAX.checked_shl(shift + bits).unwrap_or(0);
        VirtAddr((self.first & table | (index as u64) << shift).max(self.first))
    }
}

impl Claims {
    pub fn new() -> Self {
        Claims { all: [const { None }; MAX_RANGES], filled: [0; MAX_ROOT_ENTRIES / 64], small_roots: 0 }
    }

    /// Returns whether any range has an owner, or a root links tables that ranges have made.
    pub fn in_use(&self) -> bool {
        self.all.iter().any(Option::is_some) || (self.small_roots > 0 && self.tables() > 0)
    }

    /// Returns a claim that has an address of `span`, and how it is held.
    pub fn meeting(&self, span: Span) -> Option<(Span, Hold)> {
        let claim = self.all.iter().flatten().find(|claim| claim.span.meets(span))?;
        Some((claim.span, claim.hold))
    }

    /// Returns whether the owner of a range may go through a table that maps `span`, or be about to
    /// link another one in it.
    pub fn is_walked(&self, span: Span) -> bool {
        self.all.iter().flatten().any(|claim| claim.hold == Hold::Owned && claim.span.meets(span))
    }

    /// Adds a claim; false if there is no room.
    pub fn add(&mut self, span: Span) -> bool {
        let free = self.all.iter_mut().find(|claim| claim.is_none());
        free.map(|free| *free = Some(Claim { span, hold: Hold::Owned, left: Holdings::none() })).is_some()
    }

    /// Notes how the claim of exactly `span` is held from now on.
    pub fn set_hold(&mut self, span: Span, hold: Hold) {
        let claims = self.all.iter_mut().flatten();
        claims.filter(|claim| claim.span == span).for_each(|claim| claim.hold = hold);
    }

    /// Notes that nobody has exactly `span`, whose memory is `left`.
    pub fn leave(&mut self, span: Span, left: Holdings) {
        let claims = self.all.iter_mut().flatten();
        if let Some(claim) = claims.into_iter().find(|claim| claim.span == span) {
            claim.hold = Hold::Left;
            // The claim that came before has taken it out.
            debug_assert!(claim.left.tables.is_empty() && !claim.left.reserve.is_used());
            claim.left = left;
        }
    }

    /// Takes the memory of exactly `span`, which was left.
    pub fn take_left(&mut self, span: Span) -> Holdings {
        let claim = self.all.iter_mut().flatten().find(|claim| claim.span == span);
        claim.map_or(Holdings::none(), |claim| claim.left.take())
    }

    /// Takes the claim of exactly `span` out.
    pub fn remove(&mut self, span: Span) {
        let claims = self.all.iter_mut();
        claims.filter(|claim| claim.as_ref().is_some_and(|c| c.span == span)).for_each(|claim| *claim = None);
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

/// The reason for which a range could not be claimed; the map is unchanged then.
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
    /// Something of it has an owner already, or a claim or a release of another range there has
    /// unwound, or the entry of the root was [set](super::KernelMap::set) by hand.
    Taken {
        /// Where.
        at: VirtAddr,
    },
    /// There are [`MAX_RANGES`] already.
    TooMany,
    /// The root is smaller than a frame, its entry is empty, and there are roots that could not
    /// follow: claim before the first space is made.
    TooLate,
    /// There was no memory for a table below the root.
    NoFrame(NoFrame),
    /// The map is of another machine.
    WrongMachine(WrongMachine),
    /// An earlier claim or release of the range has unwound, and the CPU cannot flush now.
    Refused(TlbRefusal),
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
            ClaimError::Refused(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for ClaimError {}
