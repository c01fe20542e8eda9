//! Windows on high memory: the library's local maps, in slots whose entries are one table of the
//! kernel's half.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use ptarmigan::addr::Pfn;
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::NoFrame;
use ptarmigan::highmem::local::LocalMaps;
use ptarmigan::highmem::{SlotError, Slots};
use ptarmigan::machine::Machine as _;
use ptarmigan::window::WindowGuard;
use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel::counts::Count;
use ptarmigan_kernel::late::Late;

use crate::KERNEL;
use crate::mmu::{self, Hardware};

/// Where the windows are: entry 384 of the kernel's directory.
const START: u32 = 0xf000_0000;
/// Windows of each CPU: a copy needs two, within a copy to a program one more.
const DEPTH: usize = 8;
/// Entry bits: present, writable, accessed, dirty, not executable.
const ENTRY: u64 = 0x63 | 1 << 63;

#[repr(C, align(4096))]
struct Table([AtomicU64; 512]);

/// The table. Boot links it into the kernel's directory.
#[unsafe(no_mangle)]
static window_table: Table = Table([const { AtomicU64::new(0) }; 512]);

/// The slots.
pub struct Window;

// SAFETY: 1. The table is linked at `START` in every space: the entry shows the frame there. 2.
// Each slot is a page of its own, and nothing else is mapped there. 3. Likewise; a slot that was
// removed is 0. 4. They are constants. 5. Nothing unwinds.
unsafe impl Slots for Window {
    fn len(&self) -> usize {
        CPUS * DEPTH
    }

    unsafe fn install(&self, index: usize, frame: Pfn) -> Result<u64, SlotError> {
        let raw = frame.addr().0 | ENTRY;
        if let Some(entry) = window_table.0.get(index) {
            entry.store(raw, Ordering::Release);
        }
        Ok(raw)
    }

    unsafe fn remove(&self, index: usize) -> Result<(), SlotError> {
        if let Some(entry) = window_table.0.get(index) {
            entry.store(0, Ordering::Release);
        }
        Ok(())
    }

    fn address(&self, index: usize) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.page(index) as usize)
    }

    fn page(&self, index: usize) -> u64 {
        u64::from(START) + ((index as u64) << 12)
    }

    fn shift(&self) -> u32 {
        12
    }
}

static MAPS: Late<LocalMaps<'static, Hardware, Window>> = Late::new();

/// Returns the bytes of boot memory that the maps take.
pub fn bytes(cpus: usize) -> usize {
    LocalMaps::<'static, Hardware, Window>::bytes(cpus) + 4096
}

/// Makes the maps.
///
/// # Safety
///
/// 1. It is called once, while one CPU runs, after the library was set up.
pub unsafe fn init(boot: &mut BootMemory) {
    let (machine, frames) = (KERNEL.machine.get(), KERNEL.frames.get());
    // SAFETY: 1. Slots show any frame of the machine; the direct map reaches those below its limit.
    let made = unsafe { LocalMaps::new(boot, DEPTH, machine.tlb(), frames, mmu::direct_map(), Window) };
    match made {
        // SAFETY: 1. Point 1 of the caller's.
        Ok(maps) => unsafe {
            MAPS.set(maps);
        },
        Err(_) => panic!("no windows on high memory"),
    }
}

/// Runs `f` with a pointer to a high frame.
///
/// # Errors
///
/// [`NoFrame`] if there is no window left.
pub fn with<R>(pin: &Pinned<'_>, pfn: Pfn, f: impl FnOnce(*mut u8) -> R) -> Result<R, NoFrame> {
    let none = NoFrame::new(0, pin.node(), 0);
    KERNEL.count(Count::Windows);
    MAPS.get()
        .scope(pin, |scope| {
            let guard = scope.map(pfn).map_err(|_| none)?;
            Ok(f(guard.base()))
        })
        .map_err(|_| none)?
}
