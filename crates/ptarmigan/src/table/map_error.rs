//! Says why a page could not be mapped, and refuses frames that no entry can name.
use super::tables::NoTable;
use crate::addr::{FRAME_SHIFT, Pfn, VirtAddr};
use crate::cpu::WrongMachine;
use crate::error::error;
use crate::format::{Format, Inexpressible};
use crate::frames::NoFrame;
use crate::page::Level;
use crate::tlb::TlbRefusal;
use core::fmt;

/// The reason for which a tree or a page in it could not be had; the tree is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// A table was needed and there was no memory for it.
    NoFrame(NoFrame),
    /// Something is mapped there already.
    Occupied {
        /// Where.
        at: VirtAddr,
    },
    /// The address is not the user's.
    OutOfRange {
        /// Where.
        at: VirtAddr,
    },
    /// The address is not the start of a page, or of a large one of that size.
    Misaligned {
        /// Where.
        at: VirtAddr,
        /// Bytes of a page.
        page: u64,
    },
    /// No entry of the format can begin with these frames: a page is aligned to its
    /// size, and ends below 2^[`PHYS_BITS`](Format::PHYS_BITS) bytes.
    BadFrame {
        /// The first of them.
        first: Pfn,
        /// The format.
        format: &'static str,
    },
    /// The format has no leaves in tables of that level, or it is the root's level and the pages
    /// are the kernel's: entries of its half of the root [stay](super::KernelRange).
    NoSuchSize {
        /// The level.
        level: Level,
        /// The format.
        format: &'static str,
    },
    /// Entries cannot have the attributes, or a page of a tree was to be global.
    Inexpressible(Inexpressible),
    /// The tree is of another machine.
    WrongMachine(WrongMachine),
    /// A page was unmapped there by the same edit, and must be flushed first
    /// ([`Format::needs_break`]), which this CPU cannot do now.
    Refused(TlbRefusal),
}

impl MapError {
    /// Says why there is no leaf table for the page at `at`.
    #[cold]
    pub(super) fn no_table(e: NoTable, at: VirtAddr) -> Self {
        e.no_frame().map_or(MapError::Occupied { at }, MapError::NoFrame)
    }

    /// Says why no page of the user's begins at `at`.
    #[cold]
    pub(super) fn bad_address<F: Format>(at: VirtAddr) -> Self {
        let page = 1 << F::PAGE_SHIFT;
        if at.0 >= F::USER_END { MapError::OutOfRange { at } } else { MapError::Misaligned { at, page } }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::NoFrame(e) => e.fmt(f),
            MapError::Occupied { at } => write!(f, "{at} is mapped already; unmap it first"),
            MapError::OutOfRange { at } => write!(f, "{at} is beyond the user's addresses"),
            MapError::Misaligned { at, page } => {
                write!(f, "{at} is not the start of a page: pages have {page} bytes")
            }
            MapError::BadFrame { first, format } => {
                write!(
                    f,
                    "no entry of {format} can map {first}: pages are aligned, and physical addresses end"
                )
            }
            MapError::NoSuchSize { level, format } => {
                write!(f, "{format} has no pages in tables of level {} there: use another size", level.0)
            }
            MapError::Inexpressible(e) => e.fmt(f),
            MapError::WrongMachine(e) => e.fmt(f),
            MapError::Refused(e) => e.fmt(f),
        }
    }
}

/// Refuses frames for `pages` pages from `first` on that entries of format `F` cannot name.
pub(in crate::table) fn check_frames<F: Format>(first: Pfn, pages: u64) -> Result<(), MapError> {
    // Numbers end where entries have no room for more, or with 32 bits.
    let end = const {
        let bits = F::PHYS_BITS.saturating_sub(FRAME_SHIFT);
        1u64 << if bits < u32::BITS { bits } else { u32::BITS }
    };
    let aligned = F::PAGE_ORDER == 0 || first.0.trailing_zeros() >= F::PAGE_ORDER.into();
    let low = pages <= (end - u64::from(first.0).min(end)) >> F::PAGE_ORDER;
    if aligned && low { Ok(()) } else { Err(MapError::BadFrame { first, format: F::NAME }) }
}

/// The reason for which pages did not become a large one; they are mapped as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollapseError {
    /// No large page of that size can begin there.
    BadPlace(MapError),
    /// No page is here, or another one than a large page would map here.
    Differs {
        /// Where.
        at: VirtAddr,
    },
    /// There was no memory to reserve for the time when it is split again.
    NoFrame(NoFrame),
    /// The pages must be flushed first, which this CPU cannot do now.
    Refused(TlbRefusal),
}

impl fmt::Display for CollapseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollapseError::BadPlace(e) => e.fmt(f),
            CollapseError::Differs { at } => {
                write!(f, "{at} is not mapped as a part of a large page would be: the pages stay")
            }
            CollapseError::NoFrame(e) => e.fmt(f),
            CollapseError::Refused(e) => e.fmt(f),
        }
    }
}

error!(CollapseError: NoFrame => NoFrame, TlbRefusal => Refused);

error!(MapError: NoFrame => NoFrame, TlbRefusal => Refused, WrongMachine => WrongMachine,
    Inexpressible => Inexpressible);
