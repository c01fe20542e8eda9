//! Joins the errors of all modules, for callers that pass each of them on.
use core::fmt;

/// Makes the enum of all errors, their texts and conversions.
macro_rules! any_error {
    ($($variant:ident($error:ty)),+ $(,)?) => {
        /// Any error of the library. The text is the text of the error inside. A
        /// [`Refused`](crate::cpu::Refused) has no conversion, because the value in it would be
        /// lost.
        ///
        /// ```
        /// use ptarmigan::addr::{VirtAddr, VirtRange};
        /// use ptarmigan::format::X86_64;
        /// use ptarmigan::machine::On;
        /// use ptarmigan::space::{Access, AreaFlags, Space, SpaceMachine};
        ///
        /// fn first_page<M: SpaceMachine>(on: On<'_, M>) -> Result<(), ptarmigan::Error> {
        ///     let mut space = Space::<X86_64>::new(on)?;                   // a KernelMapError
        ///     let heap = VirtRange::new(0x40_0000, 0x50_0000)?;
        ///     space.edit(on)?.mmap(heap, AreaFlags::READ, 0)?;             // an AreaError
        ///     space.fault(on, VirtAddr(0x40_0123), Access::Read)?;         // a FaultError
        ///     Ok(space.end(on).map_err(|refused| refused.error)?)       // a TlbRefusal
        /// }
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Error {
            $(
                #[doc = concat!("[`", stringify!($error), "`].")]
                $variant($error),
            )+
        }

        $(
            impl From<$error> for Error {
                fn from(e: $error) -> Self {
                    Error::$variant(e)
                }
            }
        )+

        impl fmt::Display for Error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Error::$variant(e) => e.fmt(f),)+
                }
            }
        }

        impl core::error::Error for Error {
            fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
                match self {
                    $(Error::$variant(e) => e.source(),)+
                }
            }
        }
    };
}

any_error! {
    Area(crate::space::AreaError),
    BackwardRange(crate::addr::BackwardRange),
    BootMemoryShort(crate::bootmem::BootMemoryShort),
    Claim(crate::table::ClaimError),
    Collapse(crate::table::CollapseError),
    Data(crate::frames::DataError),
    Fault(crate::space::FaultError),
    Frames(crate::frames::FramesError),
    Gather(crate::gather::GatherError),
    HashSize(crate::tlb::hash::HashSizeError),
    Inexpressible(crate::format::Inexpressible),
    InterruptsInstalled(crate::sync::AlreadyInstalled),
    Kernel(crate::setup::KernelError),
    KernelMap(crate::table::KernelMapError),
    KernelRange(crate::table::KernelRangeError),
    Lists(crate::quicklist::ListsError),
    LocalSetup(crate::highmem::local::LocalSetupError),
    LocalSlot(crate::highmem::local::LocalError),
    LocalSwitch(crate::highmem::local::SwitchError),
    Lock(crate::space::LockError),
    Map(crate::table::MapError),
    MemoryTooHigh(crate::table::MemoryTooHigh),
    NoFrame(crate::frames::NoFrame),
    OutOfReach(crate::window::OutOfReach),
    Pool(crate::highmem::pool::PoolError),
    PoolSetup(crate::highmem::pool::PoolSetupError),
    Setup(crate::setup::SetupError),
    Slot(crate::highmem::SlotError),
    Slots(crate::table::SlotsError),
    Tlb(crate::tlb::TlbError),
    TlbRefused(crate::tlb::TlbRefusal),
    Vmalloc(crate::vmalloc::AreaError),
    VmallocAreasLeft(crate::vmalloc::AreasLeft),
    WrongMachine(crate::cpu::WrongMachine),
    WrongMode(crate::tlb::WrongMode),
}
