// What the fragment of docs/porting.md presupposes: a kernel on one CPU, whose memory is this
// process's, and whose TLB has nothing in it. The format is one of the library's with three levels
// or four; the fragment names it Sv39.
use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, CpuSet, MachineId, NodeId, Pinned};
use ptarmigan::format::{Format, X86_64 as Sv39};
use ptarmigan::frames::{
    AllocFlags, DataFrames, End, Frames, MemoryRun, MemorySize, NoFrame, Request, ZoneClass,
};
use ptarmigan::machine::Machine as _;
use ptarmigan::quicklist::{ListsConfig, Quicklists, Source};
use ptarmigan::space::{Access, AreaFlags, SharedSpace, Space, SpaceMachine};
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::{CostModel, Costs, Invalidation, Ipi, Mmu, Parking, Root, Scope, SpaceId, Tlb, TlbConfig, Structures};
use ptarmigan::window::DirectMap;
use std::ptr::NonNull;
use std::sync::OnceLock;

type Lists = Quicklists<'static, DirectMap, KernelMap<Sv39, DirectMap>>;

struct Harts;

// SAFETY: nothing translates by these tables, so there is nothing to forget. Nothing unwinds.
unsafe impl Mmu for Harts {
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    fn load(&self, _: &Pinned<'_>, _: &Root) {}
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
}

impl Ipi for Harts {
    fn send(&self, _: &Pinned<'_>, _: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {}
    fn wait(&self, _: &Pinned<'_>, _: u32) {}
}

struct Machine {
    frames: &'static Frames,
    data: DataFrames,
    window: DirectMap,
    lists: Lists,
    tlb: Tlb<Harts>,
    parking: Parking,
    zero: Pfn,
}

// SAFETY: all parts are made for the one `Frames` and for one CPU, and are fields of a static. The
// direct map has all frames; the spaces of the fragment never copy or clear data.
unsafe impl ptarmigan::machine::Machine for Machine {
    type Window = DirectMap;
    type Policy = Lists;
    type Shootdown = Harts;

    fn frames(&self) -> &Frames {
        self.frames
    }
    fn data(&self) -> &DataFrames {
        &self.data
    }
    fn window(&self) -> &DirectMap {
        &self.window
    }
    fn policy(&self) -> &Lists {
        &self.lists
    }
    fn tlb(&self) -> &Tlb<Harts> {
        &self.tlb
    }
    fn parking(&self) -> &Parking {
        &self.parking
    }
    fn data_has_memory(&self) -> bool {
        false
    }
    unsafe fn clear_data(&self, _: &Pinned<'_>, _: Pfn) -> Result<(), NoFrame> {
        Ok(())
    }
    unsafe fn copy_data(&self, _: &Pinned<'_>, _: Pfn, _: Pfn) -> Result<(), NoFrame> {
        Ok(())
    }
}

// SAFETY: the frame was taken for this and holds zeroes. There are no files.
unsafe impl SpaceMachine for Machine {
    fn zero_frame(&self) -> Pfn {
        self.zero
    }
    fn backing_frame(&self, _: u32, _: u64) -> Option<Pfn> {
        None
    }
}

/// A static that is set once.
struct Late<T>(OnceLock<T>);

impl<T> Late<T> {
    fn set(&self, value: T) -> &T {
        self.0.get_or_init(|| value)
    }
}

static FRAMES: Late<Frames> = Late(OnceLock::new());
static MACHINE: Late<Machine> = Late(OnceLock::new());

fn machine() -> &'static Machine {
    MACHINE.0.get().expect("it is set up")
}

fn asid_bits() -> u32 {
    0
}

fn boot_root_entry(_: usize) -> u64 {
    0
}

/// Memory of the machine, aligned to frames.
#[repr(align(4096))]
struct Memory(#[allow(dead_code)] [u8; 16 << 20]);

let (start, cpus, cpu) = (0x10_0000_u64, 1, CpuId(0));
let limit = start + size_of::<Memory>() as u64;
// SAFETY: zeroes are a value of the type.
let memory = Box::leak(unsafe { Box::<Memory>::new_zeroed().assume_init() });
let base = NonNull::from(memory).cast::<u8>();
let zero_address = base.as_ptr().wrapping_sub(start as usize);
let run_from = |from: u64| MemoryRun {
    start: PhysAddr(from).pfn(),
    frames: ((limit - from) / FRAME_SIZE as u64) as u32,
    node: NodeId(0),
    class: ZoneClass::Low,
};
let range = VirtRange { start: 0x40_0000, end: 0x50_0000 };
let at = 0x40_0123;
