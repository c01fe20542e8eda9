//! Defines the results of functions, and the reasons for refused calls.

/// The result of functions that succeeded. Errors are negative, see `enum pt_error`.
pub const PT_OK: i32 = 0;

/// Why a call was refused. A refused call has no effect, unless its function says so.
/// `pt_error_text` says more.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtError {
    /// A pointer is NULL where it must not be, or misaligned.
    Pointer = -1,
    /// The object was not initialised, has ended, was copied or moved, or is of another kind. Or it
    /// is to be initialised and is neither zero nor ended.
    Object = -2,
    /// An argument has no meaning.
    Argument = -3,
    /// `config.size` is not the library's: header and library are of different versions.
    Size = -4,
    /// The boot memory is smaller than `pt_machine_bytes` says.
    BootMemory = -5,
    /// The runs of memory are empty, not in order, overlap each other or something that the library
    /// was told of, or are of nodes that are not numbered from 0 without gaps.
    Runs = -6,
    /// There is no free frame.
    NoMemory = -7,
    /// An address is beyond those that the call is for, or not at the border of a page.
    Range = -8,
    /// Something is mapped there already.
    Mapped = -9,
    /// No page is mapped there.
    NotMapped = -10,
    /// The page did not come from the library, or not from the function that goes with this one.
    Foreign = -11,
    /// The page was given back already, or waits in a gather for its flush.
    Freed = -12,
    /// The page is mapped, the space is loaded, gathers are open, or frames are out.
    InUse = -13,
    /// The table was written to, so that a TLB may know it: give it to a gather.
    Unflushed = -14,
    /// The table is not zero: note each entry that is written, or clear it.
    Dirty = -15,
    /// The CPU is in the middle of a flush, a switch, or another call for the same object.
    Busy = -16,
    /// The objects are of different machines.
    Machine = -17,
    /// No slot of the window for high memory is free.
    NoSlot = -18,
    /// Pages of this architecture cannot have the memory type.
    MemoryType = -19,
    /// Pages are not mapped as one large page would map them.
    Differs = -20,
    /// `config.kernel_root` is 0, not at the border of a root, or beyond the direct map.
    KernelRoot = -21,
    /// `config.direct_map` or `config.direct_map_end` is not at the border of a page.
    DirectMap = -22,
    /// An entry of the kernel's half of `config.kernel_root` is neither 0, nor a link, nor a page
    /// of the kernel's.
    KernelEntry = -23,
    /// `config.kernel_root` does not map `config.direct_map` to the memory of `config.runs`: the
    /// direct map is elsewhere, or the root is of another number of levels or format.
    WindowShows = -24,
}

impl PtError {
    /// Returns the number for C.
    #[inline]
    pub(crate) fn code(self) -> i32 {
        self as i32
    }
}

/// Returns the number for C of a result.
#[inline]
pub(crate) fn answer(result: Result<(), PtError>) -> i32 {
    match result {
        Ok(()) => PT_OK,
        Err(e) => e.code(),
    }
}

impl From<ptarmigan::cpu::WrongMachine> for PtError {
    fn from(_: ptarmigan::cpu::WrongMachine) -> Self {
        PtError::Machine
    }
}

impl From<ptarmigan::frames::NoFrame> for PtError {
    fn from(_: ptarmigan::frames::NoFrame) -> Self {
        PtError::NoMemory
    }
}

impl From<ptarmigan::table::KernelMapError> for PtError {
    fn from(e: ptarmigan::table::KernelMapError) -> Self {
        match e {
            ptarmigan::table::KernelMapError::NoFrame(e) => e.into(),
            ptarmigan::table::KernelMapError::TooHigh(_) => PtError::Runs,
        }
    }
}

impl From<ptarmigan::setup::SetupError> for PtError {
    /// Of `check_kernel_root`.
    fn from(e: ptarmigan::setup::SetupError) -> Self {
        use ptarmigan::setup::SetupError as S;
        match e {
            S::TableInRun { .. } => PtError::Runs,
            S::BadKernelEntry { .. } => PtError::KernelEntry,
            S::WindowShows { .. } => PtError::WindowShows,
            _ => PtError::KernelRoot,
        }
    }
}

impl From<ptarmigan::bootmem::BootMemoryShort> for PtError {
    fn from(_: ptarmigan::bootmem::BootMemoryShort) -> Self {
        PtError::BootMemory
    }
}

impl From<ptarmigan::tlb::TlbRefusal> for PtError {
    fn from(e: ptarmigan::tlb::TlbRefusal) -> Self {
        use ptarmigan::tlb::TlbRefusal as R;
        match e {
            R::WrongMachine(_) => PtError::Machine,
            R::NoSuchCpu(_) => PtError::Argument,
            R::Busy(_) => PtError::Busy,
        }
    }
}

impl From<ptarmigan::frames::DataError> for PtError {
    fn from(e: ptarmigan::frames::DataError) -> Self {
        match e {
            ptarmigan::frames::DataError::NoFrame(e) => e.into(),
            ptarmigan::frames::DataError::WrongMachine(e) => e.into(),
        }
    }
}

impl From<ptarmigan::format::Inexpressible> for PtError {
    fn from(e: ptarmigan::format::Inexpressible) -> Self {
        use ptarmigan::format::{Attr, Cause};
        match e.cause() {
            Cause::Missing(missing) if missing.only(Attr::MEMORY) != Attr(0) => PtError::MemoryType,
            _ => PtError::Argument,
        }
    }
}

impl From<ptarmigan::table::MapError> for PtError {
    fn from(e: ptarmigan::table::MapError) -> Self {
        use ptarmigan::table::MapError as M;
        match e {
            M::NoFrame(e) => e.into(),
            M::Occupied { .. } => PtError::Mapped,
            M::OutOfRange { .. } | M::Misaligned { .. } => PtError::Range,
            M::BadFrame { .. } | M::NoSuchSize { .. } => PtError::Argument,
            M::Inexpressible(e) => e.into(),
            M::WrongMachine(e) => e.into(),
            M::Refused(e) => e.into(),
        }
    }
}

impl From<ptarmigan::table::CollapseError> for PtError {
    fn from(e: ptarmigan::table::CollapseError) -> Self {
        use ptarmigan::table::CollapseError as C;
        match e {
            C::BadPlace(e) => e.into(),
            C::Differs { .. } => PtError::Differs,
            C::NoFrame(e) => e.into(),
            C::Refused(e) => e.into(),
        }
    }
}
