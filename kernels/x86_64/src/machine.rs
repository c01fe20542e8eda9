//! The library's view of this machine: one CPU, one node, all memory in the direct map, frames to
//! spare.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};

use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};
use ptarmigan::arch::NoIpi;
use ptarmigan::arch::x86_64::{Cpu, Features, Instructions, Invpcid, X86Mmu};
use ptarmigan::bootmem::{BootMemory, BootMemoryShort};
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned, WrongMachine};
use ptarmigan::format::X86_64;
use ptarmigan::frames::{
    AllocFlags, DataFrames, End, Frames, FramesError, MemoryRun, NoFrame, Request, ZoneClass,
};
use ptarmigan::machine::{self, Machine as _, On};
use ptarmigan::quicklist::{Layered, ListsConfig, ListsError, Quicklists, Source};
use ptarmigan::table::{KernelMap, KernelMapError};
use ptarmigan::tlb::{Parking, Tlb, TlbConfig, TlbError};
use ptarmigan::window::DirectMap;

use ptarmigan_kernel_mailbox::{self as mailbox, Announced};

use crate::boot::{self, Region};
use crate::mmu::{self, DIRECT_MAP};

/// The kernel's half of all tops.
pub type Kernel = KernelMap<X86_64, DirectMap>;

/// The lists, which a recorder is told of.
type Lists<'m> = Layered<Announced<'m, X86_64, ()>, Quicklists<'m, DirectMap, &'m Kernel>>;

/// The MMU of the one CPU, which has no other to interrupt.
pub type OneCpu = X86Mmu<NoIpi, Announcing>;

/// Flushes are left out on purpose: a run in which they are must fail.
static WITHOUT_FLUSH: AtomicBool = AtomicBool::new(false);

/// Leaves all flushes out from here on.
pub fn leave_flushes_out() {
    WITHOUT_FLUSH.store(true, Ordering::Relaxed);
}

/// Tells the recorder, if there is one, the operand of the next instruction of address translation.
/// Interrupts are never enabled.
fn operand(value: u64) {
    mailbox::send(0, mailbox::code::OPERAND, [value, 0, 0, 0]);
}

/// The instructions of the CPU, announced to a recorder.
pub struct Announcing;

// SAFETY: Each function has the CPU execute the instruction, unless the run leaves flushes out: then
// none forgets, which such a run is to show.
unsafe impl Instructions for Announcing {
    fn invlpg(&self, pin: &Pinned<'_>, at: u64) {
        if !WITHOUT_FLUSH.load(Ordering::Relaxed) {
            operand(at);
            Cpu.invlpg(pin, at);
        }
    }

    fn invpcid(&self, pin: &Pinned<'_>, what: Invpcid) {
        if !WITHOUT_FLUSH.load(Ordering::Relaxed) {
            Cpu.invpcid(pin, what);
        }
    }

    fn cr3(&self, pin: &Pinned<'_>) -> u64 {
        Cpu.cr3(pin)
    }

    unsafe fn load_cr3(&self, pin: &Pinned<'_>, value: u64) {
        // The root that is loaded already: a flush.
        if WITHOUT_FLUSH.load(Ordering::Relaxed) && value == Cpu.cr3(pin) {
            return;
        }
        operand(value);
        // SAFETY: 1. of the caller's.
        unsafe { Cpu.load_cr3(pin, value) };
    }

    fn toggle_pge(&self, pin: &Pinned<'_>) {
        if !WITHOUT_FLUSH.load(Ordering::Relaxed) {
            Cpu.toggle_pge(pin);
        }
    }
}

/// Makes the MMU.
fn one_cpu() -> OneCpu {
    // SAFETY: 1. The kernel sets neither CR4.PGE nor CR4.PCIDE. 2. It is false.
    let mmu = unsafe { X86Mmu::with_features(NoIpi, Announcing, Features::NONE) };
    // SAFETY: 1. The table that the machine booted on maps the kernel and is a static; it
    // maps nothing of the user's.
    unsafe { mmu.with_kernel_root(PhysAddr(boot::kernel_top().physical(DIRECT_MAP))) }
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
        let tlb = unsafe { Tlb::new(boot, frames.machine(), TlbConfig::new(1), one_cpu())? };
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
