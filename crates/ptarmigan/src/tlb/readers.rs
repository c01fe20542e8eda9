//! Which CPU is reading the tables of which space, so that whoever takes tables away can wait for it.
//!
//! A reader notes, in a cell of its CPU, the epoch in which it began. Who has unhooked a table moves the epoch on: a
//! reader that began in an older epoch may still hold the table, one that began later cannot have found it (REQ-17:
//! this is the epoch; a machine with interrupts masked in its walkers has no need of it).
use super::request::SpaceId;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::{CpuId, Pinned};
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

/// A moment after which readers cannot find what was unhooked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(usize);

impl Epoch {
    /// Whether `seen` is this moment or a later one.
    #[inline(always)]
    fn is_reached_by(self, seen: usize) -> bool {
        seen.wrapping_sub(self.0) as isize >= 0
    }
}

/// In place of an epoch: not reading.
const NOBODY: usize = 0;
/// In place of a space: more than one, or not known yet.
const SEVERAL: u32 = u32::MAX;

/// The part of a name that cells hold. Spaces that share it are taken for one: CPUs wait for a reader too many then,
/// never for one too few.
#[inline(always)]
fn short(space: SpaceId) -> u32 {
    space.number() as u32
}

#[repr(align(128))]
struct Cell {
    /// The epoch in which reading began; [`NOBODY`] if this CPU is not reading.
    since: AtomicUsize,
    /// The space read, or [`SEVERAL`].
    space: AtomicU32,
    /// The last epoch at which this CPU had no user translation older than that.
    clean: AtomicUsize,
}

/// The cells of all CPUs, and the epoch.
pub struct Readers {
    cells: BootSlice<Cell>,
    epoch: AtomicUsize,
}

impl Readers {
    pub(super) fn new(boot: &mut BootMemory, cpus: usize) -> Result<Self, BootMemoryShort> {
        let cells = boot.take(cpus, |_| Cell {
            since: AtomicUsize::new(NOBODY),
            space: AtomicU32::new(SEVERAL),
            clean: AtomicUsize::new(1),
        })?;
        Ok(Readers { cells, epoch: AtomicUsize::new(1) })
    }

    pub(super) const fn bytes(cpus: usize) -> usize {
        BootMemory::bytes::<Cell>(cpus)
    }

    #[inline(always)]
    fn cell(&self, cpu: CpuId) -> &Cell {
        &self.cells[cpu.0 as usize]
    }

    /// This CPU begins to read the tables of `space`, without a lock: none that it finds from here on is used for
    /// anything else before the result is dropped.
    pub fn walk<'a>(
        &'a self,
        pin: &'a Pinned<'_>,
        space: SpaceId,
    ) -> Result<Reading<'a>, crate::cpu::WrongMachine> {
        let reading = self.enter(pin, space);
        // No entry is read before the cell says so to whoever has unhooked a table.
        fence(Ordering::SeqCst);
        Ok(reading)
    }

    /// This CPU is about to read; it has to look, in the same total order, at whether it may.
    #[inline(always)]
    pub(crate) fn enter<'a>(&'a self, pin: &'a Pinned<'_>, space: SpaceId) -> Reading<'a> {
        let cell = self.cell(pin.cpu());
        // Interrupts may come in anywhere, read something too and leave: they find the cell in use, or leave it as it
        // was.
        let outermost = cell.since.load(Ordering::Relaxed) == NOBODY;
        if outermost {
            cell.since.swap(self.epoch.load(Ordering::SeqCst), Ordering::SeqCst);
            cell.space.store(short(space), Ordering::Release);
        } else if cell.space.load(Ordering::Relaxed) != short(space) {
            cell.space.store(SEVERAL, Ordering::SeqCst);
        }
        Reading { cell, outermost }
    }

    /// The present moment: what has been unhooked by now is not found by readers who begin later.
    pub(crate) fn advance(&self) -> Epoch {
        fence(Ordering::SeqCst);
        let mut next = self.epoch.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        if next == NOBODY {
            // The number that means "nobody" is left out.
            next = self.epoch.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        }
        Epoch(next)
    }

    /// Whether `cpu` has begun to read `space` before `epoch` and has not ended.
    #[inline]
    pub(crate) fn is_reading(&self, cpu: CpuId, space: SpaceId, epoch: Option<Epoch>) -> bool {
        let cell = self.cell(cpu);
        let since = cell.since.load(Ordering::SeqCst);
        let at = cell.space.load(Ordering::Relaxed);
        since != NOBODY
            && epoch.is_none_or(|e| !e.is_reached_by(since))
            && (at == short(space) || at == SEVERAL)
    }

    /// To be called before a CPU drops everything it knows of user space; the result goes to
    /// [`cleaned`](Self::cleaned) when it has.
    #[inline(always)]
    pub(super) fn now(&self) -> usize {
        self.epoch.load(Ordering::SeqCst)
    }

    /// This CPU has dropped everything it knew of user space at `now`, and uses nothing older.
    #[inline(always)]
    pub(super) fn cleaned(&self, cpu: CpuId, now: usize) {
        self.cell(cpu).clean.store(now, Ordering::Release);
    }

    /// Whether `cpu` has dropped everything it knew at `epoch`.
    pub(super) fn is_clean(&self, cpu: CpuId, epoch: Epoch) -> bool {
        epoch.is_reached_by(self.cell(cpu).clean.load(Ordering::Acquire))
    }
}

/// A CPU that reads the tables of a space, see [`Readers::walk`].
pub struct Reading<'a> {
    cell: &'a Cell,
    outermost: bool,
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.outermost {
            self.cell.space.store(SEVERAL, Ordering::Relaxed);
            self.cell.since.store(NOBODY, Ordering::Release);
        }
    }
}
