//! The description of a machine, and what is made of it.
use super::error::SetupError;
use super::half::KernelHalf;
use super::objects::{NoObjects, Objects};
use super::parts::{Lists, MachineParts};
use super::place::{Base, Place};
use super::root::{Root, check_root, entry};
use crate::addr::{FRAME_SHIFT, FRAME_SIZE, Pfn, PhysAddr};
use crate::bootmem::{BootMemory, BootSlice};
use crate::cpu::{CpuId, MachineId, NodeId, Pinned};
use crate::format::{Format, check_tables};
use crate::frames::{
    AllocFlags, DataFrames, End, Frames, FramesError, MemoryRun, MemorySize, NoFrame, Request, ZoneClass,
};
use crate::params::{ParamError, Params, UserPte};
use crate::parking::Parking;
use crate::quicklist::{AutoCosts, AutoPlacement, ListsConfig, Placement, Quicklists, Source};
use crate::space::ZeroBlock;
use crate::table::{KernelMap, check_memory};
use crate::tlb::{CostModel, KernelRoot, Shootdown, Tlb, TlbConfig};
use crate::window::{DirectMap, OpenWindow, OutOfReach, WindowGuard};
use core::ptr::NonNull;

/// A machine, and the boot memory that is left.
type Made<'m, F, W, S, O> = (MachineParts<'m, F, W, S, O>, BootMemory);

/// Frames that are to be left besides boot memory and the blocks of roots.
const SPARE: u64 = 16;

/// A description of a machine: its memory, how memory is reached, its hardware, its number of CPUs
/// and sizes.
///
/// ```
/// # use ptarmigan::addr::{FRAME_SIZE, Pfn, VirtAddr, VirtRange};
/// # use ptarmigan::cpu::{CpuId, CpuSet, NodeId, Pinned};
/// # use ptarmigan::format::{Formats, X86_64};
/// # use ptarmigan::frames::{MemoryRun, ZoneClass};
/// # use ptarmigan::setup::{Kernel, Setup};
/// # use ptarmigan::space::{Access, AreaFlags, Space};
/// # use ptarmigan::tlb::{Invalidation, Ipi, Mmu, Root, Scope, SpaceId, Structures};
/// # use ptarmigan::window::DirectMap;
/// # struct Cpu;
/// # // SAFETY: nothing is translated in this example.
/// # unsafe impl Mmu for Cpu {
/// #     const FORMATS: Formats = Formats::of::<X86_64>();
/// #     const WALKS_TABLES: bool = false;
/// #     const STRUCTURES: Structures = Structures::AnyInvalidation;
/// #     const NEEDS_ENTRY_VALID: bool = false;
/// #     fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
/// #     fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
/// #     fn load(&self, _: &Pinned<'_>, _: &Root) {}
/// #     fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
/// # }
/// # impl Ipi for Cpu { fn send(&self, _: &Pinned<'_>, _: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {} }
/// static KERNEL: Kernel<X86_64, DirectMap, Cpu> = Kernel::new();
///
/// # #[repr(align(4096))]
/// # struct Memory([u8; 2048 * FRAME_SIZE]);
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // SAFETY: bytes may be zero.
/// # let memory: &mut Memory = Box::leak(unsafe { Box::<Memory>::new_zeroed().assume_init() });
/// # let (base, frames) = (memory.0.as_mut_ptr(), 2047);
/// # let root = u64::from(frames) * FRAME_SIZE as u64;
/// let runs = [MemoryRun { start: Pfn(0), frames, node: NodeId(0), class: ZoneClass::Low }];
/// // The kernel's own memory, all of which is mapped at `base` in every space; it runs on `root`.
/// let setup = Setup::direct_map(&runs, base, 8 << 20, Cpu)?.kernel_root(root);
/// // SAFETY: 1. to 3. as said.
/// unsafe { KERNEL.set_up(setup)? };
///
/// // SAFETY: 1. this is CPU 0, and nothing preempts it. 2. There is one CPU.
/// let pin = unsafe { KERNEL.assume(CpuId(0)) };
/// let on = KERNEL.on(&pin)?;
/// let mut space = Space::<X86_64>::new(on)?;
/// let heap = VirtRange::fixed::<0x40_0000, 0x50_0000>();
/// space.edit(on)?.mmap(heap, AreaFlags::READ.with(AreaFlags::WRITE), 0)?;
/// space.fault(on, VirtAddr(0x40_0123), Access::Write)?;
/// space.end(on)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "it describes a machine, and makes none"]
pub struct Setup<'a, W, S, O = NoObjects> {
    runs: &'a [MemoryRun],
    window: W,
    hardware: S,
    objects: O,
    root: Root,
    lists: ListsConfig,
    tlb: TlbConfig,
    userpte: Option<UserPte>,
    high: Option<AutoCosts>,
    extra: usize,
}

impl<'a, S: Shootdown> Setup<'a, DirectMap, S> {
    /// Describes a machine with one CPU, the memory of `runs` and the TLBs of `hardware`. Each
    /// physical address `a` below `limit` is mapped at `zero + a`.
    ///
    /// # Errors
    ///
    /// [`OutOfReach`] if the highest of these addresses is more than a pointer can hold.
    #[expect(clippy::not_unsafe_ptr_arg_deref, reason = "it goes into a window, which unsafe calls open")]
    pub fn direct_map(
        runs: &'a [MemoryRun],
        zero: *mut u8,
        limit: u64,
        hardware: S,
    ) -> Result<Self, OutOfReach> {
        // SAFETY: 1. and 2. are points 1 and 2 of `build_in` and `Kernel::set_up`, which nothing is
        // reached before.
        let window = unsafe { DirectMap::new(zero, limit)? };
        Ok(Setup::new(runs, window, hardware))
    }
}

impl<'a, W: OpenWindow + Copy, S: Shootdown> Setup<'a, W, S> {
    /// Describes a machine with one CPU, the memory of `runs`, which `window` reaches, and the TLBs
    /// of `hardware`.
    pub fn new(runs: &'a [MemoryRun], window: W, hardware: S) -> Self {
        Setup {
            runs,
            window,
            hardware,
            objects: NoObjects,
            root: Root::Unsaid,
            lists: ListsConfig::new(1),
            tlb: TlbConfig::new(1),
            userpte: None,
            high: None,
            extra: 0,
        }
    }

    /// Has areas show `objects`.
    pub fn objects<O: Objects>(self, objects: O) -> Setup<'a, W, S, O> {
        let Setup { runs, window, hardware, objects: _, root, lists, tlb, userpte, high, extra } = self;
        Setup { runs, window, hardware, objects, root, lists, tlb, userpte, high, extra }
    }
}

impl<'a, W: OpenWindow + Copy, S: Shootdown, O: Objects> Setup<'a, W, S, O> {
    /// Sets the number of CPUs that will ever run.
    pub fn cpus(mut self, cpus: usize) -> Self {
        self.lists.cpus = cpus;
        self.tlb.cpus = cpus;
        self
    }

    /// Sets the root, by physical address, whose kernel's half all roots get a copy of: the one
    /// that the kernel booted on.
    pub fn kernel_root(mut self, root: u64) -> Self {
        self.root = Root::At(PhysAddr(root));
        self
    }

    /// Leaves roots of spaces without entries of the kernel's: it has a root register of its own
    /// (AArch64's `TTBR1`).
    pub fn without_kernel_half(mut self) -> Self {
        self.root = Root::None;
        self
    }

    /// Sets the numbers that TLBs tag spaces with: see [`TlbConfig::asids`].
    pub fn asids(mut self, asids: u16) -> Self {
        self.tlb.asids = asids;
        self
    }

    /// Sets what invalidations cost: see [`TlbConfig::costs`].
    pub fn costs(mut self, costs: CostModel) -> Self {
        self.tlb.costs = costs;
        self
    }

    /// Sets the frames that each CPU may have parked: see [`TlbConfig::park`].
    pub fn park(mut self, frames: u32) -> Self {
        self.tlb.park = frames;
        self
    }

    /// Sets the pages per magazine, 0 to 64: see [`ListsConfig::magazine`].
    pub fn magazine(mut self, pages: usize) -> Self {
        self.lists.magazine = pages;
        self
    }

    /// Takes over what boot parameters say, by the grammar of [`params`](crate::params).
    ///
    /// # Errors
    ///
    /// [`ParamError`] says which parameter is malformed, and where.
    pub fn params(self, text: &str) -> Result<Self, ParamError<'_>> {
        Ok(self.parsed(&Params::parse(text)?))
    }

    /// Takes over boot parameters that were parsed before, as [`params`](Self::params) does.
    pub fn parsed(mut self, params: &Params) -> Self {
        self.lists = self.lists.with_params(params);
        self.tlb = self.tlb.with_params(params);
        self.userpte = params.userpte.or(self.userpte);
        self
    }

    /// Allows leaf tables of user space in high memory, if there is some, as the boot parameter
    /// `userpte` says: by default while any is free. `costs` are for `userpte=auto`. A machine
    /// around the [`MachineParts`] must say so, too
    /// ([`HIGH_TABLES`](crate::machine::Machine::HIGH_TABLES)); without one, all tables are low.
    ///
    /// # Safety
    ///
    /// 1. The window must reach all of the memory, not low memory alone.
    pub unsafe fn high_tables(mut self, costs: AutoCosts) -> Self {
        self.high = Some(costs);
        self
    }

    /// Reserves `bytes` bytes of boot memory for the kernel's own arrays.
    pub fn extra(mut self, bytes: usize) -> Self {
        self.extra = bytes;
        self
    }

    /// Makes the machine; returns it, and the boot memory that is left: what [`extra`](Self::extra)
    /// reserved, and what rounding leaves over.
    ///
    /// # Errors
    ///
    /// [`SetupError`] names the part, and what would do. The place is as it was before.
    ///
    /// # Safety
    ///
    /// 1. Until the place is dropped, nothing else uses the memory of the runs, programs to which
    ///    the machine's spaces show it apart.
    /// 2. Until then the window reaches that memory, in every space. It reaches the root that
    ///    [`kernel_root`](Self::kernel_root) names, and the tables that map the window.
    /// 3. Through the kernel's half of that root the user has no access, and tables that it links
    ///    stay as long. Nothing writes to the root while this runs.
    pub unsafe fn build_in<'m, F: Format>(
        self,
        place: &'m Place<F, W>,
    ) -> Result<Made<'m, F, W, S, O>, SetupError>
    where
        W: 'm,
    {
        const {
            check_tables::<F>();
            S::FORMATS.demand_only_tree::<F>();
        }
        let Setup { runs, window, hardware, objects, root, lists, tlb, userpte, high, extra } = self;
        if high.is_none() && !matches!(userpte, None | Some(UserPte::NoHigh)) {
            return Err(SetupError::NoHighTables);
        }
        let userpte = userpte.unwrap_or_default();
        // Everything that can be refused is refused before memory is written to.
        lists.check()?;
        Tlb::<S>::check(&tlb)?;
        if runs.is_empty() {
            return Err(SetupError::NoMemory);
        }
        Frames::check(runs)?;
        check_reach(runs, &window)?;
        // SAFETY: 1. and 2. no machine has this name: the pin is nobody's proof.
        let pin = unsafe { Pinned::assume(MachineId::NONE, CpuId(0), NodeId(0)) };
        hardware.check_mode(&pin)?;
        // SAFETY: 1. the caller's 2., as far as the MMUs do not say otherwise.
        let root = unsafe { check_root::<F, W, S>(root, &window, runs, &hardware, &pin)? };

        let size = MemorySize::of(runs);
        let bytes = BootMemory::bytes::<MemoryRun>(runs.len())
            .saturating_add(Frames::bytes(&size))
            .saturating_add(DataFrames::bytes(lists.cpus, size.nodes()))
            .saturating_add(Lists::<F, W>::bytes(&size, &lists))
            .saturating_add(Tlb::<S>::bytes(&tlb))
            .saturating_add(Parking::bytes(tlb.cpus))
            .saturating_add(extra);
        let cut = Cut::of::<F>(runs, bytes)?;
        let at = window.open(cut.at.addr());
        let Some(base) = NonNull::new(at.base()) else {
            let limit = window.limit().0;
            return Err(SetupError::OutOfWindow { run: runs[cut.index], limit });
        };

        let mut made = None;
        let filled = place.base.fill(|| {
            // SAFETY: 1. The memory is the machine's (the caller's 1.), the window reaches it for
            // as long as the place is there (2.), and `Cut` takes it out of its run.
            let mut boot = unsafe { BootMemory::new(base, cut.bytes) };
            let runs = cut.rest(runs, &mut boot)?;
            // SAFETY: 1. the caller's 1.; boot memory is in none of the runs. 2. The name is new.
            let frames = unsafe { Frames::new(&mut boot, MachineId::new(), &runs)? };
            check_memory::<F>(&frames)?;
            let half = match root {
                Some(root) => {
                    // SAFETY: 1. the caller's 2.
                    let map = unsafe { KernelMap::<F, W>::new(&frames, window, REQUEST)? };
                    for index in F::USER_ROOT_ENTRIES..F::entries(F::LAYOUT.root()) {
                        // SAFETY: 1. the caller's 3.; `check_root` has seen that it is an entry. 2.
                        // the map is new. 3. it was made for them.
                        unsafe { map.set(&frames, index, entry::<F, W>(&window, root, index)) };
                    }
                    Some(map)
                }
                None => None,
            };
            let half = KernelHalf(half);
            // SAFETY: 1. the caller's 2.
            let zero = unsafe { zeroes(&frames, &window, F::PAGE_ORDER)? };
            // A root without entries: the page of zeroes is one, unless roots are larger.
            let order = F::LAYOUT.order(F::LAYOUT.root());
            let empty = match half.map() {
                Some(map) => map.root(),
                None if order <= F::PAGE_ORDER => zero.addr(),
                // SAFETY: 1. the caller's 2.
                None => unsafe { zeroes(&frames, &window, order)? }.addr(),
            };
            made = Some((boot, zero, KernelRoot { at: empty }));
            let auto = match (high, userpte) {
                (Some(costs), UserPte::Auto(params)) if frames.has_high() => {
                    Some(AutoPlacement::new(&frames, &params, costs))
                }
                _ => None,
            };
            Ok::<_, SetupError>(Base { frames, half, auto })
        });
        let Base { frames, half, auto } = filled.ok_or(SetupError::Twice)??;
        let Some((mut boot, zero, kernel_root)) = made else { return Err(SetupError::Twice) };

        // From here on nothing fails: sizes have been checked, and there is room for all of it.
        // SAFETY: 1. the caller's 2. 2. The half was made for these frames and this format. 3.
        // `check_tables` has seen it. 4. `check_memory` has.
        let source = unsafe { Source::new(frames, window, half, F::LAYOUT) };
        let (placement, share) = match (auto, userpte) {
            (Some(auto), _) => (Placement::Auto(auto), auto.share()),
            (None, UserPte::High) if high.is_some() && frames.has_high() => (Placement::High, u32::MAX),
            _ => (Placement::Low, u32::MAX),
        };
        // SAFETY: 1. of `high_tables`: without it, all tables are low.
        let source = unsafe { source.with_placement(placement) };
        let lists = Quicklists::new(&mut boot, lists, source)?;
        let data = DataFrames::of_order(&mut boot, frames, tlb.cpus, F::PAGE_ORDER)?;
        // SAFETY: 1. the name is new, and this is the one call that makes a `Tlb` of it.
        let tlb = unsafe { Tlb::new(&mut boot, frames.machine(), tlb, hardware)? };
        let parking = Parking::new(&mut boot, frames.machine(), tlb.config().cpus, tlb.config().park)?;
        tlb.hardware().set_kernel_root(kernel_root);
        let zero_block = ZeroBlock::new();
        Ok((
            MachineParts {
                frames,
                half,
                data,
                window,
                lists,
                tlb,
                parking,
                zero,
                zero_block,
                share,
                objects,
            },
            boot,
        ))
    }
}

/// A frame of zeroes in low memory.
const REQUEST: Request = Request {
    node: NodeId(0),
    order: 0,
    zero: true,
    class: ZoneClass::Low,
    end: End::Low,
    flags: AllocFlags::NORMAL,
};

/// Takes a block of zeroes. It is not inlined: set-up has a large frame on the stack already.
///
/// # Safety
///
/// 1. The window must reach all of `frames` that are low memory.
#[inline(never)]
unsafe fn zeroes<W: OpenWindow>(frames: &Frames, window: &W, order: u8) -> Result<Pfn, NoFrame> {
    // SAFETY: 1. passed on; low memory is asked for.
    Ok(unsafe { frames.take(Request { order, ..REQUEST })?.zeroed(window) }.into_raw())
}

/// Refuses memory that the window says that it does not reach.
fn check_reach<W: OpenWindow>(runs: &[MemoryRun], window: &W) -> Result<(), SetupError> {
    let limit = window.limit().0;
    let beyond = |run: &&MemoryRun| (u64::from(run.start.0) + u64::from(run.frames)) << FRAME_SHIFT > limit;
    match runs.iter().find(beyond) {
        Some(run) => Err(SetupError::OutOfWindow { run: *run, limit }),
        None => Ok(()),
    }
}

/// A piece at the beginning of a run, for boot memory.
struct Cut {
    index: usize,
    at: Pfn,
    bytes: usize,
}

impl Cut {
    /// Cuts `bytes` bytes off the largest run of low memory.
    fn of<F: Format>(runs: &[MemoryRun], bytes: usize) -> Result<Self, SetupError> {
        let low = runs.iter().enumerate().filter(|(_, run)| run.class == ZoneClass::Low);
        let largest = low.max_by_key(|(_, run)| run.frames);
        // Whatever its alignment, a run of twice the size has a block of a root, or of a page.
        let root = 2u64 << F::LAYOUT.order(F::LAYOUT.root()).max(F::PAGE_ORDER);
        let wanted = (bytes as u64).checked_next_multiple_of(FRAME_SIZE as u64).unwrap_or(u64::MAX);
        let beside = (2 * root + SPARE) << FRAME_SHIFT;
        let has = largest.map_or(0, |(_, run)| u64::from(run.frames) << FRAME_SHIFT);
        match largest {
            Some((index, run)) if wanted.saturating_add(beside) <= has => {
                Ok(Cut { index, at: run.start, bytes: wanted as usize })
            }
            _ => Err(SetupError::TooSmall { wanted: wanted.saturating_add(beside), largest: has }),
        }
    }

    /// Returns the runs without the piece, in boot memory.
    fn rest(&self, runs: &[MemoryRun], boot: &mut BootMemory) -> Result<BootSlice<MemoryRun>, FramesError> {
        let frames = (self.bytes / FRAME_SIZE) as u32;
        Ok(boot.take(runs.len(), |index| {
            let run = runs[index];
            if index != self.index {
                return run;
            }
            MemoryRun { start: Pfn(run.start.0 + frames), frames: run.frames - frames, ..run }
        })?)
    }
}
