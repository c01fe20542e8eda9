//! The library's view of this machine: memory in the direct map, one CPU whose MMU finds pages in
//! the [hash table](crate::hashed), and the order in which the parts are set up.

use core::ptr::{self, NonNull};

use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr, VirtAddr};
use ptarmigan::bootmem::{BootMemory, BootMemoryShort};
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned};
use ptarmigan::format::{Access, Format, Ppc32};
use ptarmigan::frames::{
    AllocFlags, DataFrames, End, Frames, FramesError, MemoryRun, MemorySize, NoFrame, Request, ZoneClass,
};
use ptarmigan::machine::{self, Machine as _, On};
use ptarmigan::quicklist::{ListsConfig, ListsError, Policy, Quicklists, Source};
use ptarmigan::space::SpaceMachine;
use ptarmigan::table::{KernelMap, KernelMapError};
use ptarmigan::tlb::hash::HashSizeError;
use ptarmigan::tlb::{CostModel, Costs, Parking, Tlb, TlbConfig, TlbError};
use ptarmigan::window::{DirectMap, OutOfReach};

use crate::hashed::{self, HASH_TABLE, Hashed};
use crate::late::Late;
use crate::mmu::{self, DIRECT_MAP, DIRECT_MAP_LIMIT};
use crate::program;
use crate::rt::fail;
use crate::without::{Part, leaves_out};

/// The kernel's half of all roots.
pub type KernelHalf = KernelMap<Ppc32, DirectMap>;
type Lists = Quicklists<'static, DirectMap, &'static KernelHalf>;

/// Context numbers: fewer than there are spaces, so that they are handed out anew, and the hash
/// table is wiped.
const CONTEXTS: u16 = 6;
/// Counted in entries that are looked at: a page that is hashed or was takes two groups and the
/// instructions that wait for the bus, one that was not the groups; for everything the whole table
/// is gone through.
const COSTS: CostModel = CostModel::Costs(Costs { page_hashed: 40, ..Costs::new(16, HASH_TABLE / 8) });

/// Proof of being on the one CPU.
pub fn pin() -> Pinned<'static> {
    // SAFETY: 1. There is one CPU and no thread but this; handlers of exceptions return before what
    // they interrupt goes on. 2. The machine has one CPU and one node.
    unsafe { Pinned::assume(machine().frames.machine(), CpuId(0), NodeId(0)) }
}

/// The machine, seen from its CPU.
pub fn on<'a>(pin: &'a Pinned<'a>) -> On<'a, Machine> {
    match machine().on(pin) {
        Ok(on) => on,
        Err(e) => fail(format_args!("{e}")),
    }
}

/// Puts a page of the kernel's into the hash table that was missed; false if its entry does not
/// allow the access. `protected` is as for [`hashed::refill_user`].
pub fn refill_kernel(at: u32, access: Access, protected: bool) -> bool {
    let pin = pin();
    let on = on(&pin);
    hashed::refill_kernel(at, protected, &|| KERNEL.get().refill(on, VirtAddr(at.into()), access))
}

/// All parts together.
pub struct Machine {
    frames: &'static Frames,
    data: DataFrames,
    window: DirectMap,
    lists: Lists,
    tlb: Tlb<Hashed>,
    parking: Parking,
    zero: Pfn,
    /// Free frames when all was set up.
    before: u32,
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
    /// Frames ran out.
    Frame(#[expect(dead_code, reason = "printed by Debug")] NoFrame),
    /// The kernel's half could not be made.
    Map(#[expect(dead_code, reason = "printed by Debug")] KernelMapError),
    /// Addresses do not reach over all memory.
    Window(#[expect(dead_code, reason = "printed by Debug")] OutOfReach),
    /// The hash table has no size that there is.
    Hash(#[expect(dead_code, reason = "printed by Debug")] HashSizeError),
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

impl From<HashSizeError> for SetUpError {
    fn from(e: HashSizeError) -> Self {
        SetUpError::Hash(e)
    }
}

static FRAMES: Late<Frames> = Late::new();
static KERNEL: Late<KernelHalf> = Late::new();
static MACHINE: Late<Machine> = Late::new();

/// The machine.
pub fn machine() -> &'static Machine {
    MACHINE.get()
}

/// The kernel's half.
pub fn kernel() -> &'static KernelHalf {
    KERNEL.get()
}

/// The direct map.
fn direct_map() -> Result<DirectMap, OutOfReach> {
    // SAFETY: 1. Block translation covers that memory in every space, for good. 2. User mappings of
    // a frame are used by user code alone, in which there are no Rust objects of the kernel's.
    unsafe { DirectMap::new(ptr::with_exposed_provenance_mut(DIRECT_MAP as usize), DIRECT_MAP_LIMIT) }
}

/// Sets the hash table and the library up on the memory from `start` to `end`.
///
/// # Safety
///
/// 1. Nobody else uses that memory, now or later, and it is in the direct map.
/// 2. It is called once.
pub unsafe fn set_up(start: u64, end: u64) -> Result<&'static Machine, SetUpError> {
    // 1. The hash table, aligned to its size.
    let at = start.next_multiple_of(HASH_TABLE);
    let start = at + HASH_TABLE;
    // SAFETY: 1. Point 1 of the caller's; all else begins behind it. 2. Point 2.
    unsafe { hashed::set_up(at)? };

    // 2. Boot memory, from which the library carves its arrays: as much as all of the memory would
    //    need.
    let run_from = |from: u64| MemoryRun {
        start: PhysAddr(from).pfn(),
        frames: ((end - from) / FRAME_SIZE as u64) as u32,
        node: NodeId(0),
        class: ZoneClass::Low,
    };
    let size = MemorySize::of([run_from(start)]);
    let lists_config = ListsConfig::new(1);
    let tlb_config = TlbConfig { costs: COSTS, asids: CONTEXTS, ..TlbConfig::new(1) };
    let arrays = Frames::bytes(&size)
        + DataFrames::bytes(1, size.nodes())
        + Lists::bytes(&size, &lists_config)
        + Tlb::<Hashed>::bytes(&tlb_config)
        + Parking::bytes(1);
    let for_boot = (arrays as u64).next_multiple_of(FRAME_SIZE as u64);
    let base = NonNull::new(mmu::direct::<u8>(start)).unwrap_or(NonNull::dangling());
    // SAFETY: 1. The caller's, and mapped for good.
    let mut boot = unsafe { BootMemory::new(base, for_boot as usize) };

    // 3. Frames: a record for each, and all of them free.
    // SAFETY: 1. Point 1 of the caller's; boot memory is before it. 2. The name is new.
    let frames = unsafe { Frames::new(&mut boot, MachineId::new(), &[run_from(start + for_boot)])? };
    // SAFETY: 1. Point 2 of the caller's.
    let frames = unsafe { FRAMES.set(frames) };

    // 4. The kernel's half, and the frame of untouched pages.
    let window = direct_map()?;
    let request = Request {
        node: NodeId(0),
        order: 0,
        zero: true,
        class: ZoneClass::Low,
        end: End::Low,
        flags: AllocFlags::NORMAL,
    };
    // SAFETY: 1. All frames are below 256 MiB (point 1 of the caller's).
    let kernel = unsafe { KernelHalf::new(frames, window, request)? };
    // SAFETY: 1. Point 2 of the caller's.
    let kernel = unsafe { KERNEL.set(kernel) };
    // SAFETY: 1. As above.
    let zero = unsafe { frames.take(request)?.zeroed(&window) }.into_raw();

    // 5. Lists of table pages, and of data frames.
    // SAFETY: 1. As above. 2. The map was made for these frames and this format. 3. Two levels,
    // whose tables are frames.
    let source = unsafe { Source::new(frames, window, kernel, Ppc32::LAYOUT) };
    let lists = Quicklists::new(&mut boot, lists_config, source)?;
    let data = DataFrames::new(&mut boot, frames, 1)?;

    // 6. TLBs, and what waits for them.
    // SAFETY: 1. The name is new, and nothing else makes a `Tlb`.
    let tlb = unsafe { Tlb::new(&mut boot, frames.machine(), tlb_config, Hashed)? };
    let parking = Parking::new(&mut boot, frames.machine(), 1, tlb_config.park)?;

    // 7. All of it together.
    let before = frames.counts().free;
    let machine = Machine { frames, data, window, lists, tlb, parking, zero, before };
    // SAFETY: 1. Point 2 of the caller's.
    Ok(unsafe { MACHINE.set(machine) })
}

// SAFETY: 1. `set_up` makes all of them for the one `Frames` and one CPU, on one node. 2. They are
// fields of a static. 3. The direct map has all frames; both functions write to the frame that is
// named.
unsafe impl machine::Machine for Machine {
    type Window = DirectMap;
    type Policy = Lists;
    type Shootdown = Hashed;

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

    fn tlb(&self) -> &Tlb<Hashed> {
        &self.tlb
    }

    fn parking(&self) -> &Parking {
        &self.parking
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
    /// Gives back what lists hold.
    pub fn drain(&self) {
        let pin = pin();
        let on = on(&pin);
        on.drain();
        on.policy().reclaim(NodeId(0), u32::MAX);
    }

    /// Checks, with nothing mapped but by the image and after [`drain`](Self::drain), that every
    /// frame is back and that no page is left in the hash table. `kept` are tables of the kernel's
    /// half, which stay.
    pub fn check_balance(&self) {
        let (live, cached) = (self.lists.counts().live(), self.lists.counts().cached());
        let free = self.frames.counts().free;
        // The reference table was taken before.
        let kept = KERNEL.get().tables().saturating_sub(1);
        if (live, cached, free as usize) != (kept, 0, self.before as usize - kept) {
            fail(format_args!(
                "frames: {free} free, {} before; {live} tables live, {kept} the kernel's, {cached} cached",
                self.before
            ));
        }
        let hashed = hashed::table().valid();
        if hashed != 0 {
            fail(format_args!("stale: {hashed} pages are hashed, and none is mapped"));
        }
    }

    /// Prints what was counted, and checks that the run was one that is worth it: pages were driven
    /// out of the hash table.
    pub fn report(&self) {
        let flushes = self.tlb.counts();
        let hash = hashed::table().counts();
        let misses: usize = self.lists.counts().levels.iter().map(|level| level.misses).sum();
        let allocs: usize = self.lists.counts().levels.iter().map(|level| level.allocs).sum();
        crate::say!("tables: {allocs} handed out, {misses} of them from the allocator");
        crate::say!(
            "flushes: {} page, {} range, {} full, {} of the kernel's half; {} hashed pages",
            flushes.page,
            flushes.range,
            flushes.full,
            flushes.kernel,
            flushes.hashed
        );
        crate::say!(
            "hash table: {} inserted, {} over another page; {} removed, {} not found; wiped {} times; {} probes",
            hash.inserted,
            hash.evicted,
            hash.removed,
            hash.missing,
            hash.wiped,
            hash.probes
        );
        if hash.evicted < 1000 || hash.wiped == 0 || hash.missing == 0 {
            fail(format_args!("too little happened in the hash table"));
        }
    }
}
