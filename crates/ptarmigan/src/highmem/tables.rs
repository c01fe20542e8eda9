//! A window on tables in high memory: slots of the CPU that opens it.
//!
//! # Opening
//!
//! Each CPU has a few slots of its own. A guard takes the lowest one that is free, shows the table
//! there, and gives the slot back when it is dropped, after the CPU has forgotten what it showed.
//! No other CPU uses these addresses, so no other CPU is asked to forget anything.
//!
//! Code of the library opens a table once for all that an operation does to it (REQ-31), and two at
//! the most at a time: fork and `mremap` copy from one table to another. Callers that walk one tree
//! in the callback of a walk of another one have more open.
//!
//! # Interrupts
//!
//! A handler takes slots that the code it interrupts has not taken, and gives them back before it
//! returns. So plain loads and stores do.
//!
//! # Staying
//!
//! A guard is good on its CPU only. [`OwnCpu::stay`] says which that is and keeps the caller there,
//! as `kmap_atomic` of Linux does by disabling preemption. Where callers have to hold a
//! [`Pinned`](crate::cpu::Pinned) anyway, it does nothing.
//!
//! # Rejected
//!
//! * [`local`](super::local) maps as the window of tables: they need a [`Tlb`](crate::tlb::Tlb),
//!   which is made after the lists that clear tables through the window, and an error is no answer
//!   to code that is half-way through a tree.
//! * Slots that stay filled until they are needed: the next table of a CPU is nearly always another
//!   one.
use crate::addr::{FRAME_SIZE, PhysAddr};
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::{Counter, CpuId};
use crate::highmem::slots::{Install, Remove, Slots};
use crate::sync::atomic::{AtomicU8, Ordering::Relaxed};
use crate::window::{Window, WindowGuard};
use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomData;

/// Slots of a CPU: tables that may be open at once, in interrupt handlers too.
pub const DEPTH: usize = u8::BITS as usize;

/// Where the caller runs.
///
/// # Safety
///
/// An implementation promises:
///
/// 1. While what [`stay`](Self::stay) returned exists, the caller runs on the CPU of that number,
///    and so does other code that gets this number meanwhile: interrupt handlers, which return
///    before the caller goes on.
/// 2. After [`forget`](Self::forget), that CPU has no translation of the page. It does not unwind.
pub unsafe trait OwnCpu: Sync {
    /// Keeps the caller on its CPU.
    type Stay;

    /// Keeps the caller on its CPU until the result is dropped, and returns which CPU that is.
    fn stay(&self) -> (Self::Stay, CpuId);

    /// Makes the CPU that the caller runs on forget the translation of the page at `page`, an
    /// address of the kernel's half.
    fn forget(&self, page: u64);
}

/// What one CPU has open.
#[derive(Default)]
#[repr(align(64))]
struct OpenTables {
    /// A bit for each slot. Only the CPU itself writes it.
    slots: AtomicU8,
    /// Windows that it has opened.
    opened: Counter,
}

/// Too few slots for tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableWindowError {
    /// Each CPU needs [`DEPTH`] of them.
    Slots {
        /// Slots that there are.
        slots: usize,
        /// Slots that are needed.
        needed: usize,
    },
    /// The CPUs' states do not fit into boot memory.
    Boot(BootMemoryShort),
}

impl fmt::Display for TableWindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableWindowError::Slots { slots, needed } => {
                write!(f, "{slots} slots for tables: {needed} are needed, {DEPTH} for each CPU")
            }
            TableWindowError::Boot(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for TableWindowError {}

/// A window on tables in high memory. With a [`DirectMap`](crate::window::DirectMap) of low memory
/// it makes a [`MixedWindow`](super::window::MixedWindow), which is what trees are reached through.
pub struct TableWindow<L, C> {
    slots: L,
    cpu: C,
    cpus: BootSlice<OpenTables>,
}

impl<L: Slots, C: OwnCpu> TableWindow<L, C> {
    /// Makes the window of `cpus` CPUs. CPU `c` has the [`DEPTH`] slots from `c * DEPTH` on.
    ///
    /// # Errors
    ///
    /// [`TableWindowError`].
    ///
    /// # Safety
    ///
    /// 1. The slots must be made for all memory that the window will be opened on, one frame at a
    ///    time. No other code may use them. They must be empty, and every CPU must have
    ///    forgotten their last frames.
    /// 2. Installing a frame in a slot and removing it must not fail.
    /// 3. `cpu` must give out numbers below `cpus`.
    pub unsafe fn new(
        boot: &mut BootMemory,
        cpus: usize,
        slots: L,
        cpu: C,
    ) -> Result<Self, TableWindowError> {
        let needed = cpus.saturating_mul(DEPTH);
        if slots.len() < needed {
            return Err(TableWindowError::Slots { slots: slots.len(), needed });
        }
        let cpus = boot.take(cpus, |_| OpenTables::default()).map_err(TableWindowError::Boot)?;
        Ok(TableWindow { slots, cpu, cpus })
    }

    /// Returns the bytes of boot memory that the window of `cpus` CPUs takes.
    pub const fn bytes(cpus: usize) -> usize {
        BootMemory::bytes::<OpenTables>(cpus)
    }

    /// Returns how often windows were opened, on all CPUs.
    pub fn opened(&self) -> usize {
        self.cpus.iter().fold(0, |sum, cpu| sum.wrapping_add(cpu.opened.get()))
    }

    /// Returns how many are open now, on all CPUs.
    pub fn open_now(&self) -> u32 {
        self.cpus.iter().map(|cpu| cpu.slots.load(Relaxed).count_ones()).sum()
    }

    /// Returns the slots.
    pub fn slots(&self) -> &L {
        &self.slots
    }
}

/// A table in high memory that is open; closed when dropped, on the same CPU.
pub struct TableGuard<'a, L: Slots, C: OwnCpu> {
    window: &'a TableWindow<L, C>,
    base: *mut u8,
    cpu: CpuId,
    at: u8,
    _stay: C::Stay,
    /// It may not leave its CPU.
    _here: PhantomData<*const ()>,
}

impl<L: Slots, C: OwnCpu> Drop for TableGuard<'_, L, C> {
    #[inline]
    fn drop(&mut self) {
        let TableGuard { window, at, .. } = *self;
        let slot = usize::from(self.cpu.0) * DEPTH + usize::from(at);
        // SAFETY: 1. this guard took it. 2. the guard's pointer is used no longer than the guard.
        let removed = window.slots.remove(unsafe { Remove::new(slot) });
        debug_assert!(removed.is_ok(), "contract of `TableWindow::new`, 2.");
        // Before another guard may take the slot: that of an interrupt handler, too.
        window.cpu.forget(window.slots.page(slot));
        let taken = &window.cpus[usize::from(self.cpu.0)].slots;
        taken.store(taken.load(Relaxed) & !(1 << at), Relaxed);
    }
}

// SAFETY: it is for memory that is handed out frame by frame, as leaf tables in high memory are
// (`Source::with_placement`), and for blocks that are opened frame by frame. 1. a slot shows the
// whole frame while its guard lives, and the guard stays on its CPU.
// 2. slots of one frame reach the same frame. 3. slots are as aligned as frames, and the offset of
// `at` in its frame is added.
unsafe impl<L: Slots, C: OwnCpu> Window for TableWindow<L, C> {
    type Guard<'a>
        = TableGuard<'a, L, C>
    where
        Self: 'a;
    type Error = Infallible;

    /// Opens a table.
    ///
    /// # Panics
    ///
    /// If [`DEPTH`] tables are open on this CPU already: callbacks of walks that walk other trees
    /// in their turn, several deep.
    #[inline]
    fn map(&self, at: PhysAddr) -> Result<Self::Guard<'_>, Infallible> {
        let (stay, cpu) = self.cpu.stay();
        let own = &self.cpus[usize::from(cpu.0)];
        let taken = own.slots.load(Relaxed);
        let free = taken.trailing_ones();
        assert!(free < u8::BITS, "{DEPTH} tables in high memory are open on CPU {}", cpu.0);
        // First, so that interrupts take other slots.
        own.slots.store(taken | 1 << free, Relaxed);
        own.opened.add(1);
        let slot = usize::from(cpu.0) * DEPTH + free as usize;
        // SAFETY: 1. the CPU's own, taken just now. 2. the guard that had it has had it forgotten.
        // 3. by the contract of `new` (1.).
        let installed = self.slots.install(unsafe { Install::new(slot, at.pfn()) });
        debug_assert!(installed.is_ok(), "contract of `TableWindow::new`, 2.");
        let base = self.slots.address(slot).wrapping_add(at.0 as usize % FRAME_SIZE);
        Ok(TableGuard { window: self, base, cpu, at: free as u8, _stay: stay, _here: PhantomData })
    }
}

// SAFETY: the slot shows the frame until the guard is dropped, which happens on the CPU that the
// slot belongs to.
unsafe impl<L: Slots, C: OwnCpu> WindowGuard for TableGuard<'_, L, C> {
    #[inline]
    fn base(&self) -> *mut u8 {
        self.base
    }
}
