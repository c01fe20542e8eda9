//! Windows on high memory: the library's local maps for data, or Linux's pool where `kmap=` says
//! so, and its window on tables.

use core::ptr::NonNull;

use ptarmigan::addr::Pfn;
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, Pinned};
use ptarmigan::frames::NoFrame;
use ptarmigan::highmem::local::LocalMaps;
use ptarmigan::highmem::pool::PoolCounts;
use ptarmigan::highmem::tables::{OwnCpu, TableWindow};
use ptarmigan::highmem::window::MixedWindow;
use ptarmigan::machine::Machine as _;
use ptarmigan::quicklist::Policy as _;
use ptarmigan::window::WindowGuard;
use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel::counts::Count;
use ptarmigan_kernel_base::once_cell::OnceCell;
use ptarmigan_kernel_base::{Failed, say};
use ptarmigan_kernel_x86::hardware;
use ptarmigan_kernel_x86::segments::OfCpu;
use ptarmigan_linux::{FlushRule, LinuxPool};

use super::slots::{DATA, DEPTH, HighSlots};
use crate::mmu::{self, Hardware};
use crate::{KERNEL, cpu};

/// Where data is shown.
enum Maps {
    /// Slots of each CPU.
    Local(LocalMaps<'static, Hardware, HighSlots>),
    /// Slots of all CPUs, as Linux has them.
    Linux(LinuxPool<'static, Hardware, HighSlots>),
}

static MAPS: OnceCell<Maps> = OnceCell::new();

/// Returns the bytes of boot memory that the maps take, with the pool if there is a rule for it.
pub fn bytes(cpus: usize, linux: Option<FlushRule>) -> usize {
    let pool = linux.map_or(0, |_| LinuxPool::<'static, Hardware, HighSlots>::bytes(DATA));
    LocalMaps::<'static, Hardware, HighSlots>::bytes(cpus) + pool + 4096
}

/// Makes the maps: local ones, or Linux's pool if there is a rule for it.
///
/// # Safety
///
/// 1. It is called once, while one CPU runs, after the library was set up.
pub unsafe fn init(boot: &mut BootMemory, linux: Option<FlushRule>) -> Result<(), Failed> {
    let machine = KERNEL.machine.get();
    let (tlb, frames) = (machine.tlb(), machine.frames());
    let (low, slots) = (mmu::direct_map(), HighSlots::data());
    let maps = match linux {
        None => {
            // SAFETY: 1. Slots show any frame of the machine; the direct map reaches those below
            // its limit. 2. These slots are used here alone. The table is all zero at boot, and no
            // code has used an address of it.
            Maps::Local(unsafe { LocalMaps::new(boot, DEPTH, tlb, frames, low, slots)? })
        }
        Some(rule) => {
            // SAFETY: 1. and 2. As for the local maps.
            Maps::Linux(unsafe { LinuxPool::new(boot, tlb, frames, low, slots)? }.with_rule(rule))
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

/// Prints the counts of the window on tables, and of Linux's pool if data is shown there.
pub fn print_counts() {
    let (high, opened) = (KERNEL.machine.get().policy().counts().high.allocs, TABLES.get().opened());
    say!("kernel: tables in high memory: {high} handed out; windows on them: {opened}");
    if let Maps::Linux(pool) = MAPS.get() {
        let PoolCounts { sweeps, idle_sweeps, total, .. } = pool.counts();
        let (stale, used) = (total.stale, total.pinned);
        say!(
            "kernel: Linux's pool: {sweeps} sweeps, {idle_sweeps} of them with nothing stale; {stale} slots stale, \
             {used} in use"
        );
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
        hardware::forget_page::<mmu::ImageCpus>(page);
    }
}

/// The window on memory: the direct map, and slots for tables in high memory.
pub type Window = MixedWindow<&'static TableWindow<HighSlots, ThisCpu>>;

/// Bytes of boot memory that the window takes.
const TABLES_BYTES: usize = TableWindow::<HighSlots, ThisCpu>::bytes(CPUS);
static TABLES_MEMORY: OfCpu<[u8; TABLES_BYTES]> = OfCpu::new([0; TABLES_BYTES]);
static TABLES: OnceCell<TableWindow<HighSlots, ThisCpu>> = OnceCell::new();

/// Makes the window.
///
/// # Safety
///
/// 1. It is called once, while one CPU runs.
pub unsafe fn window() -> Window {
    let memory = NonNull::new(TABLES_MEMORY.get().cast()).unwrap_or(NonNull::dangling());
    // SAFETY: 1. The memory is used here alone (point 1).
    let mut boot = unsafe { BootMemory::new(memory, TABLES_BYTES) };
    // SAFETY: 1. Slots show any frame, and these are used here alone. The table is all zero at
    // boot, and no code has used an address of it. 2. Neither of the two fails. 3. CPUs have
    // numbers below `CPUS`.
    let made = unsafe { TableWindow::new(&mut boot, CPUS, HighSlots::tables(), ThisCpu) };
    let made = made.unwrap_or_else(|e| panic!("{e}"));
    // SAFETY: 1. Point 1 of the caller's.
    let high = unsafe { TABLES.set(made) };
    // SAFETY: 1. Frames below the direct map's limit are reached through it alone. 2. `boot` makes
    // high memory of the frames above it.
    unsafe { MixedWindow::new(mmu::direct_map(), high) }
}
