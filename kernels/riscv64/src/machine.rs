//! The library's view of this machine: memory in the direct map, harts that invalidate for
//! themselves and interrupt each other, and the order in which the parts are set up.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};
use ptarmigan::arch::riscv64::SfenceVma;
use ptarmigan::bootmem::{BootMemory, BootMemoryShort};
use ptarmigan::cpu::{CpuId, CpuSet, MachineId, NodeId, Pinned, WrongMachine};
use ptarmigan::format::{Format, Sv39};
use ptarmigan::frames::{
    AllocFlags, DataFrames, End, Frames, FramesError, MemoryRun, MemorySize, NoFrame, Request, ZoneClass,
};
use ptarmigan::machine::{self, Machine as _, On};
use ptarmigan::quicklist::{Layered, ListsConfig, ListsError, Policy, Quicklists, Source};
use ptarmigan::space::SpaceMachine;
use ptarmigan::table::{KernelMap, KernelMapError};
use ptarmigan::tlb::{CostModel, Costs, Ipi, Mmu, Parking, Runs, Tlb, TlbConfig, TlbError, TlbRefusal};
use ptarmigan::window::{DirectMap, OutOfReach};
use ptarmigan_kernel_mailbox::Announced;

use crate::irq::{self, HARTS};
use crate::late::Late;
use crate::mmu::{self, Announcing, DIRECT_MAP, DIRECT_MAP_LIMIT};
use crate::rt::fail;
use crate::without::{Part, leaves_out};
use crate::{program, sbi};

/// The kernel's half of all roots.
type KernelHalf = KernelMap<Sv39, DirectMap>;
type Lists = Layered<Announced<'static, Sv39, irq::Masked>, Quicklists<'static, DirectMap, KernelHalf>>;

/// ASIDs that each hart uses at most, of those that it has.
const ASIDS: u16 = 64;
/// Forgetting one page is one instruction, and there is none for a range: a run of pages costs
/// nothing besides. Above 64 pages the whole space is cheaper, as Linux has it on RISC-V.
const COSTS: CostModel = CostModel::Costs(Costs::new(1, 64));

/// Numbers of harts by CPU. The assembly looks for its own, from CPU 1 on.
#[unsafe(export_name = "hart_ids")]
static HART_IDS: [AtomicU64; HARTS] = [const { AtomicU64::new(0) }; HARTS];

/// Says which hart a CPU is.
pub fn set_hart(cpu: usize, hart: u64) {
    if let Some(id) = HART_IDS.get(cpu) {
        id.store(hart, Ordering::Relaxed);
    }
}

/// Interrupts a CPU.
pub fn interrupt(cpu: usize) {
    let hart = HART_IDS.get(cpu).map_or(0, |id| id.load(Ordering::Relaxed));
    let _ = sbi::interrupt(1 << hart);
}

/// Proof of being on this CPU.
pub fn pin() -> Pinned<'static> {
    // SAFETY: 1. The kernel is not preempted: a task gives its hart up only by returning to the
    // loop in `task`, and handlers of interrupts return before what they interrupt goes on. 2. CPU
    // numbers are below the number of harts that everything is made for: `main` starts no others.
    unsafe { Pinned::assume(machine().id(), CpuId(irq::cpu() as u16), NodeId(0)) }
}

/// The machine, seen from where the pin says that code runs.
pub fn on<'a>(pin: &'a Pinned<'a>) -> On<'a, Machine> {
    match machine().on(pin) {
        Ok(on) => on,
        Err(e) => fail(format_args!("{e}")),
    }
}

/// The MMUs of the harts.
pub type Harts = SfenceVma<Interrupts, Announcing>;

/// Makes them.
fn harts() -> Harts {
    // SAFETY: 1. All harts are alike.
    let mmu = unsafe { SfenceVma::with_asids(Interrupts, Announcing, mmu::highest_asid()) };
    // SAFETY: 1. It maps the kernel and is a static.
    unsafe { mmu.with_kernel_root(PhysAddr(mmu::kernel_root())) }
}

/// The interrupts between harts.
pub struct Interrupts;

/// A wait of so many ticks is none any more.
pub const PATIENCE: u64 = 10_000 * sbi::TICKS_PER_MS;

impl Ipi for Interrupts {
    fn send(&self, _pin: &Pinned<'_>, cpus: &CpuSet, _serve: &dyn Fn(&Pinned<'_>)) {
        if leaves_out(Part::Ipi) {
            return;
        }
        cpus.iter().for_each(|cpu| interrupt(cpu.0 as usize));
    }

    fn wait(&self, pin: &Pinned<'_>, turn: u32) {
        static SINCE: [AtomicU64; HARTS] = [const { AtomicU64::new(0) }; HARTS];
        core::hint::spin_loop();
        if turn % 1024 != 1 {
            return;
        }
        let Some(since) = SINCE.get(pin.cpu().0 as usize) else { return };
        if turn == 1 {
            since.store(sbi::time(), Ordering::Relaxed);
        } else if sbi::time().wrapping_sub(since.load(Ordering::Relaxed)) > PATIENCE {
            fail(format_args!("a hart does not answer"));
        }
    }
}

/// All parts together.
pub struct Machine {
    frames: &'static Frames,
    data: DataFrames,
    window: DirectMap,
    lists: Lists,
    tlb: Tlb<Harts>,
    parking: Parking,
    zero: Pfn,
    /// Free frames, and bytes of the library's own, when all was set up.
    before: u32,
    /// What the library's own arrays take.
    pub metadata: Metadata,
}

/// Bytes of the library's own arrays.
pub struct Metadata {
    /// Records of frames and zones.
    pub frames: usize,
    /// Lists of data frames.
    pub data: usize,
    /// Quicklists.
    pub lists: usize,
    /// TLB state.
    pub tlb: usize,
}

impl Metadata {
    fn total(&self) -> usize {
        self.frames + self.data + self.lists + self.tlb
    }
}

/// Why the machine could not be put together.
#[derive(Debug)]
pub enum SetUpError {
    /// Boot memory ran out.
    Boot(#[expect(dead_code, reason = "printed by Debug")] BootMemoryShort),
    /// A size is out of range.
    Lists(#[expect(dead_code, reason = "printed by Debug")] ListsError),
    /// The run of memory is not as it should be.
    Frames(#[expect(dead_code, reason = "printed by Debug")] FramesError),
    /// There are too many CPUs.
    Tlb(#[expect(dead_code, reason = "printed by Debug")] TlbError),
    /// A layer is of another machine than the lists.
    Machine(#[expect(dead_code, reason = "printed by Debug")] WrongMachine),
    /// Frames ran out.
    Frame(#[expect(dead_code, reason = "printed by Debug")] NoFrame),
    /// The kernel's half could not be made.
    Map(#[expect(dead_code, reason = "printed by Debug")] KernelMapError),
    /// Addresses do not reach over all memory.
    Window(#[expect(dead_code, reason = "printed by Debug")] OutOfReach),
}

impl From<WrongMachine> for SetUpError {
    fn from(e: WrongMachine) -> Self {
        SetUpError::Machine(e)
    }
}

impl From<ListsError> for SetUpError {
    fn from(e: ListsError) -> Self {
        SetUpError::Lists(e)
    }
}

impl From<FramesError> for SetUpError {
    fn from(e: FramesError) -> Self {
        SetUpError::Frames(e)
    }
}

impl From<TlbError> for SetUpError {
    fn from(e: TlbError) -> Self {
        SetUpError::Tlb(e)
    }
}

impl From<BootMemoryShort> for SetUpError {
    fn from(e: BootMemoryShort) -> Self {
        SetUpError::Boot(e)
    }
}

impl From<OutOfReach> for SetUpError {
    fn from(e: OutOfReach) -> Self {
        SetUpError::Window(e)
    }
}

impl From<NoFrame> for SetUpError {
    fn from(e: NoFrame) -> Self {
        SetUpError::Frame(e)
    }
}

impl From<KernelMapError> for SetUpError {
    fn from(e: KernelMapError) -> Self {
        SetUpError::Map(e)
    }
}

static FRAMES: Late<Frames> = Late::new();
static MACHINE: Late<Machine> = Late::new();
static CPUS: AtomicUsize = AtomicUsize::new(1);

/// The machine.
pub fn machine() -> &'static Machine {
    MACHINE.get()
}

/// CPUs that everything is made for.
pub fn cpus() -> usize {
    CPUS.load(Ordering::Relaxed)
}

/// The direct map.
fn direct_map() -> Result<DirectMap, OutOfReach> {
    // SAFETY: 1. The direct map covers that memory in every space, for good. 2. User mappings of a
    // frame are used by user code alone, in which there are no Rust objects of the kernel's.
    unsafe { DirectMap::new(ptr::with_exposed_provenance_mut(DIRECT_MAP as usize), DIRECT_MAP_LIMIT) }
}

/// Sets the library up on the memory from `start` to `end`.
///
/// # Errors
///
/// [`SetUpError`]: the memory is too small.
///
/// # Safety
///
/// 1. Nobody else uses that memory, now or later, and it is in the direct map.
/// 2. It is called once, while one hart runs.
pub unsafe fn set_up(start: u64, end: u64, cpus: usize) -> Result<&'static Machine, SetUpError> {
    CPUS.store(cpus, Ordering::Relaxed);
    // 1. Boot memory, from which the library carves its arrays: as much as all of the memory would
    //    need.
    let run_from = |from: u64| MemoryRun {
        start: PhysAddr(from).pfn(),
        frames: ((end - from) / FRAME_SIZE as u64) as u32,
        node: NodeId(0),
        class: ZoneClass::Low,
    };
    let size = MemorySize::of([run_from(start)]);
    let lists_config = ListsConfig::new(cpus);
    // ASID 0 is the kernel's.
    let numbers = if leaves_out(Part::Asids) { 0 } else { mmu::highest_asid() };
    let tlb_config = TlbConfig { costs: COSTS, asids: ASIDS.min(numbers), ..TlbConfig::new(cpus) };
    let metadata = Metadata {
        frames: Frames::bytes(&size),
        data: DataFrames::bytes(cpus, size.nodes()),
        lists: Quicklists::<'static, DirectMap, KernelHalf>::bytes(&size, &lists_config),
        tlb: Tlb::<Harts>::bytes(&tlb_config) + Parking::bytes(cpus),
    };
    let for_boot = (metadata.total() as u64).next_multiple_of(FRAME_SIZE as u64);
    let base = NonNull::new(mmu::direct::<u8>(start)).unwrap_or(NonNull::dangling());
    // SAFETY: 1. The caller's, and mapped for good.
    let mut boot = unsafe { BootMemory::new(base, for_boot as usize) };

    // 2. Frames: a record for each, and all of them free.
    // SAFETY: 1. Point 1 of the caller's; boot memory is before it. 2. The name is new.
    let frames = unsafe { Frames::new(&mut boot, MachineId::new(), &[run_from(start + for_boot)])? };
    // SAFETY: 1. Point 2 of the caller's.
    let frames = unsafe { FRAMES.set(frames) };

    // 3. The kernel's half, which every root copies, and the frame of untouched pages.
    let window = direct_map()?;
    let request = Request {
        node: NodeId(0),
        order: 0,
        zero: true,
        class: ZoneClass::Low,
        end: End::Low,
        flags: AllocFlags::NORMAL,
    };
    // SAFETY: 1. All frames are below 4 GiB (point 1 of the caller's).
    let kernel = unsafe { KernelHalf::new(frames, window, request)? };
    for index in mmu::KERNEL_FIRST..mmu::ENTRIES {
        // SAFETY: 1. The kernel's own, which the user may not use; the one table that is linked is
        // a static.
        unsafe { kernel.set(frames, index, mmu::kernel_entry(index)) };
    }
    // SAFETY: 1. As above.
    let zero = unsafe { frames.take(request)?.zeroed(&window) }.into_raw();

    // 4. Lists of table pages, and of data frames. SAFETY: 1. As above. 2. The map was made for
    //    these frames and this format. 3. Three levels, whose tables are frames.
    let source = unsafe { Source::new(frames, window, kernel, Sv39::LAYOUT) };
    let lists = Quicklists::new(&mut boot, lists_config, source)?;
    let lists =
        Layered::new(Announced::new(frames, irq::Masked::new), lists).map_err(|refused| refused.error)?;
    let data = DataFrames::new(&mut boot, frames, cpus)?;

    // 5. TLBs, and what waits for them.
    // SAFETY: 1. The name is new, and nothing else makes a `Tlb`.
    let tlb = unsafe { Tlb::new(&mut boot, frames.machine(), tlb_config, harts())? };
    let parking = Parking::new(&mut boot, frames.machine(), cpus, tlb_config.park)?;

    // 6. All of it together.
    let before = frames.counts().free;
    let machine = Machine { frames, data, window, lists, tlb, parking, zero, before, metadata };
    // SAFETY: 1. Point 2 of the caller's.
    Ok(unsafe { MACHINE.set(machine) })
}

// SAFETY: 1. `set_up` makes all of them for the one `Frames` and the same number of CPUs, on one
// node. 2. They are fields of a static. 3. The direct map has all frames; both functions write to
// the frame that is named.
unsafe impl machine::Machine for Machine {
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

    fn before_executable(&self, pin: &Pinned<'_>, _first: Pfn, _frames: u64) {
        self.tlb.hardware().invalidate_code(pin);
    }

    fn data_has_memory(&self) -> bool {
        true
    }

    unsafe fn clear_data(&self, _: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        if leaves_out(Part::Clear) {
            return Ok(());
        }
        // SAFETY: the frame has just been taken for the caller, which has not mapped it yet.
        unsafe { ptr::write_bytes(mmu::direct::<u8>(frame.addr().0), 0, FRAME_SIZE) };
        Ok(())
    }

    unsafe fn copy_data(&self, _: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        if leaves_out(Part::Copy) {
            return Ok(());
        }
        let (from, to) = (mmu::direct::<u8>(from.addr().0), mmu::direct::<u8>(to.addr().0));
        // SAFETY: `to` has just been taken and is not mapped yet; `from` is another frame, which
        // nobody writes to while it is shared.
        unsafe { ptr::copy_nonoverlapping(from, to, FRAME_SIZE) };
        Ok(())
    }
}

// SAFETY: 1. The frame was taken for this and holds zeroes; entries that show it do not let writes
// through. 2. The program's pages are constants of the image, mapped without the permission to
// write, and no frames of the library's.
unsafe impl SpaceMachine for Machine {
    fn zero_frame(&self) -> Pfn {
        self.zero
    }

    fn backing_frame(&self, object: u32, page: u64) -> Option<Pfn> {
        program::frame(object, page)
    }
}

impl Machine {
    /// Carries out what other harts ask of this one. Called by the handler of software interrupts.
    pub fn answer(&self) {
        let pin = pin();
        irq::set_answering(&pin, true);
        self.tlb.serve(&pin);
        irq::set_answering(&pin, false);
    }

    /// Has all harts forget pages of the kernel's half.
    pub fn flush_kernel(&self, pin: &Pinned<'_>, stale: &Runs) -> Result<(), TlbRefusal> {
        self.tlb.flush_kernel(pin, stale)
    }

    /// Gives back what this CPU's lists hold, and with `all` what the node's do.
    pub fn drain(&self, all: bool) {
        let pin = pin();
        let on = on(&pin);
        on.drain();
        if all {
            on.policy().reclaim(NodeId(0), u32::MAX);
        }
    }

    /// Checks, after every CPU has drained its lists, that every frame is back.
    pub fn check_balance(&self) {
        let (live, cached) = (self.lists.counts().live(), self.lists.counts().cached());
        let free = self.frames.counts().free;
        if (live, cached, free) != (0, 0, self.before) {
            fail(format_args!(
                "frames: {free} free, {} before; {live} tables live, {cached} cached",
                self.before
            ));
        }
    }

    /// Prints what was counted, and the number of interrupts from other harts that came while the
    /// library was at work for a task.
    pub fn report(&self, interrupts: u64) {
        let flushes = self.tlb.counts();
        let misses: usize = self.lists.counts().levels.iter().map(|level| level.misses).sum();
        let allocs: usize = self.lists.counts().levels.iter().map(|level| level.allocs).sum();
        crate::say!("tables: {allocs} handed out, {misses} of them from the allocator");
        crate::say!(
            "flushes: {} page, {} range, {} full, {} of the kernel's half; {} requests to other harts, {} too late; \
             {interrupts} interrupts in calls",
            flushes.page,
            flushes.range,
            flushes.full,
            flushes.kernel,
            flushes.asked,
            flushes.skipped
        );
        let Metadata { frames, data, lists, tlb } = self.metadata;
        let total = self.frames.counts().total;
        crate::say!(
            "metadata: {frames} bytes for {total} frames, {data} data lists, {lists} table lists, {tlb} TLBs"
        );
    }
}
