//! Windows on high memory, in slots whose entries are one table of the kernel's half: the library's
//! local maps for data, or Linux's pool where `kmap=` says so, and its window on tables.
//!
//! Of the table's entries the first [`DATA`] are the slots for data, the next ones those of tables,
//! and the rest those of the pool that [`kmap`] tests.

use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use ptarmigan::addr::Pfn;
use ptarmigan::bootmem::{BootMemory, BootMemoryShort};
use ptarmigan::cpu::{CpuId, Pinned};
use ptarmigan::frames::NoFrame;
use ptarmigan::highmem::local::{LocalMaps, LocalSetupError};
use ptarmigan::highmem::pool::PoolCounts;
use ptarmigan::highmem::tables::{self, OwnCpu, TableWindow};
use ptarmigan::highmem::window::MixedWindow;
use ptarmigan::highmem::{Install, Remove, SlotError, Slots};
use ptarmigan::machine::Machine as _;
use ptarmigan::window::WindowGuard;
use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel::counts::Count;
use ptarmigan_kernel::late::Late;
use ptarmigan_linux::{FlushRule, LinuxPool};

use ptarmigan_kernel_x86::hardware;

use crate::mmu::{self, Hardware};
use crate::{KERNEL, cpu, kmap};

/// Where the windows are: entry 384 of the kernel's directory.
const START: u32 = 0xf000_0000;
/// Windows on data of each CPU: a copy needs two, within a copy to a program one more.
const DEPTH: usize = 8;
/// Windows on data.
const DATA: usize = CPUS * DEPTH;
/// The first slot of the pool that is tested.
const TEST: usize = DATA + CPUS * tables::DEPTH;
const _: () = assert!(TEST + kmap::SLOTS <= 512);
/// Entry bits: present, writable, accessed, dirty, not executable.
const ENTRY: u64 = 0x63 | 1 << 63;

/// Entries in halves, the lower one first. The half that says that the entry is present is written
/// last, and taken away first. (Rejected: atomics of 64 bits, which this target moves through the
/// floating-point registers.)
#[repr(C, align(4096))]
struct Table([[AtomicU32; 2]; 512]);

/// The table. Boot links it into the kernel's directory.
#[unsafe(no_mangle)]
static window_table: Table = Table([const { [const { AtomicU32::new(0) }; 2] }; 512]);

/// Slots: entries of the table from `first` on.
pub struct Window {
    first: usize,
    len: usize,
}

// SAFETY: 1. The table is linked at `START` in every space: the entry shows the frame there. 2.
// Each slot is a page of its own, and no other frame is mapped there. 3. Likewise; the lower half
// of a slot that was removed is 0. 4. They are constants. 5. No function unwinds. 6. Neither goes
// on.
unsafe impl Slots for Window {
    fn len(&self) -> usize {
        self.len
    }

    fn install(&self, install: Install) -> Result<u64, SlotError> {
        let (index, frame) = (install.index(), install.frame());
        let raw = frame.addr().0 | ENTRY;
        if let Some([low, high]) = window_table.0.get(self.first + index) {
            high.store((raw >> 32) as u32, Ordering::Relaxed);
            low.store(raw as u32, Ordering::Release);
        }
        Ok(raw)
    }

    fn remove(&self, remove: Remove) -> Result<(), SlotError> {
        let index = remove.index();
        if let Some([low, _]) = window_table.0.get(self.first + index) {
            low.store(0, Ordering::Release);
        }
        Ok(())
    }

    fn address(&self, index: usize) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.page(index) as usize)
    }

    fn page(&self, index: usize) -> u64 {
        u64::from(START) + (((self.first + index) as u64) << 12)
    }

    fn shift(&self) -> u32 {
        12
    }
}

/// Where data is shown.
enum Maps {
    /// Slots of each CPU.
    Local(LocalMaps<'static, Hardware, Window>),
    /// Slots of all CPUs, as Linux has them.
    Linux(LinuxPool<'static, Hardware, Window>),
}

static MAPS: Late<Maps> = Late::new();

/// Returns the bytes of boot memory that the maps take, with the pool if there is a rule for it.
pub fn bytes(cpus: usize, linux: Option<FlushRule>) -> usize {
    let pools = LinuxPool::<'static, Hardware, Window>::bytes(DATA) + kmap::bytes();
    LocalMaps::<'static, Hardware, Window>::bytes(cpus) + linux.map_or(0, |_| pools) + 4096
}

/// Why there are no windows.
#[derive(Clone, Copy, Debug)]
pub enum InitError {
    /// The local maps could not be made.
    Local(LocalSetupError),
    /// Boot memory is short of the pool.
    Pool(BootMemoryShort),
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InitError::Local(e) => e.fmt(f),
            InitError::Pool(e) => e.fmt(f),
        }
    }
}

/// Makes the maps: local ones, or Linux's pool if there is a rule for it.
///
/// # Errors
///
/// [`InitError`].
///
/// # Safety
///
/// 1. It is called once, while one CPU runs, after the library was set up.
pub unsafe fn init(boot: &mut BootMemory, linux: Option<FlushRule>) -> Result<(), InitError> {
    let (machine, frames) = (KERNEL.machine.get(), KERNEL.frames.get());
    let (tlb, low) = (machine.tlb(), mmu::direct_map());
    let slots = Window { first: 0, len: DATA };
    let maps = match linux {
        None => {
            // SAFETY: 1. Slots show any frame of the machine; the direct map reaches those below
            // its limit. 2. These slots are used here alone. The table is all zero at boot, and no
            // code has used an address of it.
            let made = unsafe { LocalMaps::new(boot, DEPTH, tlb, frames, low, slots) };
            Maps::Local(made.map_err(InitError::Local)?)
        }
        Some(rule) => {
            // SAFETY: 1. Point 1 of the caller's. 2. These slots are used there alone, for the
            // first time.
            unsafe { kmap::init(boot, rule, Window { first: TEST, len: kmap::SLOTS }) }
                .map_err(InitError::Pool)?;
            // SAFETY: 1. and 2. As for the local maps.
            let made = unsafe { LinuxPool::new(boot, tlb, frames, low, slots) };
            Maps::Linux(made.map_err(InitError::Pool)?.with_rule(rule))
        }
    };
    // SAFETY: 1. Point 1 of the caller's.
    unsafe { MAPS.set(maps) };
    Ok(())
}

/// Runs `f` with a pointer to a high frame.
///
/// # Errors
///
/// [`NoFrame`] if there is no window left.
pub fn with<R>(pin: &Pinned<'_>, pfn: Pfn, f: impl FnOnce(*mut u8) -> R) -> Result<R, NoFrame> {
    let none = NoFrame::new(0, pin.node(), 0);
    KERNEL.count(Count::Windows);
    match MAPS.get() {
        Maps::Local(maps) => maps
            .scope(pin, |scope| {
                let guard = scope.map(pfn).map_err(|_| none)?;
                Ok(f(guard.base()))
            })
            .map_err(|_| none)?,
        // A CPU uses fewer than `DEPTH` slots at a time, so there is one for all without waiting.
        Maps::Linux(pool) => {
            let at = pool.try_map(pin, pfn).map_err(|_| none)?;
            let done = f(at);
            // SAFETY: 1. It was mapped above, and `f` has ended.
            unsafe { pool.unmap(pin, pfn) }.map_err(|_| none)?;
            Ok(done)
        }
    }
}

/// Returns the counts of Linux's pool, if data is shown there.
pub fn sweeps() -> Option<PoolCounts> {
    match MAPS.get() {
        Maps::Local(_) => None,
        Maps::Linux(pool) => Some(pool.counts()),
    }
}

/// The calling CPU, which the kernel does not leave.
pub struct ThisCpu;

// SAFETY: 1. `fs` leads to the number of the CPU, and the kernel is not preempted. 2. INVLPG.
unsafe impl OwnCpu for ThisCpu {
    type Stay = ();

    #[inline]
    fn stay(&self) -> ((), CpuId) {
        ((), CpuId(cpu::number() as u16))
    }

    #[inline]
    fn forget(&self, page: u64) {
        hardware::forget_page::<mmu::Cpus>(page);
    }
}

/// The window on tables: the direct map, and slots for those in high memory.
pub type Tables = MixedWindow<&'static TableWindow<Window, ThisCpu>>;

static TABLES: Late<TableWindow<Window, ThisCpu>> = Late::new();

/// Returns the bytes of boot memory that the window on tables takes.
pub fn tables_bytes(cpus: usize) -> usize {
    TableWindow::<Window, ThisCpu>::bytes(cpus)
}

/// Makes the window on tables. `None` if boot memory is short.
///
/// # Safety
///
/// 1. It is called once, while one CPU runs.
pub unsafe fn tables(boot: &mut BootMemory, cpus: usize) -> Option<Tables> {
    let slots = Window { first: DATA, len: CPUS * tables::DEPTH };
    // SAFETY: 1. Slots show any frame, and these are used here alone. The table is all zero at
    // boot, and no code has used an address of it. 2. Neither of the two fails. 3. CPUs have
    // numbers below `cpus`.
    let made = unsafe { TableWindow::new(boot, cpus, slots, ThisCpu) }.ok()?;
    // SAFETY: 1. Point 1 of the caller's.
    let high = unsafe { TABLES.set(made) };
    // SAFETY: 1. Frames below the direct map's limit are reached through it alone. 2. `boot` makes
    // high memory of the frames above it.
    Some(unsafe { MixedWindow::new(mmu::direct_map(), high) })
}

/// Returns how often tables were opened.
pub fn tables_opened() -> usize {
    TABLES.get().opened()
}
