//! Why a machine is not set up.
use crate::bootmem::BootMemoryShort;
use crate::cpu::WrongMachine;
use crate::error::error;
use crate::frames::{FramesError, MemoryRun, NoFrame};
use crate::quicklist::ListsError;
use crate::table::{KernelMapError, MemoryTooHigh};
use crate::tlb::{TlbError, WrongMode};
use core::fmt;

/// Why a machine could not be set up. Nothing is kept then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// The place holds a machine already, or another CPU is setting one up in it.
    Twice,
    /// The boot parameter `userpte` asks for tables in high memory, which machines made by
    /// [`Setup`](super::Setup) do not have.
    NoHighTables,
    /// No run of memory was named.
    NoMemory,
    /// A run of memory is not as it should be.
    Frames(FramesError),
    /// The largest run of low memory has no room for the library's own arrays, a root and a few
    /// frames.
    TooSmall {
        /// Bytes that are wanted.
        wanted: u64,
        /// Bytes of the largest run of low memory; 0 if there is none.
        largest: u64,
    },
    /// The window does not reach a run of memory.
    OutOfWindow {
        /// The run.
        run: MemoryRun,
        /// The first physical address that the window does not reach.
        limit: u64,
    },
    /// A direct map does not fit into the address space.
    Window(crate::window::OutOfReach),
    /// Neither [`kernel_root`](super::Setup::kernel_root) nor
    /// [`without_kernel_half`](super::Setup::without_kernel_half) was called.
    NoKernelRoot,
    /// At the address of the kernel's root is no table that the window reaches.
    BadKernelRoot {
        /// The address.
        at: u64,
        /// Bytes of a root, to which it has to be aligned.
        bytes: u64,
    },
    /// The kernel's root, or a table that it links, lies in a run of memory, so that it would be
    /// used for something else.
    TableInRun {
        /// Where the table is.
        at: u64,
        /// The run.
        run: MemoryRun,
    },
    /// An entry of the kernel's root is neither none, nor a link, nor a page of the kernel's.
    BadKernelEntry {
        /// Its index.
        index: usize,
        /// The entry.
        raw: u64,
    },
    /// The kernel's root does not map the window to the memory that it is said to show: the window
    /// is elsewhere, or the root is of another format than the machine.
    WindowShows {
        /// The physical address.
        at: u64,
        /// Where the window has it.
        va: u64,
        /// The physical address that is there; `None` if it is no memory that the kernel alone may
        /// write to, encrypted where tables are.
        shows: Option<u64>,
    },
    /// Entries of the format cannot name all of the memory.
    TooHigh(MemoryTooHigh),
    /// A size of the lists is out of range.
    Lists(ListsError),
    /// The CPU that sets up is in a mode of another format.
    Mode(WrongMode),
    /// There are too many CPUs, or too few ASIDs.
    Tlb(TlbError),
    /// No frame was left for a root or the frame of zeroes.
    Frame(NoFrame),
    /// The arrays took more than was computed: a bug of the library.
    Boot(BootMemoryShort),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::Twice => f.write_str("set-up: there is a machine already; set it up once"),
            SetupError::NoHighTables => f.write_str(
                "set-up: boot parameter `userpte`: this machine makes tables of low memory alone; leave it out",
            ),
            SetupError::NoMemory => f.write_str("set-up: memory: no run was named; name one at least"),
            SetupError::Frames(e) => write!(f, "set-up: memory: {e}"),
            SetupError::TooSmall { wanted, largest } => write!(
                f,
                "set-up: memory: the largest run of low memory has {} KiB, and the library takes {} KiB of it; \
                 give more memory, or set up fewer CPUs",
                largest >> 10,
                wanted.div_ceil(1 << 10)
            ),
            SetupError::OutOfWindow { run, limit } => write!(
                f,
                "set-up: window: {run} are not below {limit:#x}, where it ends; leave them out, or map more"
            ),
            SetupError::Window(e) => write!(f, "set-up: window: {e}"),
            SetupError::NoKernelRoot => f.write_str(
                "set-up: the kernel's half: name the root that maps the kernel (kernel_root), or say that spaces \
                 have none (without_kernel_half)",
            ),
            SetupError::BadKernelRoot { at, bytes } => write!(
                f,
                "set-up: the kernel's half: {at:#x} is no root: it has to be a multiple of {bytes}, and in the window"
            ),
            SetupError::TableInRun { at, run } => write!(
                f,
                "set-up: the kernel's half: the table at {at:#x} lies in {run}, which would be handed out; leave its \
                 frame out of the memory"
            ),
            SetupError::BadKernelEntry { index, raw } => write!(
                f,
                "set-up: the kernel's half: entry {index} of the root, {raw:#x}, is neither none, nor a link, nor a \
                 page of the kernel's; clear it, or give the window's true place"
            ),
            SetupError::WindowShows { at, va, shows } => {
                write!(f, "set-up: window: it has {at:#x} at {va:#x}, where the kernel's root maps ")?;
                match shows {
                    Some(shows) => write!(f, "{shows:#x}")?,
                    None => f.write_str("no memory of the kernel's own")?,
                }
                f.write_str("; give the window's true place, or the format that the root has")
            }
            SetupError::TooHigh(e) => write!(f, "set-up: memory: {e}"),
            SetupError::Lists(e) => write!(f, "set-up: {e}"),
            SetupError::Mode(e) => write!(f, "set-up: the CPU's mode: {e}"),
            SetupError::Tlb(e) => write!(f, "set-up: TLBs: {e}"),
            SetupError::Frame(e) => write!(f, "set-up: memory: {e}; give more"),
            SetupError::Boot(e) => write!(f, "set-up: {e}: a bug of the library"),
        }
    }
}

error!(SetupError: FramesError => Frames, ListsError => Lists, WrongMode => Mode, TlbError => Tlb, NoFrame => Frame,
    BootMemoryShort => Boot, MemoryTooHigh => TooHigh);

impl From<KernelMapError> for SetupError {
    fn from(e: KernelMapError) -> Self {
        match e {
            KernelMapError::NoFrame(e) => SetupError::Frame(e),
            KernelMapError::TooHigh(e) => SetupError::TooHigh(e),
        }
    }
}

/// Why a [`Kernel`](super::Kernel) does not say where code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelError {
    /// It is not set up.
    NotSetUp,
    /// The pin is another machine's.
    WrongMachine(WrongMachine),
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelError::NotSetUp => f.write_str("the kernel's machine is not set up; call `set_up` first"),
            KernelError::WrongMachine(e) => e.fmt(f),
        }
    }
}

error!(KernelError: WrongMachine => WrongMachine);
