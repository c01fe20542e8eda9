//! A pool of slots for frames that are mapped for longer, or by code that may sleep.
//!
//! # States of a slot
//!
//! | count | state |
//! |---|---|
//! | 0 | shows nothing, and every CPU has forgotten what it showed: it can be used |
//! | 1 | shows a frame that has no users; CPUs may know it |
//! | n, from 2 on | shows a frame that has n - 1 users |
//!
//! ```text
//!  acquire, publish   0 ──> 2        the frame's word names the slot
//!  join               n ──> n + 1    from 1 on: the same address, no flush
//!  leave              n ──> n - 1    down to 1: stale
//!  sweep              1 ──> 0 ── expire ── flush of all CPUs ── give_flushed ──> free
//! ```
//!
//! A slot goes from 1 to 0 by a *sweep*, with a flush in between (I11). A frame that is mapped
//! again before that goes back to 2, at the same address. So a frame has one address at a time, and
//! unmapping never flushes.
//!
//! # Why
//!
//! An address that all CPUs use must be forgotten by all of them before it shows another frame. A
//! flush for each unmap would interrupt every CPU each time. So slots without users stay as they
//! are, and one flush frees many: this is Linux's `kmap`. Linux holds one lock for all of it; here
//! only sweeps and sets of a chunk have one, because otherwise CPUs that map different frames would
//! wait for each other.
//!
//! # Where the state is
//!
//! 1. Each frame has a word (`cell`): its slot and that slot's count. Users join and leave by one
//!    atomic operation on it, without a lock and without looking at the slot.
//! 2. Each slot notes its frame once the frame's word names the slot. Only sweeps read that.
//! 3. Free slots are in a set of the `chunk` that they are in, or at hand on one CPU (`color`),
//!    where taking one takes neither a lock nor an atomic operation.
//! 4. A chunk has at most as many slots as a leaf table has entries. Each CPU begins at a chunk of
//!    its own, so that CPUs that map different frames share nothing.
//!
//! # Mapping a frame
//!
//! A CPU takes a slot, shows the frame there, and then names the slot in the frame's word, if that
//! names none. If another CPU was faster, the slot shows a frame that nobody uses there: it is an
//! *orphan*, which the next sweep takes. So nothing ever waits for a CPU that is in the middle of
//! mapping, and interrupts may map frames in the middle of it. The guard of a use is in `mapped`.
//!
//! # Sweeps
//!
//! A sweep (`sweep`) takes the slots of one chunk that have no users: it clears the frames' words,
//! makes the slots show nothing, has every CPU forget exactly those, and makes them free. It holds
//! no lock during the flush. Slots whose flush has not happened, because it unwound, are kept for
//! the next sweep of the chunk.
//!
//! # Waiting
//!
//! Callers sleep in a queue for each colour, first come first served. While callers wait for a
//! colour, newcomers get no slot of it, and CPUs give back what they have at hand with the next
//! call that looks for a slot, or with [`Pool::idle`].
mod cell;
mod chunk;
mod color;
mod config;
mod counts;
mod map;
mod mapped;
mod queue;
mod sleep;
mod sweep;
mod window;

pub use config::{PoolConfig, PoolError, PoolSetupError};
pub use counts::{PoolCounts, SweepCounts};
pub use mapped::Mapped;
pub use queue::SlotQueue;
pub use sleep::{MaySleep, Wake};
pub use window::PoolWindow;

use crate::addr::Pfn;
use crate::bootmem::{BootMemory, BootSlice};
use crate::cpu::{MachineId, Pinned};
use crate::frames::{Frames, MemorySize, PerFrame};
use crate::highmem::slots::{MAX_SLOTS, Slots};
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::tlb::{Shootdown, Tlb};
use crate::window::{DirectMap, OpenWindow, WindowGuard};
use cell::FrameCell;
use color::Color;
use counts::SweepTally;

/// In place of a slot's frame: it is free, at hand, or being mapped or swept.
const NOTHING: u32 = Pfn::NONE.0;
/// In place of a slot's frame: it shows one that no word names it for.
const ORPHAN: u32 = Pfn::NONE.0 - 1;

/// A pool of slots.
pub struct Pool<'m, S: Shootdown, L, K: Wake = ()> {
    machine: MachineId,
    tlb: &'m Tlb<S>,
    frames: &'m Frames,
    /// Reaches the frames that need no slot.
    low: DirectMap,
    slots: L,
    wake: &'m K,
    config: PoolConfig,
    cells: PerFrame<FrameCell>,
    /// The frame of each slot, [`NOTHING`] or [`ORPHAN`].
    owners: BootSlice<AtomicU32>,
    colors: BootSlice<Color>,
    /// The chunk that is swept ahead of need next.
    cursor: AtomicUsize,
    tally: SweepTally,
}

impl<'m, S: Shootdown, L: Slots, K: Wake> Pool<'m, S, L, K> {
    /// Makes a pool of `slots` for the frames from the limit of `low` on. Those below it are
    /// reached through `low`.
    ///
    /// # Errors
    ///
    /// [`PoolSetupError`].
    ///
    /// # Safety
    ///
    /// 1. The slots must be made for the memory of `frames`, and `low` must reach the frames below
    ///    its limit.
    /// 2. No other code may use the slots. They must be empty, and every CPU must have
    ///    forgotten their last frames.
    pub unsafe fn new(
        boot: &mut BootMemory,
        config: PoolConfig,
        tlb: &'m Tlb<S>,
        frames: &'m Frames,
        low: DirectMap,
        slots: L,
        wake: &'m K,
    ) -> Result<Self, PoolSetupError> {
        let machine = tlb.machine();
        machine.accept(frames.machine()).map_err(PoolSetupError::WrongMachine)?;
        let PoolConfig { cpus, colors, batch, .. } = config;
        let n = slots.len();
        if !(1..=16).contains(&colors) {
            return Err(PoolSetupError::Colors(colors));
        }
        if n == 0 || n > MAX_SLOTS || !n.is_multiple_of(colors) {
            return Err(PoolSetupError::Slots { slots: n, colors });
        }
        if !(1..=64).contains(&batch) {
            return Err(PoolSetupError::Batch(batch));
        }
        if cpus < tlb.config().cpus {
            return Err(PoolSetupError::TooFewCpus { cpus, machine: tlb.config().cpus });
        }
        let make = |boot: &mut BootMemory, _| Color::new(boot, machine, &config, n / colors);
        Ok(Pool {
            machine,
            tlb,
            frames,
            low,
            slots,
            wake,
            config,
            cells: PerFrame::new(boot, frames, FrameCell::new)?,
            owners: boot.take(n, |_| AtomicU32::new(NOTHING))?,
            colors: boot.take_with(colors, make)?,
            cursor: AtomicUsize::new(0),
            tally: SweepTally::default(),
        })
    }

    /// Returns the bytes of boot memory that a pool of `slots` slots takes at most, on a machine
    /// with memory of this size.
    pub fn bytes(size: &MemorySize, config: &PoolConfig, slots: usize) -> usize {
        let colors = config.colors.max(1);
        PerFrame::<FrameCell>::bytes(size)
            + BootMemory::bytes::<AtomicU32>(slots)
            + BootMemory::bytes::<Color>(colors)
            + colors * Color::bytes(config, (slots / colors).max(1))
    }

    #[inline]
    fn color(&self, pfn: Pfn) -> usize {
        if self.config.colors == 1 { 0 } else { (self.config.color_of)(pfn) % self.config.colors }
    }

    /// Has every CPU forget all slots without users: for code that is about to change what frames
    /// may be used for. Returns what was found.
    ///
    /// # Errors
    ///
    /// [`PoolError::WrongMachine`] and [`PoolError::Refused`].
    pub fn flush_unused(&self, pin: &Pinned<'_>) -> Result<SweepCounts, PoolError> {
        pin.check(self.machine)?;
        self.tlb.may_flush(pin)?;
        let mut all = SweepCounts::default();
        for (index, color) in self.colors.iter().enumerate() {
            for chunk in 0..color.chunks() {
                let SweepCounts { stale, pinned, free } = self.sweep(pin, index, chunk)?;
                all.stale += stale;
                all.pinned += pinned;
                all.free += free;
            }
        }
        Ok(all)
    }

    /// Gives back the slots that the CPU has at hand, and sweeps a chunk of each colour that has
    /// few free ones. For a CPU that has nothing to run, or goes offline. Of another machine's pin,
    /// it does nothing.
    pub fn idle(&self, pin: &Pinned<'_>) {
        if pin.check(self.machine).is_ok() {
            self.colors.iter().enumerate().for_each(|(index, color)| self.rest(pin, color, index));
        }
    }

    /// Returns where a frame is mapped, without a lock; `None` if it is not. That stays so as long
    /// as a user stays.
    pub fn address_of(&self, pfn: Pfn) -> Option<*mut u8> {
        let cell = self.cells.of(self.frames, pfn)?;
        if pfn.addr().0 < self.low.limit() {
            return Some(self.low.open(pfn.addr()).base());
        }
        cell.get().map(|(slot, _)| self.slots.address(slot))
    }

    /// Returns the state of a slot: 0, 1 or n, see [the module](self). Slots that are being mapped
    /// or swept count as 0.
    pub fn state(&self, slot: usize) -> u32 {
        match self.owners.get(slot).map_or(NOTHING, |owner| owner.load(Ordering::Acquire)) {
            NOTHING => 0,
            ORPHAN => 1,
            frame => match self.cells.of(self.frames, Pfn(frame)).and_then(FrameCell::get) {
                Some((its, count)) if its == slot => count,
                _ => 0,
            },
        }
    }

    /// Returns the slots.
    pub fn all_slots(&self) -> &L {
        &self.slots
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.owners.len()
    }

    /// Returns what the sweeps have found.
    pub fn counts(&self) -> PoolCounts {
        self.tally.get()
    }

    /// Returns this pool as a [`Window`](crate::window::Window) of the CPU of `pin`, for frames one
    /// by one.
    pub fn window<'a>(&'a self, pin: &'a Pinned<'a>) -> PoolWindow<'a, 'm, S, L, K> {
        PoolWindow { pool: self, pin }
    }
}
