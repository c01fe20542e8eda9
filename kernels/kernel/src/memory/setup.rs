//! The order in which the parts of the library are set up.

use core::fmt;
use core::ptr::NonNull;

use ptarmigan::addr::{FRAME_SIZE, Pfn};
use ptarmigan::bootmem::{BootMemory, BootMemoryShort};
use ptarmigan::cpu::{MachineId, NodeId};
use ptarmigan::format::Format;
use ptarmigan::frames::{
    AllocFlags, DataFrames, End, Frames, FramesError, MemoryRun, MemorySize, NoFrame, Request, Taken,
    ZoneClass,
};
use ptarmigan::params::{Params, UserPte};
use ptarmigan::parking::Parking;
use ptarmigan::quicklist::{
    AutoCosts, AutoPlacement, ListsConfig, ListsError, Placement, Quicklists, Source,
};
use ptarmigan::table::KernelMapError;
use ptarmigan::tlb::{Tlb, TlbConfig, TlbError};
use ptarmigan::window::{OpenWindow, WindowGuard};

use super::machine::{KernelHalf, Lists, Machine, Metadata};
use super::objects::Objects;
use crate::Kernel;
use crate::arch::Arch;

/// Why the machine could not be put together.
#[derive(Clone, Debug)]
pub enum SetUpError {
    /// Boot memory ran out.
    Boot(BootMemoryShort),
    /// A size is out of range.
    Lists(ListsError),
    /// The runs of memory are not as they should be.
    Frames(FramesError),
    /// There are too many CPUs.
    Tlb(TlbError),
    /// Frames ran out.
    Frame(NoFrame),
    /// The kernel's half could not be made.
    Map(KernelMapError),
    /// Boot memory is too small for the window on tables.
    Tables,
    /// There is no low memory, or too little for the library's arrays.
    NoLowMemory {
        /// Bytes of the arrays, which are one piece.
        wanted: usize,
        /// Bytes of the largest piece of low memory.
        largest: u64,
    },
}

impl fmt::Display for SetUpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetUpError::Boot(e) => e.fmt(f),
            SetUpError::Lists(e) => e.fmt(f),
            SetUpError::Frames(e) => e.fmt(f),
            SetUpError::Tlb(e) => e.fmt(f),
            SetUpError::Frame(e) => e.fmt(f),
            SetUpError::Map(e) => e.fmt(f),
            SetUpError::Tables => f.write_str("boot memory is short of the window on tables"),
            SetUpError::NoLowMemory { wanted, largest } => write!(
                f,
                "too little low memory: the library's arrays take {} KiB, and the largest free piece has {} KiB",
                wanted >> 10,
                largest >> 10
            ),
        }
    }
}

macro_rules! from {
    ($($error:ty => $variant:ident),*) => {$(
        impl From<$error> for SetUpError {
            fn from(e: $error) -> Self {
                SetUpError::$variant(e)
            }
        }
    )*};
}
from!(
    BootMemoryShort => Boot, ListsError => Lists, FramesError => Frames, TlbError => Tlb, NoFrame => Frame,
    KernelMapError => Map
);

/// An image's description of its machine.
pub struct Board<'a, A: Arch> {
    /// Memory, ascending. The library's own arrays are cut off the largest low run.
    pub runs: &'a mut [MemoryRun],
    /// CPUs, all of which will run.
    pub cpus: usize,
    /// How low memory is reached.
    pub window: A::Window,
    /// TLBs.
    pub hardware: A::Hardware,
    /// Bytes that the image itself wants of boot memory.
    pub extra: usize,
    /// The library's boot parameters.
    pub params: Params,
}

/// Sets the library up; returns the rest of boot memory, for the image.
///
/// # Errors
///
/// [`SetUpError`]: the memory is too small, or not as it should be.
///
/// # Safety
///
/// 1. No other code uses the memory of the runs, now or later; the low ones are reached by the
///    window in every space.
/// 2. It is called once, while one CPU runs.
pub unsafe fn set_up<A: Arch>(
    kernel: &'static Kernel<A>,
    board: Board<'_, A>,
) -> Result<BootMemory, SetUpError> {
    let Board { runs, cpus, window, hardware, extra, params } = board;
    // 1. Boot memory, from which the library cuts its arrays: as much as all of the memory would
    //    need.
    let size = MemorySize::of(runs.iter());
    let lists_config = ListsConfig::new(cpus).with_params(&params);
    let tlb_config = TlbConfig::new(cpus).with_params(&params);
    let metadata = Metadata {
        frames: Frames::bytes(&size),
        data: DataFrames::bytes(cpus, size.nodes()),
        lists: Lists::<A>::bytes(&size, &lists_config),
        tlb: Tlb::<A::Hardware>::bytes(&tlb_config) + Parking::bytes(cpus),
    };
    let wanted = (metadata.total() + A::tables_bytes(cpus) + extra).next_multiple_of(FRAME_SIZE);
    let pages = (wanted / FRAME_SIZE) as u32;
    let largest = runs.iter_mut().filter(|run| run.class == ZoneClass::Low).max_by_key(|run| run.frames);
    let bytes = largest.as_ref().map_or(0, |run| u64::from(run.frames) * FRAME_SIZE as u64);
    let short = SetUpError::NoLowMemory { wanted, largest: bytes };
    let run = largest.filter(|run| run.frames > pages).ok_or(short.clone())?;
    let base = NonNull::new(window.open(run.start.addr()).base()).ok_or(short)?;
    *run = MemoryRun { start: Pfn(run.start.0 + pages), frames: run.frames - pages, ..*run };
    // SAFETY: 1. The caller's (point 1), and no longer part of the run.
    let mut boot = unsafe { BootMemory::new(base, wanted) };

    // 2. Frames: a record for each, and all of them free.
    // SAFETY: 1. Point 1 of the caller's; boot memory has been cut off. 2. The name is new.
    let frames = unsafe { Frames::new(&mut boot, MachineId::new(), runs)? };
    // SAFETY: 1. Point 2 of the caller's.
    let frames = unsafe { kernel.frames.set(frames) };

    // 3. The kernel's half, which every root copies, and the frame of untouched pages.
    let request = Request {
        node: NodeId(0),
        order: 0,
        zero: true,
        class: ZoneClass::Low,
        end: End::Low,
        flags: AllocFlags::NORMAL,
    };
    // SAFETY: 1. The window reaches low memory (`Arch`, point 5), where the request asks for
    // frames, and where roots are.
    let half = unsafe { KernelHalf::<A>::new(frames, window, request)? };
    let root = A::Format::LAYOUT.root();
    let entries = 1usize << A::Format::INDEX_BITS[root.0 as usize];
    for index in A::Format::USER_ROOT_ENTRIES..entries {
        // SAFETY: 1. Entries of the kernel's own root: the user may not use their pages, and the
        // tables that they link stay for good. 2. There are no ranges yet. 3. It was made for them.
        unsafe { half.set(frames, index, A::kernel_entry(index)) };
    }
    // SAFETY: 1. Point 2 of the caller's.
    let half = unsafe { kernel.half.set(half) };
    // SAFETY: 1. As for the kernel's half.
    let zero = unsafe { frames.take(request)?.zeroed(&window) }.into_raw();

    // 4. Lists of table pages, and of data frames.
    // SAFETY: 1. Point 2 of the caller's.
    let tables = unsafe { A::tables(&mut boot, cpus) }.ok_or(SetUpError::Tables)?;
    // SAFETY: 1. Point 2 of the caller's.
    let placement = unsafe { placement(kernel, &tables, params.userpte.unwrap_or_default()) };
    // SAFETY: 1. The window reaches low memory. 2. The kernel's half was made for these frames and
    // this format. 3. The layout is the format's own. 4. `KernelHalf::new` has looked.
    let source = unsafe { Source::new(frames, tables, half, A::Format::LAYOUT) };
    // SAFETY: 1. It reaches all memory where tables may be high (`Arch`, point 6).
    let source = unsafe { source.with_placement(placement) };
    let table_share = match placement {
        Placement::Auto(auto) => auto.share(),
        _ => u32::MAX,
    };
    let lists = Quicklists::new(&mut boot, lists_config, source)?;
    let data = DataFrames::new(&mut boot, frames, cpus)?;

    // 5. TLBs, and the requests that wait for them.
    // SAFETY: 1. The name is new, and no other code makes a `Tlb`.
    let tlb = unsafe { Tlb::new(&mut boot, frames.machine(), tlb_config, hardware)? };
    let parking = Parking::new(&mut boot, frames.machine(), cpus, tlb_config.park)?;

    // 6. All of it together.
    let objects = Objects::new();
    let before = frames.counts().free;
    let machine = Machine {
        frames,
        data,
        low: window,
        tables,
        lists,
        tlb,
        parking,
        zero,
        table_share,
        objects,
        before,
        metadata,
    };
    kernel.set_cpus(cpus);
    // SAFETY: 1. Point 2 of the caller's.
    unsafe { kernel.machine.set(machine) };
    Ok(boot)
}

/// Returns where leaf tables of programs are placed.
///
/// # Safety
///
/// 1. It is called once, while one CPU runs, after `kernel.frames` was set.
unsafe fn placement<A: Arch>(
    kernel: &'static Kernel<A>,
    tables: &A::Tables,
    wanted: UserPte,
) -> Placement<'static> {
    let frames = kernel.frames.get();
    if !A::HIGH_TABLES || !frames.has_high() {
        return Placement::Low;
    }
    match wanted {
        UserPte::NoHigh => Placement::Low,
        UserPte::High => Placement::High,
        UserPte::Auto(params) => {
            let costs = AutoCosts { map_ns: map_ns::<A>(frames, tables), ..AutoCosts::default() };
            // SAFETY: 1. Point 1 is passed on.
            Placement::Auto(unsafe { kernel.auto.set(AutoPlacement::new(frames, &params, costs)) })
        }
    }
}

/// Measures the time to open a high frame and to close it again, in nanoseconds.
fn map_ns<A: Arch>(frames: &Frames, tables: &A::Tables) -> u32 {
    const TIMES: u64 = 256;
    let request = Request {
        node: NodeId(0),
        order: 0,
        zero: false,
        class: ZoneClass::High,
        end: End::Low,
        flags: AllocFlags::NORMAL,
    };
    let Ok(taken) = frames.take(request) else { return AutoCosts::default().map_ns };
    let begin = A::now();
    for _ in 0..TIMES {
        core::hint::black_box(tables.open(taken.pfn().addr()).base());
    }
    let ns = (A::now() - begin) / TIMES;
    match taken {
        Taken::Zero(frame) => frames.give(frame),
        Taken::Dirty(frame) => frames.give(frame),
    }
    ns as u32
}
