//! Says why areas cannot be changed.
use super::MAX_AREAS;
use crate::addr::{PhysAddr, VirtRange};
use crate::cpu::WrongMachine;
use crate::error::error;
use crate::format::Inexpressible;
use crate::frames::NoFrame;
use crate::page::Level;
use crate::tlb::TlbRefusal;
use core::fmt;

/// Why areas could not be changed; they are as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AreaError {
    /// A frame was needed for records and memory was exhausted.
    NoFrame(NoFrame),
    /// There are [`MAX_AREAS`] areas. Each that is unmapped makes room for another one.
    TooMany,
    /// The range is empty, or not made of whole pages of user addresses.
    BadRange(VirtRange),
    /// An area lies there already.
    Overlap(VirtRange),
    /// There is no area there.
    NoArea(VirtRange),
    /// Trees of the format have no tables of the level.
    NoSuchLevel {
        /// The level that was asked for.
        level: Level,
        /// The number of levels, of which 0 is the lowest.
        levels: u8,
    },
    /// The format has no leaves in tables of that level.
    NoSuchSize {
        /// The level.
        level: Level,
        /// The format.
        format: &'static str,
    },
    /// Entries cannot have the attributes.
    Inexpressible(Inexpressible),
    /// Areas of physical memory are made by
    /// [`SpaceMut::map_physical`](crate::space::SpaceMut::map_physical) and `map_physical_large`
    /// alone, and do not grow.
    Physical(VirtRange),
    /// Entries cannot name the physical memory from this address on: it is not aligned to a page,
    /// or ends too high.
    BadMemory(PhysAddr),
    /// The space is of another machine.
    WrongMachine(WrongMachine),
    /// In the middle of a switch or a flush of this CPU, where removed pages cannot be flushed.
    Refused(TlbRefusal),
}

impl fmt::Display for AreaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AreaError::NoFrame(e) => e.fmt(f),
            AreaError::TooMany => {
                write!(f, "an address space has {MAX_AREAS} areas at the most: unmap some first")
            }
            AreaError::BadRange(r) => write!(f, "{r:?} is not a range of whole pages of user addresses"),
            AreaError::Overlap(r) => write!(f, "an area lies in {r:?} already"),
            AreaError::NoArea(r) => write!(f, "no area lies in {r:?}"),
            AreaError::NoSuchLevel { level, levels } => {
                write!(f, "no tables of level {}: trees have {levels} levels, from 0 on", level.0)
            }
            AreaError::NoSuchSize { level, format } => {
                write!(f, "{format} has no pages in tables of level {}: use another size", level.0)
            }
            AreaError::Inexpressible(e) => e.fmt(f),
            AreaError::Physical(r) => {
                write!(f, "{r:?} is to show physical memory that `map_physical` has not been given")
            }
            AreaError::BadMemory(at) => {
                write!(f, "entries cannot name the memory at {at}: pages are aligned, and addresses end")
            }
            AreaError::WrongMachine(e) => e.fmt(f),
            AreaError::Refused(e) => e.fmt(f),
        }
    }
}

error!(AreaError: NoFrame => NoFrame, WrongMachine => WrongMachine, TlbRefusal => Refused,
    Inexpressible => Inexpressible);
