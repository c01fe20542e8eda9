//! A reference to a data frame.
use crate::addr::{Pfn, PhysAddr};
use crate::cpu::{MachineId, WrongMachine};
use crate::error::error;
use crate::frames::NoFrame;
use core::fmt;

/// One counted reference to a block of 2^order frames that holds data. Never `Copy`: giving it back
/// consumes it.
///
/// More references come from [`DataFrames::share`](super::DataFrames::share);
/// [`DataFrames::release`](super::DataFrames::release) takes one back, and with the last one the
/// memory. Entries of tables own references too, as numbers: [`into_raw`](Self::into_raw),
/// [`from_raw`](Self::from_raw).
///
/// Dropping one without giving it back loses the memory; the exact counts of
/// [`Frames`](crate::frames::Frames) show it.
///
/// ```compile_fail,E0382
/// # use ptarmigan::{cpu::Pinned, frames::{DataFrame, DataFrames, Frames}};
/// fn twice(data: &DataFrames, frames: &Frames, pin: &Pinned<'_>, frame: DataFrame) {
///     data.release(frames, pin, frame).unwrap();
///     data.release(frames, pin, frame).unwrap(); // it has been given back
/// }
/// ```
///
/// A number is no reference:
///
/// ```compile_fail,E0308
/// # use ptarmigan::{addr::Pfn, cpu::Pinned, frames::{DataFrames, Frames}};
/// fn any(data: &DataFrames, frames: &Frames, pin: &Pinned<'_>) {
///     data.release(frames, pin, Pfn(1)).unwrap();
/// }
/// ```
#[must_use = "a dropped reference keeps the frame for ever: give it back"]
#[derive(Debug)]
pub struct DataFrame {
    pfn: Pfn,
    machine: MachineId,
}

impl DataFrame {
    /// Returns the number of the first frame.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// Returns the physical address of the first byte.
    #[inline]
    pub fn addr(&self) -> PhysAddr {
        self.pfn.addr()
    }

    /// Returns the machine whose memory it is.
    #[inline]
    pub fn machine(&self) -> MachineId {
        self.machine
    }

    /// Gives up the type: the number, to be kept in an entry that owns the reference from now on.
    #[inline]
    pub fn into_raw(self) -> Pfn {
        self.pfn
    }

    /// Takes the reference back that an entry owned.
    ///
    /// # Safety
    ///
    /// 1. The caller must own a reference to the data frame `pfn` of `machine`: it came from
    ///    [`into_raw`](Self::into_raw) or one of the `_raw` functions of
    ///    [`DataFrames`](super::DataFrames), and no other code has taken it back.
    #[inline]
    pub unsafe fn from_raw(machine: MachineId, pfn: Pfn) -> Self {
        DataFrame { pfn, machine }
    }
}

/// Why there is no data frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataError {
    /// There is no memory.
    NoFrame(NoFrame),
    /// The frames or the pin are of another machine, or the lists were made for fewer CPUs.
    WrongMachine(WrongMachine),
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataError::NoFrame(e) => e.fmt(f),
            DataError::WrongMachine(e) => e.fmt(f),
        }
    }
}

error!(DataError: NoFrame => NoFrame, WrongMachine => WrongMachine);
