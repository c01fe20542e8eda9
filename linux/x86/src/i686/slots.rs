//! Slots that show high frames: entries of one table of the kernel's half. The first are for data,
//! the next ones for tables, and the rest for the pool that is tested.
//!
//! ```text
//!  window_table   │ data │ tables │ pool … │
//!  install        high half ──> low half with the present bit, release
//!  remove         low half = 0 ──> the CPU forgets the page
//! ```
//!
//! # Why
//!
//! An entry of PAE has two words, and an MMU may read it between two stores. The word with the
//! present bit is stored last and cleared first, so that no CPU sees half of an entry. All slots
//! are in one table: one page of memory, which every root links, serves every space.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use ptarmigan::highmem::{Install, Remove, SlotError, Slots, tables};
use ptarmigan_kernel::arch::CPUS;

/// Windows on data of each CPU: a copy needs two, within a copy to a program one more.
pub const DEPTH: usize = 8;
/// Windows on data.
pub const DATA: usize = CPUS * DEPTH;
/// Where the windows are: entry 384 of the kernel's directory.
const START: u32 = 0xf000_0000;
/// Entry bits: present, writable, accessed, dirty, not executable.
const ENTRY: u64 = 0x63 | 1 << 63;

/// Entries in halves, the lower one first. The half that says that the entry is present is written
/// last, and taken away first. (Rejected: atomics of 64 bits, which this target moves through the
/// floating-point registers.)
#[repr(C, align(4096))]
struct SlotTable([[AtomicU32; 2]; 512]);

/// The table. Boot links it into the kernel's directory.
#[unsafe(no_mangle)]
static window_table: SlotTable = SlotTable([const { [const { AtomicU32::new(0) }; 2] }; 512]);

/// Slots: entries of the table from `first` on.
pub struct HighSlots {
    first: usize,
    len: usize,
}

impl HighSlots {
    const fn new(first: usize, len: usize) -> Self {
        assert!(first + len <= 512, "the table has no more entries");
        HighSlots { first, len }
    }

    /// Returns the slots for data: [`DEPTH`] of each CPU.
    pub const fn data() -> Self {
        HighSlots::new(0, DATA)
    }

    /// Returns the slots for tables.
    pub const fn tables() -> Self {
        HighSlots::new(DATA, CPUS * tables::DEPTH)
    }

    /// Returns `len` slots for the pool that is tested.
    pub const fn test(len: usize) -> Self {
        HighSlots::new(DATA + CPUS * tables::DEPTH, len)
    }
}

// SAFETY: 1. The table is linked at `START` in every space: the entry shows the frame there. 2.
// Each slot is a page of its own, and no other frame is mapped there. 3. Likewise; the lower half
// of a slot that was removed is 0. 4. They are constants. 5. No function unwinds. 6. Neither goes
// on.
unsafe impl Slots for HighSlots {
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
