//! Sets up the memory of a hosted machine, and makes its policies.
//!
//! ```text
//!  Mapping    arena: all frames of the machine ──> window ──> the library writes entries, release
//!  HostWords  read, exchange: as an MMU, acquire <──────────────────────────────────────────────┘
//!  audit      spaces ended, lists drained ──> free frames = expected? else Missing
//! ```
//!
//! # Why
//!
//! The memory is one mapping of the host, so that a physical address is an offset, and a walk can
//! be checked as an MMU would make it. A simulated MMU reads entries while other threads write
//! them: it must use atomics of the entry's width and acquire, because a table is filled before it
//! is linked. Every test ends with an audit. A frame that is lost shows in no other check.
use super::highmem::HighMemory;
use super::mapping::Mapping;
use super::slots::{CpuSlot, Owners};
use ptarmigan::addr::{FRAME_SHIFT, Pfn, PhysAddr};
use ptarmigan::bootmem::{BootMemory, BootMemoryShort};
use ptarmigan::cpu::{CpuId, MAX_CPUS, MachineId, NodeId, WrongMachine};
use ptarmigan::format::Format;
use ptarmigan::frames::{
    AllocFlags, DataFrames, Dirty, End, Frame, FrameCounts, Frames, FramesError, MemoryRun, MemorySize,
    NoFrame, Request, ZoneClass,
};
use ptarmigan::page::{Construct, Level};
use ptarmigan::quicklist::{CheckConfig, Checked, ListsConfig, ListsError, Quicklists, Source};
use ptarmigan::space::ZeroBlock;
use ptarmigan::table::{KernelMap, KernelMapError, MemoryTooHigh};
use ptarmigan::tlb::{FIRST_NAME, TlbError};
use ptarmigan::window::{DirectMap, OpenWindow};
use ptarmigan_linux::{Historic, HistoricError, ListsRefused, Plain, Rules};
use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, PoisonError};

/// The shape of a hosted machine.
#[derive(Clone, Copy, Debug)]
pub struct HostConfig {
    /// Logical CPUs, 1 to 256. CPU c is on node c * nodes / cpus.
    pub cpus: usize,
    /// NUMA nodes, 1 to 64, memory split evenly.
    pub nodes: usize,
    /// Physical memory in bytes, 1 MiB to 8 TiB; to 2 GiB where addresses have 32 bits. Only pages
    /// that are touched take memory of the host.
    pub bytes: u64,
    /// Data frames have memory behind them: cleared and copied for real.
    pub touch_data: bool,
    /// With memory behind data frames: cache lines of each fresh page that its program writes to at
    /// once, at most all of them. The store that faults is one, if that is to be imitated.
    pub use_lines: usize,
    /// Bytes at the start of each node, where tables are placed, to touch in advance.
    pub prefault: usize,
    /// Bytes of low memory; the rest is high memory, for data and for the tables that
    /// [`HostTables`](super::HostTables) places there. 2^64 - 1: all is low. A machine with high
    /// memory has one node.
    pub low: u64,
    /// High memory is a file in memory, pages of which the slots of [`RealSlots`] are.
    ///
    /// [`RealSlots`]: super::RealSlots
    pub high_file: bool,
    /// Reads of areas that may have large pages map a [block of zeroes](ZeroBlock).
    pub zero_block: bool,
}

/// The largest memory of a machine: one mapping of the host can hold it, and frame numbers can name
/// it.
const MOST_BYTES: u64 = if usize::BITS > 32 { 8 << 40 } else { 2 << 30 };

impl Default for HostConfig {
    /// One CPU, one node, 4 GiB; 512 MiB where addresses have 32 bits.
    fn default() -> Self {
        HostConfig {
            cpus: 1,
            nodes: 1,
            bytes: if usize::BITS > 32 { 4 << 30 } else { 512 << 20 },
            touch_data: false,
            use_lines: 0,
            prefault: 8 << 20,
            low: u64::MAX,
            high_file: false,
            zero_block: false,
        }
    }
}

/// Why a machine could not be set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostError {
    /// A number is out of range; the text says which range.
    OutOfRange(String),
    /// The host has no memory for it.
    Host(String),
    /// The library's own tables did not fit (a defect of this module).
    Boot(BootMemoryShort),
    /// The runs of memory are not as they should be (a defect of this module).
    Frames(FramesError),
    /// The machine is too small for its own needs.
    NoFrame(NoFrame),
    /// Entries of the format cannot name all frames.
    TooHigh(MemoryTooHigh),
    /// A policy was made for another host.
    WrongMachine(WrongMachine),
    /// A historic policy cannot have so many lists.
    Lists(ListsRefused),
    /// Another machine has the host, or had it and [cannot be
    /// followed](crate::HostMachine::new).
    InUse,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::OutOfRange(s) | HostError::Host(s) => f.write_str(s),
            HostError::Boot(e) => e.fmt(f),
            HostError::Frames(e) => e.fmt(f),
            HostError::NoFrame(e) => e.fmt(f),
            HostError::TooHigh(e) => e.fmt(f),
            HostError::WrongMachine(e) => e.fmt(f),
            HostError::Lists(e) => e.fmt(f),
            HostError::InUse => f.write_str(
                "the host has a machine, or had one that left spaces, or whose TLBs may remember some: make a new host",
            ),
        }
    }
}

impl std::error::Error for HostError {}

impl From<HistoricError> for HostError {
    fn from(e: HistoricError) -> Self {
        match e {
            HistoricError::Boot(e) => HostError::Boot(e),
            HistoricError::Lists(e) => HostError::Lists(e),
        }
    }
}

impl From<KernelMapError> for HostError {
    fn from(e: KernelMapError) -> Self {
        match e {
            KernelMapError::NoFrame(e) => HostError::NoFrame(e),
            KernelMapError::TooHigh(e) => HostError::TooHigh(e),
        }
    }
}

impl From<BootMemoryShort> for HostError {
    fn from(e: BootMemoryShort) -> Self {
        HostError::Boot(e)
    }
}

impl From<FramesError> for HostError {
    fn from(e: FramesError) -> Self {
        HostError::Frames(e)
    }
}

impl From<TlbError> for HostError {
    fn from(e: TlbError) -> Self {
        match e {
            TlbError::Boot(e) => HostError::Boot(e),
            range => HostError::OutOfRange(range.to_string()),
        }
    }
}

impl From<ListsError> for HostError {
    fn from(e: ListsError) -> Self {
        match e {
            ListsError::Boot(e) => HostError::Boot(e),
            range => HostError::OutOfRange(range.to_string()),
        }
    }
}

impl From<NoFrame> for HostError {
    fn from(e: NoFrame) -> Self {
        HostError::NoFrame(e)
    }
}

/// Frames that did not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Frames that should be free.
    pub expected: u32,
    /// Frames that are.
    pub free: u32,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.free < self.expected {
            write!(f, "{} frame(s) leaked", self.expected - self.free)
        } else {
            write!(f, "{} frame(s) counted twice", self.free - self.expected)
        }
    }
}

impl std::error::Error for Missing {}

/// Memory, frames, the kernel's half of root tables: everything but the policy and the TLB.
///
/// ```
/// use ptarmigan::format::X86_64;
/// use ptarmigan_hosted::{Host, HostConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = Host::<X86_64>::new(HostConfig { cpus: 2, bytes: 64 << 20, ..HostConfig::default() })?;
/// let slots = host.slots(); // this thread is both CPUs
/// assert_eq!(slots.len(), 2);
/// drop(slots); // now another thread may be
/// host.audit()?; // no frame is missing
/// # Ok(())
/// # }
/// ```
pub struct Host<F: Format> {
    config: HostConfig,
    arena: Mapping,
    frames: Frames,
    data: DataFrames,
    window: DirectMap,
    kernel: KernelMap<F, DirectMap>,
    zero: Pfn,
    zero_block: ZeroBlock,
    /// Frames that stand for pages of files; several if there is high memory to take them from.
    files: Vec<Pfn>,
    high: Option<HighMemory>,
    expected: u32,
    owners: Owners,
    /// The name of the first space of the host's next machine; `None` while there can be no
    /// machine.
    next_name: Mutex<Option<u64>>,
}

/// Frames for pages of files on a machine with high memory; a sixteenth of it at most.
const FILE_FRAMES: u32 = 4096;

/// Entries of the kernel's half that are in use, so that constructing a root is work.
const KERNEL_ENTRIES: usize = 4;

impl<F: Format> Host<F> {
    /// Sets the machine up.
    ///
    /// # Errors
    ///
    /// [`HostError`] if a number is out of range or the host has no memory.
    pub fn new(config: HostConfig) -> Result<Self, HostError> {
        let HostConfig { cpus, nodes, bytes, low, .. } = config;
        let out = |what: String| Err(HostError::OutOfRange(what));
        if !(1..=MAX_CPUS).contains(&cpus) {
            return out(format!("{cpus} CPUs: 1 to {MAX_CPUS} will do"));
        }
        if !(1..=64).contains(&nodes) {
            return out(format!("{nodes} nodes: 1 to 64 will do"));
        }
        if !(1 << 20..=MOST_BYTES).contains(&bytes) {
            return out(format!("{bytes} bytes of memory: {} to {MOST_BYTES} will do", 1 << 20));
        }
        let total = (bytes >> FRAME_SHIFT) as u32;
        let per_node = total / nodes as u32;
        if per_node < 64 {
            return out(format!("{per_node} frames on each of {nodes} nodes: 64 are the least"));
        }
        let low = (low >> FRAME_SHIFT).min(u64::from(total)) as u32;
        if low < total && (nodes > 1 || low < 64 || total - low < 64) {
            let high = total - low;
            return out(format!(
                "{low} frames of low and {high} of high memory on {nodes} nodes: 64 of each are the least, \
                 and one node is the most with high memory"
            ));
        }
        let memory = |e: rustix::io::Errno| HostError::Host(format!("the host gave no memory: {e}"));
        let arena = Mapping::new((total as usize) << FRAME_SHIFT).map_err(memory)?;
        let mut runs: Vec<MemoryRun> = (0..nodes)
            .map(|n| {
                let start = n as u32 * per_node;
                // Frame 0 stays out: its address means "no page" to historic code.
                let skip = u32::from(n == 0);
                MemoryRun {
                    start: Pfn(start + skip),
                    frames: per_node.min(low) - skip,
                    node: NodeId(n as u8),
                    class: ZoneClass::Low,
                }
            })
            .collect();
        for run in &runs {
            let node = (run.frames as usize) << FRAME_SHIFT;
            arena.prefault((run.start.0 as usize) << FRAME_SHIFT, config.prefault.min(node / 2));
        }
        let mut high = None;
        if low < total {
            let run =
                MemoryRun { start: Pfn(low), frames: total - low, node: NodeId(0), class: ZoneClass::High };
            if config.high_file {
                let file = HighMemory::new(run.start, run.frames).map_err(memory)?;
                file.map_into(&arena).map_err(memory)?;
                high = Some(file);
            }
            runs.push(run);
        }
        let need = Frames::bytes(&MemorySize::of(&runs)) + DataFrames::bytes(cpus, nodes);
        let mut boot = boot_memory(need)?;
        let machine = MachineId::new();
        // SAFETY: 1. the arena, which the host owns, maps every frame of the runs. 2. the identity
        // is new.
        let frames = unsafe { Frames::new(&mut boot, machine, &runs)? };
        let data = DataFrames::of_order(&mut boot, &frames, cpus, F::PAGE_ORDER)?;
        let expected = frames.counts().total;
        let window = direct_map(&arena)?;
        let request = Request {
            node: NodeId(0),
            order: 0,
            zero: true,
            class: ZoneClass::Low,
            end: End::Low,
            flags: AllocFlags::NORMAL,
        };
        // SAFETY: 1. the window reaches the whole arena, in which all frames lie.
        let kernel = unsafe { KernelMap::new(&frames, window, request)? };
        let page = Request { order: F::PAGE_ORDER, ..request };
        // SAFETY: 1. as above.
        let zero = unsafe { frames.take(page)?.zeroed(&window) }.into_raw();
        let file = Request { class: ZoneClass::High, ..page };
        let files = (0..((total - low) / 16).clamp(1, FILE_FRAMES)).map(|_| {
            // SAFETY: 1. as above.
            Ok(unsafe { frames.take(file)?.zeroed(&window) }.into_raw())
        });
        let files = files.collect::<Result<Vec<Pfn>, NoFrame>>()?;
        // An empty table stands for the kernel's own: the zero frame.
        let top = F::LAYOUT.root();
        for index in F::USER_ROOT_ENTRIES..(F::USER_ROOT_ENTRIES + KERNEL_ENTRIES).min(F::entries(top)) {
            // SAFETY: 1. the zero frame is an empty table for as long as the host is there, and no
            // CPU walks it for a user. 2. the map is new. 3. it was made for these frames.
            unsafe { kernel.set(&frames, index, F::link(top, zero.addr())) };
        }
        let owners = Owners::new(machine, cpus);
        let next_name = Mutex::new(Some(FIRST_NAME));
        Ok(Host {
            config,
            arena,
            frames,
            data,
            window,
            kernel,
            zero,
            zero_block: ZeroBlock::new(),
            files,
            high,
            expected,
            owners,
            next_name,
        })
    }

    /// Returns its identity, which the pins of its CPUs carry.
    pub fn machine(&self) -> MachineId {
        self.frames.machine()
    }

    /// Returns the shape it was set up with.
    pub fn config(&self) -> &HostConfig {
        &self.config
    }

    /// Returns its physical memory.
    #[inline]
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Returns its frames for data.
    #[inline]
    pub fn data(&self) -> &DataFrames {
        &self.data
    }

    /// Returns the kernel's half of root tables.
    pub fn kernel(&self) -> &KernelMap<F, DirectMap> {
        &self.kernel
    }

    /// Returns the frame of all untouched anonymous pages.
    #[inline]
    pub fn zero_frame(&self) -> Pfn {
        self.zero
    }

    /// Returns the block of zeroes, if machines of this host have one; it is the host's.
    #[inline]
    pub fn zero_block(&self) -> Option<&ZeroBlock> {
        self.config.zero_block.then_some(&self.zero_block)
    }

    /// Returns the frame that stands for all pages of files.
    #[inline]
    pub fn backing_frame(&self) -> Pfn {
        self.files[0]
    }

    /// Returns the frame that stands for page `page` of a file on a machine with high memory: pages
    /// share some thousand frames, and neighbours have different ones.
    pub(super) fn file_frame(&self, page: u64) -> Pfn {
        self.files[page as usize % self.files.len()]
    }

    /// Returns high memory, if it is a file that slots can map.
    pub fn high_memory(&self) -> Option<&HighMemory> {
        self.high.as_ref()
    }

    /// Returns the direct map of low memory alone, for code that maps high frames.
    pub fn low_window(&self) -> DirectMap {
        let bytes = self.config.low.min(self.window.limit());
        // SAFETY: 1. and 2. it is the lower part of the host's own map.
        let map = unsafe { DirectMap::new(self.arena.base().as_ptr(), bytes) };
        map.unwrap_or(self.window)
    }

    /// Returns the direct map. It reaches the memory as long as the host is there, and hands out
    /// raw pointers.
    pub fn window(&self) -> DirectMap {
        self.window
    }

    /// Reads a word of physical memory as an MMU would; `None` outside of it.
    ///
    /// # Safety
    ///
    /// 1. No other thread writes to the word at the same time, unless it is an entry of a table and
    ///    is written as such: its frame is neither cleared nor copied to, and is no data that a
    ///    program or the library writes meanwhile.
    pub unsafe fn read(&self, at: PhysAddr, bytes: usize) -> Option<u64> {
        // SAFETY: 1. by the caller's point 1.
        unsafe { self.words().read(at, bytes) }
    }

    /// Returns physical memory as MMUs read it.
    pub fn words(&self) -> HostWords<'_> {
        HostWords { arena: &self.arena, end: (self.config.bytes >> FRAME_SHIFT) << FRAME_SHIFT }
    }

    /// Takes all CPU slots that no thread owns.
    pub fn slots(&self) -> Vec<CpuSlot> {
        (0..self.config.cpus).filter_map(|cpu| self.slot(cpu)).collect()
    }

    /// Takes the slot of a CPU, for the calling thread to own; `None` if there is no such CPU or a
    /// thread owns it. Waits a moment if another thread answers a flush request for it just now.
    pub fn slot(&self, cpu: usize) -> Option<CpuSlot> {
        let cpu = CpuId(u16::try_from(cpu).ok()?);
        CpuSlot::take(&self.owners, cpu.0, self.node_of(cpu).0)
    }

    /// Returns the node that a CPU is on.
    pub fn node_of(&self, cpu: CpuId) -> NodeId {
        let HostConfig { cpus, nodes, .. } = self.config;
        NodeId((usize::from(cpu.0) * nodes / cpus) as u8)
    }

    /// Gives the host to a machine; returns the name of the machine's first space, or `None` if
    /// another one has the host.
    pub(super) fn take(&self) -> Option<u64> {
        self.next_name.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes the host back from a machine that it was [given](Self::take) to. No space has the name
    /// `next_name` or one after it.
    pub(super) fn give_back(&self, next_name: u64) {
        *self.next_name.lock().unwrap_or_else(PoisonError::into_inner) = Some(next_name);
    }

    pub(super) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Makes a block of boot memory of `bytes` bytes or more. It lives as long as anything that is
    /// carved from it.
    ///
    /// # Errors
    ///
    /// [`HostError::Host`].
    pub fn boot(&self, bytes: usize) -> Result<BootMemory, HostError> {
        boot_memory(bytes)
    }

    /// Makes a source of pages for a policy.
    pub fn source(&self) -> Source<'_, DirectMap, &KernelMap<F, DirectMap>> {
        // SAFETY: 1. the window reaches the whole arena, in which all frames lie, and the source
        // borrows the host. 2. the map was made for these frames and this format. 3. and 4.
        // `KernelMap::new` has checked both.
        unsafe { Source::new(&self.frames, self.window(), &self.kernel, F::LAYOUT) }
    }

    /// Makes the policy without caching.
    ///
    /// # Errors
    ///
    /// [`HostError`] for lack of memory.
    pub fn plain(&self) -> Result<Plain<'_, DirectMap, &KernelMap<F, DirectMap>>, HostError> {
        self.plain_of(self.source())
    }

    /// Makes the policy without caching, of another [source](super::HostTables::source) of this
    /// host's.
    ///
    /// # Errors
    ///
    /// [`HostError`] for lack of memory.
    pub fn plain_of<'m, W: OpenWindow, C: Construct>(
        &self,
        source: Source<'m, W, C>,
    ) -> Result<Plain<'m, W, C>, HostError> {
        let cpus = self.config.cpus;
        let mut boot = self.boot(Plain::<W, C>::bytes(cpus))?;
        Ok(Plain::new(&mut boot, cpus, source)?)
    }

    /// Makes a historic policy with `lists` lists, 1 to 3; see [`Historic::new`].
    ///
    /// ```compile_fail,E0133
    /// let host = ptarmigan_hosted::Host::<ptarmigan::format::X86_64>::new(Default::default())?;
    /// host.historic(ptarmigan_linux::Rules::V5, 2)?; // who walks its tables?
    /// # Ok::<(), ptarmigan_hosted::HostError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`HostError`] for lack of memory.
    ///
    /// # Safety
    ///
    /// 1. As [`Historic::new`] says.
    pub unsafe fn historic(
        &self,
        rules: Rules,
        lists: usize,
    ) -> Result<Historic<'_, DirectMap, &KernelMap<F, DirectMap>>, HostError> {
        // SAFETY: 1. the caller's promise.
        unsafe { self.historic_of(rules, lists, self.source()) }
    }

    /// Makes a historic policy, of another [source](super::HostTables::source) of this host's.
    /// Its tables are in low memory, whatever the source's placement says.
    ///
    /// # Errors
    ///
    /// [`HostError`] for lack of memory.
    ///
    /// # Safety
    ///
    /// 1. As [`Historic::new`] says.
    pub unsafe fn historic_of<'m, W: OpenWindow, C: Construct>(
        &self,
        rules: Rules,
        lists: usize,
        source: Source<'m, W, C>,
    ) -> Result<Historic<'m, W, C>, HostError> {
        let nodes: Vec<_> = (0..self.config.cpus).map(|cpu| self.node_of(CpuId(cpu as u16))).collect();
        let mut boot = self.boot(Historic::<W, C>::bytes(nodes.len()))?;
        // SAFETY: 1. the caller's promise.
        Ok(unsafe { Historic::new(&mut boot, rules, &nodes, lists, source) }?)
    }

    /// Makes the library's own policy.
    ///
    /// # Errors
    ///
    /// [`HostError`] for lack of memory.
    pub fn quicklists(&self) -> Result<Quicklists<'_, DirectMap, &KernelMap<F, DirectMap>>, HostError> {
        self.quicklists_with(ListsConfig::new(self.config.cpus))
    }

    /// Makes the library's own policy with lists of other sizes; `config.cpus` is the host's.
    ///
    /// # Errors
    ///
    /// [`HostError`] for lack of memory.
    pub fn quicklists_with(
        &self,
        config: ListsConfig,
    ) -> Result<Quicklists<'_, DirectMap, &KernelMap<F, DirectMap>>, HostError> {
        self.quicklists_of(config, self.source())
    }

    /// Makes the library's own policy, of another [source](super::HostTables::source) of this
    /// host's.
    ///
    /// # Errors
    ///
    /// [`HostError`] for a size out of range or lack of memory.
    pub fn quicklists_of<'m, W: OpenWindow, C: Construct>(
        &self,
        config: ListsConfig,
        source: Source<'m, W, C>,
    ) -> Result<Quicklists<'m, W, C>, HostError> {
        let config = ListsConfig { cpus: self.config.cpus, ..config };
        let need = Quicklists::<W, C>::bytes(&self.frames.size(), &config);
        let mut boot = self.boot(need)?;
        Ok(Quicklists::new(&mut boot, config, source)?)
    }

    /// Makes the library's own policy, which checks pages as `check` says.
    ///
    /// # Errors
    ///
    /// [`HostError`] for a size out of range or lack of memory.
    pub fn quicklists_checked(
        &self,
        config: ListsConfig,
        check: CheckConfig,
    ) -> Result<Quicklists<'_, DirectMap, &KernelMap<F, DirectMap>, Checked>, HostError> {
        let config = ListsConfig { cpus: self.config.cpus, ..config };
        let need =
            Quicklists::<DirectMap, &KernelMap<F, DirectMap>, Checked>::bytes(&self.frames.size(), &config);
        let mut boot = self.boot(need + Checked::bytes(&self.frames.size()))?;
        let checked = Checked::new(&mut boot, &self.frames, check)?;
        Ok(Quicklists::with_check(&mut boot, config, self.source(), checked)?)
    }

    /// Checks that every frame is back: spaces ended, policies and lists drained.
    ///
    /// # Errors
    ///
    /// [`Missing`] says how many are not.
    pub fn audit(&self) -> Result<(), Missing> {
        let FrameCounts { free, .. } = self.frames.counts();
        // The tables of the kernel's half, the frames of zeroes and the files' frames are the
        // host's until it is dropped.
        let root_frames = 1usize << F::LAYOUT.order(F::LAYOUT.root());
        let pages = (1 + self.files.len()) << F::PAGE_ORDER;
        let tables = (self.kernel.tables() - 1) << F::LAYOUT.order(Level::PTE);
        let own = pages + root_frames + tables + self.zero_block.frames(&self.frames) as usize;
        let expected = self.expected - own as u32;
        if free == expected { Ok(()) } else { Err(Missing { expected, free }) }
    }
}

/// The physical memory of a host, whatever its format, word by word.
#[derive(Clone, Copy)]
pub struct HostWords<'h> {
    arena: &'h Mapping,
    end: u64,
}

impl HostWords<'_> {
    /// Reads a word as an MMU would; `None` outside of the memory.
    ///
    /// # Safety
    ///
    /// 1. As for [`Host::read`].
    pub unsafe fn read(&self, at: PhysAddr, bytes: usize) -> Option<u64> {
        let p = self.place(at, bytes)?;
        // SAFETY: within the arena and aligned. Entries are written as atomics of the same width,
        // and no other word is written now (contract, 1.).
        unsafe {
            match bytes {
                4 => Some(u32::from_le((*p.cast::<AtomicU32>()).load(Acquire)).into()),
                8 => Some(u64::from_le((*p.cast::<AtomicU64>()).load(Acquire))),
                _ => None,
            }
        }
    }

    /// Replaces a word by `new` if it is `old`, in one piece, as an MMU that sets bits would.
    /// Returns the word that was there; `None` outside of the memory.
    ///
    /// # Safety
    ///
    /// 1. As for [`Host::read`].
    /// 2. The word is an entry of a table.
    pub unsafe fn exchange(&self, at: PhysAddr, bytes: usize, old: u64, new: u64) -> Option<u64> {
        let p = self.place(at, bytes)?;
        // SAFETY: as in `read`; entries may change at any time (contract, 2.).
        unsafe {
            match bytes {
                4 => {
                    let (old, new) = ((old as u32).to_le(), (new as u32).to_le());
                    let was = (*p.cast::<AtomicU32>()).compare_exchange(old, new, AcqRel, Acquire);
                    Some(u32::from_le(was.unwrap_or_else(|found| found)).into())
                }
                8 => {
                    let was =
                        (*p.cast::<AtomicU64>()).compare_exchange(old.to_le(), new.to_le(), AcqRel, Acquire);
                    Some(u64::from_le(was.unwrap_or_else(|found| found)))
                }
                _ => None,
            }
        }
    }

    /// Returns the place of an aligned word within the memory.
    fn place(&self, at: PhysAddr, bytes: usize) -> Option<*mut u8> {
        let is_within = at.0.checked_add(bytes as u64)? <= self.end && at.0.is_multiple_of(bytes as u64);
        is_within.then(|| self.arena.base().as_ptr().wrapping_add(at.0 as usize))
    }
}

/// Makes the direct map of an arena.
fn direct_map(arena: &Mapping) -> Result<DirectMap, HostError> {
    // SAFETY: 1. the arena maps every frame below its length. It is the host's, and pointers into
    // it are used by code that borrows the host. 2. no other code has its address. Slots show high
    // frames at other addresses while the machine clears or copies them: they are its alone then,
    // or only read.
    let map = unsafe { DirectMap::new(arena.base().as_ptr(), arena.len() as u64) };
    map.map_err(|e| HostError::Host(e.to_string()))
}

fn boot_memory(bytes: usize) -> Result<BootMemory, HostError> {
    Mapping::boot_memory(bytes).map_err(|e| HostError::Host(format!("the host gave no memory: {e}")))
}

impl<F: Format> Drop for Host<F> {
    fn drop(&mut self) {
        for pfn in self.files.iter().copied().chain([self.zero]) {
            // SAFETY: 1. `new` took it, a page; no borrow of the host is left. 2. `Dirty` promises
            // no content.
            let page = unsafe { Frame::<Dirty>::from_raw(self.frames.machine(), pfn, F::PAGE_ORDER) };
            self.frames.give(page);
        }
    }
}
