//! All parts of a machine, in the memory of a `pt_machine`.
//!
//! ```text
//!  init    parts placed one by one, in order ── finish ── PANIC = hooks, release
//!  panic   panic_hook: acquire ──> the kernel's hook
//!  end     CPUs and frames back? ── PANIC: hooks -> null, if still its own ── parts end
//! ```
//!
//! # Why
//!
//! Parts borrow parts before them, so they are placed in one object that must not move. A panic has
//! no parameter: the handler finds the kernel's hook in a static, which the machine sets last and
//! takes back first. Otherwise a panic in `init` or `end` would call a hook of an object that is
//! half made. It is taken back only if it is this machine's, because another one may have been made
//! since.
use crate::arch::{Entries, KERNEL_ENTRIES, PT_PAGE_SIZE, ROOT_IS_FRAME};
use crate::config::{PtConfig, Runs};
use crate::error::PtError;
use crate::hooks::{Hardware, PtHooks};
use crate::kmap::Kmap;
use crate::object::{self, Arg, LastArg, Object, Word};
use crate::states::States;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{Counter, CpuId, CpuMask, MachineId, NodeId, PerCpu, Pinned};
use ptarmigan::format::Format;
use ptarmigan::frames::{
    AllocFlags, DataFrames, End, Frames, FramesError, MemorySize, NoFrame, Request, ZoneClass,
};
use ptarmigan::machine::Machine;
use ptarmigan::parking::Parking;
use ptarmigan::quicklist::{LevelCounts, ListsConfig, ListsError, Policy, PolicyCounts, Quicklists, Source};
use ptarmigan::setup::check_kernel_root;
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::{Tlb, TlbConfig, TlbError};
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};

/// Words of 8 bytes in a `pt_machine`.
pub const PT_MACHINE_WORDS: usize = 384;

/// A machine: its memory, its lists of table pages, its TLBs. Zero before `pt_machine_init`; not
/// moved between that and `pt_machine_exit`.
#[repr(C, align(64))]
pub struct PtMachine {
    /// The library's.
    pub opaque: [u64; PT_MACHINE_WORDS],
}

type Kernel = KernelMap<Entries, DirectMap>;
type Lists = Quicklists<'static, DirectMap, &'static Kernel>;

/// The content of a `pt_machine`. Parts refer to those before them, so the object is not moved.
#[repr(C)]
pub struct Parts {
    word: Word,
    window: DirectMap,
    verify_every: u32,
    frames: Frames,
    lists: Lists,
    states: States,
    kernel: Kernel,
    data: DataFrames,
    tlb: Tlb<Hardware>,
    parking: Parking,
    kmap: Kmap,
    /// Data frames that C has, by the CPU that handed them out, less those that it took back.
    pages: PerCpu<(), Counter>,
    /// CPUs that have a `pt_cpu`.
    cpus: CpuMask,
    cpu_count: u32,
    /// Physical addresses of the boot memory, if it is in the direct map.
    boot: (u64, u64),
    hooks: PtHooks,
}

// SAFETY: 1. `repr(C)`, with the word first. 2. `object::finish` compares. 3. odd, and no other
// kind has it.
unsafe impl Object for Parts {
    type Storage = PtMachine;
    const KIND: usize = 0x6d61_6331;
}

/// CPUs share it.
const _: fn() = || {
    fn shared<T: Sync>() {}
    shared::<Parts>();
};

/// The machine that panics are told to.
static PANIC: AtomicPtr<PtHooks> = AtomicPtr::new(ptr::null_mut());

/// Returns the hooks of the last machine that was made.
#[cfg_attr(not(feature = "panic-handler"), allow(dead_code, reason = "its caller is the handler"))]
pub fn panic_hook() -> Option<&'static PtHooks> {
    // SAFETY: NULL, or in a machine that has not ended: `end` takes it away first.
    unsafe { PANIC.load(Ordering::Acquire).as_ref() }
}

fn lists_config(config: &PtConfig) -> ListsConfig {
    ListsConfig::new(config.cpus as usize)
}

fn tlb_config(config: &PtConfig) -> TlbConfig {
    TlbConfig::new(config.cpus as usize)
}

impl From<FramesError> for PtError {
    fn from(e: FramesError) -> Self {
        match e {
            FramesError::Boot(e) => e.into(),
            FramesError::Run { .. } => PtError::Runs,
        }
    }
}

impl From<ListsError> for PtError {
    fn from(e: ListsError) -> Self {
        match e {
            ListsError::Boot(e) => e.into(),
            ListsError::Range { .. } => PtError::Argument,
        }
    }
}

impl From<TlbError> for PtError {
    fn from(e: TlbError) -> Self {
        match e {
            TlbError::Boot(e) => e.into(),
            TlbError::TooManyCpus { .. } | TlbError::TooFewAsids { .. } => PtError::Argument,
        }
    }
}

/// Returns the bytes of boot memory that a machine takes, in whole pages.
pub fn bytes(config: &PtConfig, runs: &Runs) -> usize {
    let size = MemorySize::of(runs.get());
    let cpus = config.cpus as usize;
    let all = Frames::bytes(&size)
        + Lists::bytes(&size, &lists_config(config))
        + States::bytes(&size)
        + DataFrames::bytes(cpus, size.nodes())
        + Tlb::<Hardware>::bytes(&tlb_config(config))
        + Parking::bytes(cpus)
        + Kmap::bytes(&size, config)
        + PerCpu::<(), Counter>::bytes(cpus);
    all.next_multiple_of(FRAME_SIZE)
}

impl Parts {
    /// Makes a machine in `storage`.
    ///
    /// # Errors
    ///
    /// [`PtError`]; no reference has been kept then.
    ///
    /// # Safety
    ///
    /// 1. `config` is true, as the contract of `pt_machine_init` says, and `runs` was read from it.
    pub unsafe fn make(storage: Arg<'_, PtMachine>, config: &PtConfig, runs: &Runs) -> Result<(), PtError> {
        let parts = storage.vacant::<Parts>()?;
        config.spare(runs, storage.addr(), size_of::<PtMachine>())?;
        if config.boot_bytes < bytes(config, runs) {
            return Err(PtError::BootMemory);
        }
        let base = NonNull::new(config.boot_memory.cast()).ok_or(PtError::Pointer)?;
        // SAFETY: 1. the block is the library's until the machine has ended, and is mapped in every
        // space (point 1 of the caller's).
        let boot = &mut unsafe { BootMemory::new(base, config.boot_bytes) };
        // SAFETY: 1. and 2. the direct map is one (1.).
        let window = unsafe { DirectMap::new(config.direct_map.cast(), config.direct_map_end) };
        let window = window.map_err(|_| PtError::Range)?;
        let cpus = config.cpus as usize;
        let id = MachineId::new();
        let hardware = Hardware::new(config.hooks, config.kernel_root);
        let (root, walks) = (PhysAddr(config.kernel_root), config.hosted == 0);
        // SAFETY: 1. and 2. the name is new, and no part of the machine is there yet.
        let pin = unsafe { Pinned::assume(id, CpuId(0), NodeId(0)) };
        // SAFETY: 1. the direct map is one (1.).
        unsafe { check_kernel_root::<Entries, _, _>(root, &window, runs.get(), walks, &hardware, &pin)? };

        /// Writes a part to its place, where it stays.
        macro_rules! place {
            ($field:ident, $value:expr) => {
                (&raw mut (*parts).$field).write($value)
            };
        }
        /// Borrows a part that has been written.
        macro_rules! placed {
            ($field:ident) => {
                &*(&raw const (*parts).$field)
            };
        }
        // SAFETY: the storage is this call's alone, has room for the parts (`object::finish`
        // compares), and stays where it is; a part that another one refers to is written before it
        // and never moved. Of the parts:
        // frames: 1. the runs are the library's from now on (1.). 2. the name is new.
        // kernel: 1. the direct map reaches all low frames, of which its table and all roots are.
        // lists: 1. likewise. 2. the kernel's half was made for these frames and this format. 3.
        // that has 3 or 4 levels, and only roots are small. 4. `Kernel::new` has looked.
        // tlb: 1. the name is new.
        // kmap: 1. the direct map reaches all low frames. 2. by the configuration (1.).
        // `finish`: 1. all fields but the word are written by then.
        unsafe {
            place!(frames, Frames::new(boot, id, runs.get())?);
            let frames: &'static Frames = placed!(frames);
            let (class, flags) = (ZoneClass::Low, AllocFlags::NORMAL);
            let request = Request { node: NodeId(0), order: 0, zero: true, class, end: End::Low, flags };
            place!(kernel, Kernel::new(frames, window, request)?);
            let kernel: &'static Kernel = placed!(kernel);
            copy_kernel_half(frames, kernel, &window, config.kernel_root);
            let source = Source::new(frames, window, kernel, Entries::LAYOUT);
            place!(lists, Lists::new(boot, lists_config(config), source)?);
            place!(states, States::new(boot, frames)?);
            place!(data, DataFrames::new(boot, frames, cpus)?);
            place!(tlb, Tlb::new(boot, id, tlb_config(config), hardware)?);
            let tlb: &'static Tlb<Hardware> = placed!(tlb);
            place!(parking, Parking::new(boot, id, cpus, 0)?);
            place!(kmap, Kmap::new(boot, config, runs, tlb, frames, window)?);
            place!(pages, PerCpu::new(boot, id, cpus, |_| ())?);
            place!(window, window);
            place!(verify_every, config.verify_every);
            place!(cpus, CpuMask::default());
            place!(cpu_count, config.cpus);
            place!(boot, boot_range(config));
            place!(hooks, config.hooks);
            object::finish(parts);
            PANIC.store(&raw mut (*parts).hooks, Ordering::Release);
        }
        Ok(())
    }

    /// Ends the machine.
    ///
    /// # Errors
    ///
    /// [`PtError::InUse`] if CPUs have not ended, or frames are out: `missing` of them.
    pub fn end(&self, machine: LastArg<'_, PtMachine>, missing: &mut u64) -> Result<(), PtError> {
        let counts = self.frames.counts();
        let kept = self.kernel.tables() as u32;
        *missing = u64::from(counts.total - counts.free).saturating_sub(u64::from(kept));
        if !self.cpus.is_empty() || *missing != 0 {
            return Err(PtError::InUse);
        }
        let hooks = (&raw const self.hooks).cast_mut();
        let _ = PANIC.compare_exchange(hooks, ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
        // The parts own only the memory that was handed over.
        machine.end::<Parts>();
        Ok(())
    }

    #[inline]
    pub fn states(&self) -> &States {
        &self.states
    }

    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    pub fn kmap(&self) -> &Kmap {
        &self.kmap
    }

    pub fn cpus(&self) -> &CpuMask {
        &self.cpus
    }

    pub fn cpu_count(&self) -> u32 {
        self.cpu_count
    }

    /// Counts a data frame that C takes (1) or gives back (-1).
    pub fn count_page(&self, pin: &Pinned<'_>, change: isize) {
        if let Some(pages) = self.pages.own_shown(pin) {
            pages.add(change as usize);
        }
    }

    /// Returns how many data frames C has.
    pub fn pages(&self) -> u64 {
        self.pages.shown().map(Counter::get).fold(0, usize::wrapping_add) as u64
    }

    /// Returns how many frames the library keeps for itself: the tables of the kernel's half, and
    /// frames that hold roots smaller than a page.
    pub fn own_frames(&self) -> u64 {
        self.kernel.tables() as u64 + u64::from(self.frames.slab_frames())
    }

    pub fn verify_every(&self) -> u32 {
        self.verify_every
    }

    /// Returns whether a frame is one of the boot memory's.
    pub fn is_boot_memory(&self, pfn: Pfn) -> bool {
        let at = pfn.addr().0;
        at + PT_PAGE_SIZE > self.boot.0 && at < self.boot.1
    }

    /// Returns whether one of the `bytes` from `phys` on is the library's: memory that it was
    /// given, or the boot memory.
    pub fn has_any_of(&self, phys: u64, bytes: u64) -> bool {
        let meets = |start: u64, end: u64| start < phys + bytes && phys < end;
        let mut runs =
            self.frames.runs().map(|run| (run.start.addr().0, u64::from(run.frames) * PT_PAGE_SIZE));
        meets(self.boot.0, self.boot.1) || runs.any(|(start, bytes)| meets(start, start + bytes))
    }

    /// Returns where a low frame's byte is found.
    #[inline]
    pub fn pointer(&self, at: PhysAddr) -> *mut c_void {
        self.window.open(at).base().cast()
    }

    /// Returns the physical address that is found at an address of the direct map.
    #[inline]
    pub fn physical(&self, at: *const c_void) -> PhysAddr {
        PhysAddr(at.addr().wrapping_sub(self.pointer(PhysAddr(0)).addr()) as u64)
    }
}

fn boot_range(config: &PtConfig) -> (u64, u64) {
    let start = config.boot_memory.addr().wrapping_sub(config.direct_map.addr()) as u64;
    if start < config.direct_map_end { (start, start + config.boot_bytes as u64) } else { (0, 0) }
}

/// Copies the kernel's entries of the root at `from`.
///
/// # Safety
///
/// 1. It is a root, of which the kernel's half is as the contract of `pt_machine_init` says, and
///    the window shows it.
/// 2. `kernel` was made for `frames`, and has no roots yet.
unsafe fn copy_kernel_half(frames: &Frames, kernel: &Kernel, window: &DirectMap, from: u64) {
    let entries = window.open(PhysAddr(from)).base().cast::<u64>();
    for index in KERNEL_ENTRIES {
        // SAFETY: the window shows the root (1.).
        let raw = unsafe { entries.add(index).read() };
        // SAFETY: 1. an entry of the kernel's (1.). 2. there are no ranges. 3. by the caller (2.).
        unsafe { kernel.set(frames, index, raw) };
    }
}

// SAFETY: 1. `make` makes all of them for one name and one number of CPUs. 2. they are fields. 3.
// the window reaches all low frames, where all tables are; writes go to the named frame.
unsafe impl Machine for Parts {
    type Window = DirectMap;
    type Policy = Lists;
    type Shootdown = Hardware;

    #[inline]
    fn frames(&self) -> &Frames {
        &self.frames
    }
    #[inline]
    fn data(&self) -> &DataFrames {
        &self.data
    }
    #[inline]
    fn window(&self) -> &DirectMap {
        &self.window
    }
    #[inline]
    fn policy(&self) -> &Lists {
        &self.lists
    }
    #[inline]
    fn tlb(&self) -> &Tlb<Hardware> {
        &self.tlb
    }
    #[inline]
    fn parking(&self) -> &Parking {
        &self.parking
    }

    unsafe fn clear_data(&self, pin: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        let none = || NoFrame::new(0, pin.node(), self.frames.node_free(pin.node()));
        let at = self.kmap.map(pin, frame).map_err(|_| none())?;
        // SAFETY: the frame is the caller's (1.), and is shown there.
        unsafe { at.cast::<u8>().write_bytes(0, FRAME_SIZE) };
        let _ = self.kmap.unmap(pin, at);
        Ok(())
    }

    fn before_executable(&self, pin: &Pinned<'_>, first: Pfn, frames: u64) {
        self.tlb.hardware().before_executable(pin, first, frames);
    }

    unsafe fn copy_data(&self, pin: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        let none = || NoFrame::new(0, pin.node(), self.frames.node_free(pin.node()));
        let source = self.kmap.map(pin, from).map_err(|_| none())?;
        let target = self.kmap.map(pin, to);
        if let Ok(target) = target {
            // SAFETY: `to` is the caller's (1.), `from` is another frame that stays (2.), and both
            // are shown.
            unsafe { target.cast::<u8>().copy_from_nonoverlapping(source.cast(), FRAME_SIZE) };
            let _ = self.kmap.unmap(pin, target);
        }
        let _ = self.kmap.unmap(pin, source);
        target.map(drop).map_err(|_| none())
    }
}

/// Table pages of the lists, and of C. Roots that are smaller than a page are in neither.
pub struct TablePages {
    pub live: u64,
    pub cached: u64,
}

impl TablePages {
    pub fn of(counts: &PolicyCounts) -> Self {
        let levels = usize::from(Entries::LAYOUT.levels) - usize::from(!ROOT_IS_FRAME);
        let levels = counts.levels.iter().take(levels);
        let sum = |of: fn(&LevelCounts) -> usize| levels.clone().map(of).fold(0, usize::wrapping_add);
        let live = sum(LevelCounts::live);
        let held = sum(|level| level.misses).wrapping_sub(sum(|level| level.returns));
        TablePages { live: live as u64, cached: held.wrapping_sub(live) as u64 }
    }
}

/// Returns how many pages rest in the lists.
pub fn cached(parts: &Parts) -> u64 {
    TablePages::of(&parts.lists.counts()).cached
}
