//! The pool of slots, in entries of tables that the kernel has linked.
//!
//! ```text
//!  install   high half ──────> low half with the present bit, release
//!  remove    low half = 0 ───> (the high half stays: an MMU does not read it)
//!  MMU       low half: present? ──> high half
//! ```
//!
//! # Why
//!
//! An entry of PAE has 64 bits, and i586 stores 32 at once. An MMU may read between the two stores,
//! so the half that says that the entry is present is written last and taken away first. A 64-bit
//! compare-and-swap would do it in one step, and takes several times as long as two stores.
use crate::config::{PtConfig, Runs};
use crate::error::PtError;
use crate::hooks::Hardware;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::{Frames, MemorySize};
use ptarmigan::highmem::pool::{Pool, PoolConfig, PoolError, PoolSetupError};
use ptarmigan::highmem::{Install, MAX_SLOTS, Remove, SlotError, Slots};
use ptarmigan::tlb::Tlb;
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};

/// Entry bits: present, writable, accessed, dirty.
const ENTRY: u32 = 0x63;
/// Entry bit of the upper half: not executable.
const NO_EXECUTE: u32 = 1 << 31;
const PAGE: usize = 4096;
/// Users of a slot at the most, so that one more can always be counted.
const USERS: u32 = 0xff00;

/// Entries in halves, the lower one first. The half that says that the entry is present is written
/// last, and taken away first.
#[derive(Clone, Copy)]
struct Window {
    entries: *const [AtomicU32; 2],
    base: *mut c_void,
    len: usize,
}

// SAFETY: all that is written there are atomics.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    fn entry(&self, index: usize) -> Option<&[AtomicU32; 2]> {
        // SAFETY: there are so many entries, which no other code writes (contract of `Kmap::new`).
        (index < self.len).then(|| unsafe { &*self.entries.add(index) })
    }

    /// Returns the frame that a slot shows.
    fn frame(&self, index: usize) -> Option<Pfn> {
        let [low, high] = self.entry(index)?;
        let (low, high) = (low.load(Ordering::Relaxed), high.load(Ordering::Relaxed) & !NO_EXECUTE);
        (low & 1 != 0).then(|| PhysAddr(u64::from(high) << 32 | u64::from(low)).pfn())
    }
}

// SAFETY: 1. the tables are linked at the base (contract of `Kmap::new`): an entry shows the frame
// there. 2. each slot is a page of its own. 3. likewise; a slot that was removed is not present. 4.
// they do not change. 5. no function unwinds. 6. neither goes on.
unsafe impl Slots for Window {
    fn len(&self) -> usize {
        self.len
    }

    fn install(&self, install: Install) -> Result<u64, SlotError> {
        let (index, frame) = (install.index(), install.frame());
        let [low, high] = self.entry(index).ok_or(SlotError { index, code: 22 })?;
        let at = frame.addr().0;
        let halves = (at as u32 | ENTRY, (at >> 32) as u32 | NO_EXECUTE);
        high.store(halves.1, Ordering::Relaxed);
        low.store(halves.0, Ordering::Release);
        Ok(u64::from(halves.1) << 32 | u64::from(halves.0))
    }

    fn remove(&self, remove: Remove) -> Result<(), SlotError> {
        let index = remove.index();
        let [low, _] = self.entry(index).ok_or(SlotError { index, code: 22 })?;
        low.store(0, Ordering::Release);
        Ok(())
    }

    fn address(&self, index: usize) -> *mut u8 {
        self.base.wrapping_byte_add(index * PAGE).cast()
    }

    fn page(&self, index: usize) -> u64 {
        self.address(index).addr() as u64
    }

    fn shift(&self) -> u32 {
        12
    }
}

impl From<PoolError> for PtError {
    fn from(e: PoolError) -> Self {
        match e {
            PoolError::NoSuchFrame(_) => PtError::Foreign,
            PoolError::WrongMachine(_) => PtError::Machine,
            PoolError::Refused(e) => e.into(),
            _ => PtError::NoSlot,
        }
    }
}

/// The direct map for low frames; slots for high ones, if there is a window.
pub struct Kmap {
    low: DirectMap,
    window: Window,
    pool: Option<Pool<'static, Hardware, Window>>,
}

impl Kmap {
    pub fn bytes(size: &MemorySize, config: &PtConfig) -> usize {
        let slots = (config.kmap_slots as usize).min(MAX_SLOTS);
        let shape = PoolConfig::new(config.cpus as usize, slots);
        Pool::<'static, Hardware, Window>::bytes(size, &shape, slots)
    }

    /// # Errors
    ///
    /// [`PtError::Pointer`] and [`PtError::Range`] for a window that cannot be one;
    /// [`PtError::BootMemory`]; [`PtError::Runs`] if there is high memory and no window.
    ///
    /// # Safety
    ///
    /// 1. `low` reaches all low frames.
    /// 2. The tables have so many entries, are linked in the kernel's half at the base, and are
    ///    written by no other code. No TLB holds a page of the window.
    pub unsafe fn new(
        boot: &mut BootMemory,
        config: &PtConfig,
        _: &Runs,
        tlb: &'static Tlb<Hardware>,
        frames: &'static Frames,
        low: DirectMap,
    ) -> Result<Self, PtError> {
        let (tables, base, len) = (config.kmap_tables, config.kmap_base, config.kmap_slots as usize);
        let window = Window { entries: tables.cast(), base, len };
        if len == 0 {
            let fits = tables.is_null() && !frames.has_high();
            return if fits { Ok(Kmap { low, window, pool: None }) } else { Err(PtError::Runs) };
        }
        if tables.is_null() || !tables.addr().is_multiple_of(PAGE) {
            return Err(PtError::Pointer);
        }
        let end = base.addr() as u64 + len as u64 * PAGE as u64;
        if len > MAX_SLOTS || !base.addr().is_multiple_of(PAGE) || end > u64::from(u32::MAX) {
            return Err(PtError::Range);
        }
        for entry in 0..len {
            if let Some([low, _]) = window.entry(entry) {
                low.store(0, Ordering::Relaxed);
            }
        }
        let shape = PoolConfig::new(config.cpus as usize, len);
        // SAFETY: 1. the window shows any frame (point 2 of the caller's); `low` reaches the others
        // (point 1). 2. the entries are empty since just now, and no TLB knows them (point 2).
        let pool = unsafe { Pool::new(boot, shape, tlb, frames, low, window, &()) };
        let pool = pool.map_err(|e| match e {
            PoolSetupError::Boot(_) => PtError::BootMemory,
            _ => PtError::Argument,
        })?;
        Ok(Kmap { low, window, pool: Some(pool) })
    }

    /// Maps a frame of the machine's.
    pub fn map(&self, pin: &Pinned<'_>, pfn: Pfn) -> Result<*mut c_void, PtError> {
        if pfn.addr().0 < self.low.limit() {
            return Ok(self.low.open(pfn.addr()).base().cast());
        }
        let pool = self.pool.as_ref().ok_or(PtError::NoSlot)?;
        let mapped = pool.try_map(pin, pfn)?;
        let at: *mut c_void = mapped.base().cast();
        if self.slot(at).is_some_and(|slot| pool.state(slot) > USERS) {
            return Err(PtError::NoSlot);
        }
        // `unmap` ends this use.
        core::mem::forget(mapped);
        Ok(at)
    }

    /// Ends a use of a high frame.
    pub fn unmap(&self, pin: &Pinned<'_>, at: *mut c_void) -> Result<(), PtError> {
        let (Some(pool), Some(slot)) = (&self.pool, self.slot(at)) else { return Err(PtError::Foreign) };
        // One user at the least: only `map` forgets a use.
        if pool.state(slot) < 2 {
            return Err(PtError::Freed);
        }
        let pfn = self.window.frame(slot).ok_or(PtError::Freed)?;
        let mapped = pool.try_map(pin, pfn)?;
        if !ptr::eq(mapped.base().cast(), at) {
            return Err(PtError::Freed);
        }
        // SAFETY: 1. there is a user (above), and `map` forgets each.
        unsafe { mapped.end_with_forgotten() };
        Ok(())
    }

    fn slot(&self, at: *mut c_void) -> Option<usize> {
        let offset = at.addr().wrapping_sub(self.window.base.addr());
        let slot = offset / PAGE;
        (self.pool.is_some() && offset.is_multiple_of(PAGE) && slot < self.window.len).then_some(slot)
    }

    pub fn idle(&self, pin: &Pinned<'_>) {
        if let Some(pool) = &self.pool {
            pool.idle(pin);
        }
    }
}
