//! Joins the errors of all modules, for callers that pass each of them on.
use core::fmt;

/// Makes the enum of all errors, their texts and conversions.
macro_rules! any_error {
    ($($variant:ident($error:ty)),+ $(,)?) => {
        /// Any error of the library. The text is the text of the error inside.
        ///
        /// ```
        /// use ptarmigan::addr::PhysAddr;
        /// use ptarmigan::bootmem::BootMemory;
        /// use ptarmigan::frames::{Frames, MemoryRun};
        ///
        /// fn set_up(memory: &mut BootMemory<'static>) -> Result<(), ptarmigan::Error> {
        ///     let runs = [MemoryRun::new(0x10_0000..0x50_0000)];
        ///     let frames = Frames::new(&runs, memory)?;       // a FramesError
        ///     assert_eq!(frames.counts().free, 1024);
        ///     Ok(())
        /// }
        /// # let words: &'static mut [core::mem::MaybeUninit<u64>] = Vec::leak(vec![core::mem::MaybeUninit::uninit(); 1 << 16]);
        /// # assert!(set_up(&mut BootMemory::from_slice(words)).is_ok());
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
}
