//! Reads the kernel's description of its machine.
use crate::arch::{PT_PAGE_SIZE, ROOT_ALIGN};
use crate::error::PtError;
use crate::hooks::PtHooks;
use crate::object::ConstArg;
use core::ffi::c_void;
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::cpu::{MAX_CPUS, NodeId};
use ptarmigan::frames::{MemoryRun, ZoneClass};

/// The most runs of memory.
pub const PT_MAX_RUNS: usize = 32;

/// A run of physical memory that the library manages from now on.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PtRun {
    /// The physical address of its first byte, at the border of a page and not 0.
    pub start: u64,
    /// Its bytes, whole pages.
    pub bytes: u64,
    /// Its NUMA node, from 0.
    pub node: u32,
}

/// A kernel's description of its machine. Set all members to zero, then those that matter.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PtConfig {
    /// `sizeof(struct pt_config)`.
    pub size: usize,
    /// Memory for the library's own arrays, `pt_machine_bytes` bytes or more. It is in no run.
    pub boot_memory: *mut c_void,
    /// Bytes of it.
    pub boot_bytes: usize,
    /// The memory to manage, ascending.
    pub runs: *const PtRun,
    /// How many runs.
    pub run_count: usize,
    /// Where physical address 0 is mapped in every space, at the border of a page.
    pub direct_map: *mut c_void,
    /// The first physical address that is not mapped there. Memory behind it in runs is high memory
    /// on i386, and refused elsewhere.
    pub direct_map_end: u64,
    /// The physical address of a root whose user half is empty. New roots copy its kernel half, and
    /// a CPU that runs in no space has it loaded. It lies in the direct map and in no run. AArch64:
    /// all of it is the user's; the kernel's own root is in TTBR1_EL1, and none of the library's.
    pub kernel_root: u64,
    /// 1 if no hardware walks the tables: a test in a program, an emulator. 0 in a kernel: then
    /// `pt_machine_init` walks `kernel_root` and refuses one that does not map `direct_map` to the
    /// memory of `runs`.
    pub hosted: u32,
    /// The number of CPUs, 1 to 256.
    pub cpus: u32,
    /// Each CPU looks at the content of each so-many-th table that is given back: 1 looks at all, 0
    /// never looks. 255 costs a tenth of a pair.
    pub verify_every: u32,
    /// i386: the tables of the window for high memory, one after the other, in the direct map and
    /// linked in the kernel's half of `kernel_root`. NULL if there is no window. The kernel does
    /// not write to them, and no TLB holds a page of the window.
    pub kmap_tables: *mut u64,
    /// i386: where the window begins.
    pub kmap_base: *mut c_void,
    /// i386: its pages, at most 512 for each table, and 65,536.
    pub kmap_slots: u32,
    /// The kernel's functions for the library.
    pub hooks: PtHooks,
}

/// A run of unknown memory.
const NO_RUN: MemoryRun = MemoryRun { start: Pfn(0), frames: 0, node: NodeId(0), class: ZoneClass::Low };

/// Runs that have been read. Each may be in two parts, below the end of the direct map and above.
pub struct Runs {
    runs: [MemoryRun; 2 * PT_MAX_RUNS],
    n: usize,
}

impl Runs {
    pub fn get(&self) -> &[MemoryRun] {
        self.runs.get(..self.n).unwrap_or(&[])
    }

    fn add(&mut self, start: u64, end: u64, node: NodeId, class: ZoneClass) -> Result<(), PtError> {
        if start >= end {
            return Ok(());
        }
        let run = self.runs.get_mut(self.n).ok_or(PtError::Argument)?;
        let frames = u32::try_from((end - start) / PT_PAGE_SIZE).map_err(|_| PtError::Range)?;
        *run = MemoryRun { start: PhysAddr(start).pfn(), frames, node, class };
        self.n += 1;
        Ok(())
    }

    /// Refuses runs that have anything in common with `start..end`.
    fn spare(&self, start: u64, end: u64) -> Result<(), PtError> {
        let touches = |run: &MemoryRun| {
            let (first, behind) =
                (run.start.addr().0, run.start.addr().0 + u64::from(run.frames) * PT_PAGE_SIZE);
            first < end && start < behind
        };
        if self.get().iter().any(touches) { Err(PtError::Runs) } else { Ok(()) }
    }
}

impl PtConfig {
    /// Reads the configuration and looks at all of its members that can be looked at.
    pub(crate) fn read(config: &ConstArg<'_, PtConfig>) -> Result<(PtConfig, Runs), PtError> {
        let config = config.as_ptr();
        if config.is_null() || !config.is_aligned() {
            return Err(PtError::Pointer);
        }
        // SAFETY: it points to a configuration (invariant of `Arg`, 1.), of which the size is the
        // first member whatever its version is.
        if unsafe { (&raw const (*config).size).read() } != size_of::<PtConfig>() {
            return Err(PtError::Size);
        }
        // SAFETY: as above, and of this version.
        let config = unsafe { config.read() };
        // SAFETY: 1. by the invariant of `Arg` (5.).
        let runs = unsafe { config.check()? };
        Ok((config, runs))
    }

    /// # Safety
    ///
    /// 1. `runs` points to `run_count` runs, unless it is NULL or misaligned.
    unsafe fn check(&self) -> Result<Runs, PtError> {
        if self.runs.is_null() || !self.runs.is_aligned() {
            return Err(PtError::Pointer);
        }
        let is_odd = |number: u64| !number.is_multiple_of(PT_PAGE_SIZE);
        let cpus = self.cpus as usize;
        if !(1..=MAX_CPUS).contains(&cpus) || !(1..=PT_MAX_RUNS).contains(&self.run_count) {
            return Err(PtError::Argument);
        }
        if self.hosted > 1 {
            return Err(PtError::Argument);
        }
        if !self.hooks.are_complete(self.cpus) {
            return Err(PtError::Pointer);
        }
        if is_odd(self.direct_map.addr() as u64) || is_odd(self.direct_map_end) {
            return Err(PtError::DirectMap);
        }
        let root_end = self.kernel_root.checked_add(ROOT_ALIGN).filter(|end| *end <= self.direct_map_end);
        if self.kernel_root == 0 || !self.kernel_root.is_multiple_of(ROOT_ALIGN) || root_end.is_none() {
            return Err(PtError::KernelRoot);
        }
        let mut runs = Runs { runs: [NO_RUN; 2 * PT_MAX_RUNS], n: 0 };
        for i in 0..self.run_count {
            // SAFETY: there are so many (1.).
            let run = unsafe { self.runs.add(i).read() };
            self.add(&mut runs, run)?;
        }
        // Memory that the library was told of is not handed out.
        self.spare(&runs, self.boot_memory.addr(), self.boot_bytes)?;
        self.spare(&runs, self.kmap_tables.addr(), (self.kmap_slots as usize).saturating_mul(8))?;
        runs.spare(self.kernel_root, self.kernel_root + ROOT_ALIGN)?;
        Ok(runs)
    }

    fn add(&self, runs: &mut Runs, run: PtRun) -> Result<(), PtError> {
        let PtRun { start, bytes, node } = run;
        let end = start.checked_add(bytes).ok_or(PtError::Range)?;
        if start == 0 || !start.is_multiple_of(PT_PAGE_SIZE) || !bytes.is_multiple_of(PT_PAGE_SIZE) {
            return Err(PtError::Range);
        }
        if bytes == 0 {
            return Err(PtError::Runs);
        }
        // Frame numbers have 32 bits, of which the last is reserved.
        if end > u64::from(u32::MAX) * PT_PAGE_SIZE {
            return Err(PtError::Range);
        }
        if cfg!(not(target_arch = "x86")) && end > self.direct_map_end {
            return Err(PtError::Range);
        }
        let node = NodeId(u8::try_from(node).map_err(|_| PtError::Runs)?);
        let border = self.direct_map_end.clamp(start, end);
        runs.add(start, border, node, ZoneClass::Low)?;
        runs.add(border, end, node, ZoneClass::High)
    }

    /// Refuses runs that overlap memory at an address of the direct map.
    pub(crate) fn spare(&self, runs: &Runs, at: usize, bytes: usize) -> Result<(), PtError> {
        let start = at.wrapping_sub(self.direct_map.addr()) as u64;
        if bytes == 0 || start >= self.direct_map_end {
            return Ok(());
        }
        runs.spare(start, start.saturating_add(bytes as u64))
    }
}
