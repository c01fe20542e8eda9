//! Defines the errors of areas.
use crate::addr::VirtAddr;
use crate::cpu::WrongMachine;
use crate::frames::{DataError, NoFrame};
use crate::table::{KernelRangeError, MapError};
use core::fmt;

/// The reason for which there is no area, or it could not be changed; all areas are unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AreaError {
    /// An area has at least one page.
    Empty,
    /// There are not so many pages in a row, with one more as a guard.
    NoRoom {
        /// Pages that were asked for.
        pages: u64,
        /// Pages that the largest area could have now.
        largest: u64,
    },
    /// Areas are the kernel's: [`Attr::USER`](crate::format::Attr::USER) is not allowed.
    ForUser,
    /// The area is of another range of the machine, or of another map.
    NotHere {
        /// Its first address.
        at: VirtAddr,
        /// The first address of the range that it is of.
        of: VirtAddr,
        /// The first address of the range that was called.
        called: VirtAddr,
    },
    /// There is no frame for a table or for the area.
    NoFrame(NoFrame),
    /// The pages could not be mapped.
    Map(MapError),
    /// The pages could not be changed.
    Range(KernelRangeError),
    /// The call, or the area, is of another machine.
    WrongMachine(WrongMachine),
}

impl fmt::Display for AreaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AreaError::Empty => f.write_str("an area of no pages was asked for; it has one at least"),
            AreaError::NoRoom { pages, largest } => {
                write!(f, "no room for an area of {pages} pages: the largest can have {largest}; free others")
            }
            AreaError::ForUser => f.write_str("an area is the kernel's: leave Attr::USER out"),
            AreaError::NotHere { at, of, called } => write!(
                f,
                "the area at {at} is of the range at {of}, not of that at {called}; give it to its own"
            ),
            AreaError::NoFrame(e) => e.fmt(f),
            AreaError::Map(e) => e.fmt(f),
            AreaError::Range(e) => e.fmt(f),
            AreaError::WrongMachine(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for AreaError {}

impl From<MapError> for AreaError {
    fn from(e: MapError) -> Self {
        match e {
            MapError::NoFrame(e) => AreaError::NoFrame(e),
            MapError::WrongMachine(e) => AreaError::WrongMachine(e),
            e => AreaError::Map(e),
        }
    }
}

impl From<DataError> for AreaError {
    fn from(e: DataError) -> Self {
        match e {
            DataError::NoFrame(e) => AreaError::NoFrame(e),
            DataError::WrongMachine(e) => AreaError::WrongMachine(e),
        }
    }
}

impl From<KernelRangeError> for AreaError {
    fn from(e: KernelRangeError) -> Self {
        match e {
            KernelRangeError::WrongMachine(e) => AreaError::WrongMachine(e),
            e => AreaError::Range(e),
        }
    }
}

/// Areas that have not been freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreasLeft {
    /// How many, those that are owed included.
    pub areas: usize,
    /// Areas whose allocation or free has unwound: [`finish`](super::Vmalloc::finish) frees them.
    pub owed: usize,
}

impl fmt::Display for AreasLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AreasLeft { areas, owed } = self;
        write!(f, "{areas} areas have not been freed, {owed} of them because a call unwound: ")?;
        f.write_str(if owed < areas { "free the others first" } else { "call `finish` first" })
    }
}

impl core::error::Error for AreasLeft {}
