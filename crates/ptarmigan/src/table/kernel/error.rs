//! Defines the errors of changes of a range.
use crate::addr::VirtAddr;
use crate::cpu::WrongMachine;
use crate::error::error;
#[cfg(doc)]
use crate::format::Format;
use crate::format::Inexpressible;
use crate::tlb::TlbRefusal;
use core::fmt;

/// The reason for which pages of a range could not be changed; they are unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelRangeError {
    /// The pages are not in the range.
    OutOfRange {
        /// The first of them.
        at: VirtAddr,
    },
    /// The range is of another machine.
    WrongMachine(WrongMachine),
    /// The CPU cannot flush now.
    Refused(TlbRefusal),
    /// Entries cannot have the attributes.
    Inexpressible(Inexpressible),
    /// A part of this large page, or group, was to be changed, and the architecture demands that
    /// all of it faults meanwhile ([`Format::needs_break`]): [`split`](super::KernelRange::split)
    /// it first, while no CPU uses it.
    PartOfLarge {
        /// Its first address.
        at: VirtAddr,
    },
}

impl fmt::Display for KernelRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelRangeError::OutOfRange { at } => write!(f, "the pages at {at} are not in the range"),
            KernelRangeError::WrongMachine(e) => e.fmt(f),
            KernelRangeError::Refused(e) => e.fmt(f),
            KernelRangeError::Inexpressible(e) => e.fmt(f),
            KernelRangeError::PartOfLarge { at } => {
                write!(
                    f,
                    "a part of the large page or group at {at} changes: split it first, while no CPU uses it"
                )
            }
        }
    }
}

error!(KernelRangeError: TlbRefusal => Refused, Inexpressible => Inexpressible);
