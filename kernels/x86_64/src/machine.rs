//! The library's view of this machine: one CPU, one node, all memory in the direct map, frames to
//! spare.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};

use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};
use ptarmigan::bootmem::{BootMemory, BootMemoryShort};
use ptarmigan::cpu::{CpuId, CpuSet, MachineId, NodeId, Pinned, WrongMachine};
use ptarmigan::format::X86_64;
use ptarmigan::frames::{
    AllocFlags, DataFrames, End, Frames, FramesError, MemoryRun, NoFrame, Request, ZoneClass,
};
use ptarmigan::machine::{self, Machine as _, On};
use ptarmigan::quicklist::{Layered, ListsConfig, ListsError, Quicklists, Source};
use ptarmigan::table::{KernelMap, KernelMapError};
use ptarmigan::tlb::{
    Invalidation, Ipi, Mmu, Parking, Root, Scope, SpaceId, Structures, Tlb, TlbConfig, TlbError,
};
use ptarmigan::window::DirectMap;

use ptarmigan_kernel_mailbox::{self as mailbox, Announced};
use ptarmigan_kernel_x86::table;

use crate::boot::{self, Region};
use crate::mmu::{self, DIRECT_MAP};

/// The kernel's half of all tops.
pub type Kernel = KernelMap<X86_64, DirectMap>;

/// The lists, which a recorder is told of.
type Lists<'m> = Layered<Announced<'m, X86_64, ()>, Quicklists<'m, DirectMap, &'m Kernel>>;

/// The one CPU: there is nobody to interrupt and wait for.
pub struct OneCpu;

/// Flushes are left out on purpose: a run in which they are must fail.
static WITHOUT_FLUSH: AtomicBool = AtomicBool::new(false);

/// Leaves all flushes out from here on.
pub fn leave_flushes_out() {
    WITHOUT_FLUSH.store(true, Ordering::Relaxed);
}

/// Tells the recorder, if there is one, what the next instruction of address translation uses.
/// Interrupts are never enabled.
fn operand(value: u64) {
    mailbox::send(0, mailbox::code::OPERAND, [value, 0, 0, 0]);
}

/// Loads a root.
///
/// # Safety
///
/// 1. The tree maps the kernel as the current one does, and stays until the next load.
unsafe fn load_root(root: u64) {
    operand(root);
    // SAFETY: 1. Point 1 is passed on.
    unsafe { table::load_root(root) };
}

// SAFETY: 1. and 2. INVLPG drops the page, global or not, and all paging-structure caches; a load
// of CR3 drops everything that is not global, and nothing here is global. 3. Likewise. 4. The
// kernel's own tables map nothing of the user's.
// 5. There is one CPU. Its MMU walks tables by itself and caches no entry that is not present.
// 6. No root is kept.
// 7. Nothing unwinds.
unsafe impl Mmu for OneCpu {
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        self.invalidate_kernel(pin, &what.scope);
    }

    fn invalidate_kernel(&self, _pin: &Pinned<'_>, scope: &Scope) {
        if WITHOUT_FLUSH.load(Ordering::Relaxed) {
            return;
        }
        match scope.pages() {
            Some(pages) => pages.for_each(|at| {
                operand(at);
                table::invalidate_page(at);
            }),
            // SAFETY: the tree that is loaded already.
            None => unsafe { load_root(table::current_root()) },
        }
    }

    fn load(&self, _pin: &Pinned<'_>, root: &Root) {
        // SAFETY: the library's tops carry the kernel's half, and their tree lives until `unload`.
        unsafe { load_root(root.at.0) };
    }

    fn unload(&self, _pin: &Pinned<'_>, _space: SpaceId) {
        // SAFETY: the table the machine booted on maps the kernel and is a static.
        unsafe { load_root(boot::kernel_top().physical(DIRECT_MAP)) };
    }
}

impl Ipi for OneCpu {
    fn send(&self, _pin: &Pinned<'_>, _cpus: &CpuSet, _serve: &dyn Fn(&Pinned<'_>)) {}
}

/// All parts together.
pub struct Machine<'m> {
    frames: &'m Frames,
    data: DataFrames,
    window: DirectMap,
    kernel: &'m Kernel,
    lists: Lists<'m>,
    tlb: Tlb<OneCpu>,
    parking: Parking,
}

/// Why the machine could not be put together.
#[derive(Debug)]
pub enum SetUp {
    /// Boot memory ran out.
    Boot(#[expect(dead_code, reason = "printed by Debug")] BootMemoryShort),
    /// A size is out of range.
    Lists(#[expect(dead_code, reason = "printed by Debug")] ListsError),
    /// There are too many CPUs.
    Tlb(#[expect(dead_code, reason = "printed by Debug")] TlbError),
    /// The memory is not as it should be.
    Frames(#[expect(dead_code, reason = "printed by Debug")] FramesError),
    /// A layer is of another machine than the lists.
    Machine(#[expect(dead_code, reason = "printed by Debug")] WrongMachine),
    /// Frames ran out.
    Frame(#[expect(dead_code, reason = "printed by Debug")] NoFrame),
    /// The kernel's half could not be made.
    Map(#[expect(dead_code, reason = "printed by Debug")] KernelMapError),
}

impl From<WrongMachine> for SetUp {
    fn from(e: WrongMachine) -> Self {
        SetUp::Machine(e)
    }
}

impl From<ListsError> for SetUp {
    fn from(e: ListsError) -> Self {
        SetUp::Lists(e)
    }
}

impl From<TlbError> for SetUp {
    fn from(e: TlbError) -> Self {
        SetUp::Tlb(e)
    }
}

impl From<FramesError> for SetUp {
    fn from(e: FramesError) -> Self {
        SetUp::Frames(e)
    }
}

impl From<BootMemoryShort> for SetUp {
    fn from(e: BootMemoryShort) -> Self {
        SetUp::Boot(e)
    }
}

impl From<NoFrame> for SetUp {
    fn from(e: NoFrame) -> Self {
        SetUp::Frame(e)
    }
}

impl From<KernelMapError> for SetUp {
    fn from(e: KernelMapError) -> Self {
        SetUp::Map(e)
    }
}

/// First address behind the memory that the direct map covers in every space: 4 GiB.
const DIRECT_MAP_LIMIT: u64 = 1 << 32;

/// The direct map.
fn direct_map() -> DirectMap {
    // SAFETY: 1. Frames of the library are below 4 GiB, which the direct map covers in every space.
    // 2. Besides, they are reached through user mappings only for the test to compare what it
    // reads.
    unsafe { DirectMap::new(ptr::with_exposed_provenance_mut(DIRECT_MAP as usize), DIRECT_MAP_LIMIT) }
        .unwrap_or_else(|e| panic!("{e}"))
}

/// Splits `region`: boot memory from its start, and the frames that are left.
///
/// # Safety
///
/// Nobody uses the region, now or later, except through what is returned.
pub unsafe fn memory(region: Region) -> Result<(BootMemory, Frames), SetUp> {
    // Records take 1/256 of the memory, lists less than that.
    let for_boot = (region.len / 64).next_multiple_of(FRAME_SIZE as u64).min(region.len);
    let base = NonNull::new(mmu::direct::<u8>(region.start)).unwrap_or(NonNull::dangling());
    // SAFETY: the block is the caller's, and mapped in every space.
    let mut boot = unsafe { BootMemory::new(base, for_boot as usize) };
    let run = MemoryRun {
        start: PhysAddr(region.start + for_boot).pfn(),
        frames: ((region.len - for_boot) / FRAME_SIZE as u64) as u32,
        node: NodeId(0),
        class: ZoneClass::Low,
    };
    // SAFETY: 1. the region is the caller's, and boot memory ends where the run begins. 2. The
    // identity is new.
    let frames = unsafe { Frames::new(&mut boot, MachineId::new(), &[run])? };
    Ok((boot, frames))
}

/// The kernel's half of all tops: what the table has that the machine booted on.
pub fn kernel_half(frames: &Frames) -> Result<Kernel, SetUp> {
    let request = Request {
        node: NodeId(0),
        order: 0,
        zero: true,
        class: ZoneClass::Low,
        end: End::Low,
        flags: AllocFlags::NORMAL,
    };
    // SAFETY: 1. the direct map covers all frames of the library.
    let kernel = unsafe { Kernel::new(frames, direct_map(), request)? };
    for slot in 256..512 {
        // SAFETY: 1. entries of the table the machine booted on: the user may use none of what
        // they map, and the tables that they link are statics.
        unsafe { kernel.set(frames, slot, boot::kernel_top().get(slot)) };
    }
    Ok(kernel)
}

impl<'m> Machine<'m> {
    /// Puts the parts together.
    ///
    /// # Safety
    ///
    /// 1. No other machine is made of `frames`, of which `kernel` is the kernel's half.
    pub unsafe fn new(boot: &mut BootMemory, frames: &'m Frames, kernel: &'m Kernel) -> Result<Self, SetUp> {
        let layout = <X86_64 as ptarmigan::format::Format>::LAYOUT;
        // SAFETY: 1. the direct map covers all frames of the library. 2. the map was made for them
        // and for this format. 3. four levels, whose tables are frames.
        let source = unsafe { Source::new(frames, direct_map(), kernel, layout) };
        let lists = Quicklists::new(boot, ListsConfig::new(1), source)?;
        let lists = Layered::new(Announced::new(frames, || ()), lists).map_err(|refused| refused.error)?;
        let data = DataFrames::new(boot, frames, 1)?;
        // SAFETY: 1. no other machine has this name, by the caller's point 1.
        let tlb = unsafe { Tlb::new(boot, frames.machine(), TlbConfig::new(1), OneCpu)? };
        let parking = Parking::new(boot, frames.machine(), 1, 0)?;
        Ok(Machine { frames, data, window: direct_map(), kernel, lists, tlb, parking })
    }

    /// Proof of being on the one CPU.
    pub fn pin(&self) -> Pinned<'static> {
        // SAFETY: 1. There is one CPU and no thread but this; exceptions return before what they
        // interrupt goes on.
        // 2. The machine has one CPU and one node.
        unsafe { Pinned::assume(self.frames.machine(), CpuId(0), NodeId(0)) }
    }

    /// The kernel's half of all spaces.
    pub fn kernel(&self) -> &'m Kernel {
        self.kernel
    }

    /// The machine, seen from its CPU.
    pub fn here<'a>(&'a self, pin: &'a Pinned<'a>) -> On<'a, Self> {
        self.on(pin).unwrap_or_else(|e| panic!("{e}"))
    }
}

// SAFETY: 1. `new` makes all of them for the machine of `frames`, for one CPU on one node. 2. They
// are fields. 3. The direct map has all frames; both functions write to the frame that is named.
unsafe impl<'m> machine::Machine for Machine<'m> {
    type Window = DirectMap;
    type Policy = Lists<'m>;
    type Shootdown = OneCpu;

    fn frames(&self) -> &Frames {
        self.frames
    }

    fn data(&self) -> &DataFrames {
        &self.data
    }

    fn window(&self) -> &DirectMap {
        &self.window
    }

    fn policy(&self) -> &Self::Policy {
        &self.lists
    }

    fn tlb(&self) -> &Tlb<OneCpu> {
        &self.tlb
    }

    fn parking(&self) -> &Parking {
        &self.parking
    }

    fn data_has_memory(&self) -> bool {
        true
    }

    unsafe fn copy_data(&self, _: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        let (from, to) = (mmu::direct::<u8>(from.addr().0), mmu::direct::<u8>(to.addr().0));
        // SAFETY: `to` has just been taken for the caller, which has not mapped it yet; `from` is
        // another frame.
        unsafe { ptr::copy_nonoverlapping(from, to, FRAME_SIZE) };
        Ok(())
    }

    unsafe fn clear_data(&self, _: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        // SAFETY: the frame has just been taken for the caller, which has not mapped it yet.
        unsafe { ptr::write_bytes(mmu::direct::<u8>(frame.addr().0), 0, FRAME_SIZE) };
        Ok(())
    }
}
