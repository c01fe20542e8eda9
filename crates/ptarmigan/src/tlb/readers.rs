//! Notes which CPU reads the tables of which space, so that a flush that took tables away can wait
//! for it.
//!
//! # Protocol
//!
//! 1. A reader notes, in the cell of its CPU, the epoch in which it began, and then reads.
//! 2. A flush has unhooked its tables, and then moves the epoch on. A reader that began in an older
//!    epoch may have found them and is waited for; one that began later cannot have.
//! 3. Readers of one CPU nest: interrupts read too, and guards may be dropped in any order. So a
//!    cell counts them, and shows the epoch of the first until the last has ended.
//!
//! This is the epoch of REQ-17; a machine that masks interrupts in its walkers has no need of it.
//!
//! ```text
//!  epoch     7                        8
//!  flush     unhook table ── advance ─┤── is_reading(A)? yes: the table is parked
//!  reader A  ├─ since = 7, finds the table ───────────────┤ since = 0: the table may go
//!  reader B                           ├─ since = 8, cannot find the table ──────┤
//! ```
//!
//! # Why
//!
//! A reader takes no lock and stores to its CPU's own cell only, because page faults and profilers
//! read tables far more often than an operation frees one. A count of readers of each space would
//! be one line that all CPUs write. The epoch ends the waiting: without it new readers, which
//! cannot find the table, would keep a flush waiting for ever. Both sides store first and look
//! second, with one total order (`SeqCst`). Otherwise a reader could read an entry before its cell
//! is seen, and the flush would free the table under it.
use super::error::TlbRefusal;
use super::id::SpaceId;
use super::space::SpaceTlb;
use crate::bootmem::{BootArray, BootMemory, BootMemoryShort};
use crate::cpu::{CpuId, MachineId, Pinned};
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use core::marker::PhantomData;

/// A moment after which readers cannot find pages that were unhooked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(usize);

impl Epoch {
    /// Returns whether `seen` is this moment or a later one.
    #[inline]
    fn is_reached_by(self, seen: usize) -> bool {
        seen.wrapping_sub(self.0) as isize >= 0
    }

    /// Returns the later one of two moments.
    pub(crate) fn or_later(self, other: Epoch) -> Epoch {
        if self.is_reached_by(other.0) { other } else { self }
    }
}

/// In place of an epoch: not reading.
const NOT_READING: usize = 0;
/// In place of a space: more than one, or not known yet.
const SEVERAL: u32 = u32::MAX;

/// The part of a name that cells hold. Spaces that share it are taken for one: CPUs wait for a
/// reader too many then, never for one too few.
#[inline]
fn short(space: SpaceId) -> u32 {
    space.number() as u32
}

#[repr(align(128))]
struct Cell {
    /// The epoch in which reading began, or [`NOT_READING`].
    since: AtomicUsize,
    /// The space read, or [`SEVERAL`].
    space: AtomicU32,
    /// Readers that have not ended. Only the CPU itself looks: models need not know.
    depth: core::sync::atomic::AtomicUsize,
    /// The last epoch at which this CPU had no user translation older than that.
    clean: AtomicUsize,
}

/// The cells of all CPUs, and the epoch.
pub struct Readers {
    machine: MachineId,
    cells: BootArray<Cell>,
    epoch: AtomicUsize,
}

impl Readers {
    pub(super) fn new(
        boot: &mut BootMemory,
        machine: MachineId,
        cpus: usize,
    ) -> Result<Self, BootMemoryShort> {
        let cells = boot.take_each(cpus, |_| Cell {
            since: AtomicUsize::new(NOT_READING),
            space: AtomicU32::new(SEVERAL),
            depth: core::sync::atomic::AtomicUsize::new(0),
            clean: AtomicUsize::new(1),
        })?;
        Ok(Readers { machine, cells, epoch: AtomicUsize::new(1) })
    }

    pub(super) const fn bytes(cpus: usize) -> usize {
        BootMemory::bytes_each::<Cell>(cpus)
    }

    #[inline]
    fn cell(&self, cpu: CpuId) -> &Cell {
        self.cells.of(usize::from(cpu.0))
    }

    /// Makes this CPU a reader of the tables of `space`, without a lock: a table that it finds from
    /// here on is not reused before the result is dropped.
    ///
    /// Others may change the tables meanwhile if the space is a
    /// [`SharedSpace`](crate::space::SharedSpace), or its tables are not the library's own
    /// ([`Gather::new`](crate::gather::Gather::new)): their flushes wait for readers. Nobody waits
    /// for readers of other spaces, which are borrowed instead:
    ///
    /// ```compile_fail,E0502
    /// use ptarmigan::{format::X86_64, machine::{Machine, On}, table::Tree};
    /// fn read<M: Machine>(on: On<'_, M>, tree: &mut Tree<X86_64>) {
    ///     let reading = on.tlb().readers().walk(on.pin(), tree.tlb());
    ///     tree.edit(on); // its tables could go
    ///     drop(reading);
    /// }
    /// ```
    ///
    /// A CPU that gives up tables of a space that it reads itself cannot wait: they are leaked. Nor
    /// does a CPU that reads one space wait for the readers of another: tables that these may have
    /// found are parked, or leaked where parking is off.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] for a pin or a space of another machine.
    pub fn walk<'a>(&'a self, pin: &'a Pinned<'_>, space: &'a SpaceTlb) -> Result<Reading<'a>, TlbRefusal> {
        self.machine.accept(space.machine())?;
        let reading = self.enter(pin, space.id())?;
        // No entry is read before the cell shows the reader to a flush that has unhooked a table.
        fence(Ordering::SeqCst);
        Ok(reading)
    }

    /// Makes this CPU a reader that still has to look, in the same total order, at whether it may
    /// read.
    ///
    /// # Errors
    ///
    /// As for [`walk`](Self::walk).
    #[inline]
    pub(crate) fn enter<'a>(
        &'a self,
        pin: &'a Pinned<'_>,
        space: SpaceId,
    ) -> Result<Reading<'a>, TlbRefusal> {
        self.machine.accept(pin.machine())?;
        let cell = self.cells.get(pin.cpu().0 as usize).ok_or(TlbRefusal::NoSuchCpu(pin.cpu()))?;
        // An interrupt that comes in anywhere here reads and ends as a whole. Counted first: before
        // the store to `since` it may leave its own epoch there, which is no later than the one
        // read below; after that it leaves ours.
        let depth = cell.depth.load(Ordering::Relaxed);
        // 2^64 readers cannot have been forgotten, 2^32 can.
        if usize::BITS < 64 && depth == usize::MAX {
            return Err(TlbRefusal::Busy(pin.cpu()));
        }
        cell.depth.store(depth + 1, Ordering::Relaxed);
        if cell.since.load(Ordering::Relaxed) == NOT_READING {
            cell.since.swap(self.epoch.load(Ordering::SeqCst), Ordering::SeqCst);
            cell.space.store(short(space), Ordering::Release);
        } else if cell.space.load(Ordering::Relaxed) != short(space) {
            cell.space.store(SEVERAL, Ordering::SeqCst);
        }
        Ok(Reading { cell, _stay: PhantomData })
    }

    /// Returns the present moment: tables unhooked by now are not found by readers that begin
    /// later.
    pub(crate) fn advance(&self) -> Epoch {
        fence(Ordering::SeqCst);
        let mut next = self.epoch.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        if next == NOT_READING {
            // The number that means "not reading" is left out.
            next = self.epoch.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        }
        Epoch(next)
    }

    /// Returns whether `cpu` has begun to read `space` before `epoch` and has not ended.
    #[inline]
    pub(crate) fn is_reading(&self, cpu: CpuId, space: SpaceId, epoch: Option<Epoch>) -> bool {
        let cell = self.cell(cpu);
        let since = cell.since.load(Ordering::SeqCst);
        let at = cell.space.load(Ordering::SeqCst);
        since != NOT_READING
            && epoch.is_none_or(|e| !e.is_reached_by(since))
            && (at == short(space) || at == SEVERAL)
    }

    /// Returns whether `cpu`, which is the caller's, reads the tables of any space.
    #[inline]
    pub(crate) fn reads_any(&self, cpu: CpuId) -> bool {
        self.cell(cpu).since.load(Ordering::Relaxed) != NOT_READING
    }

    /// Returns the present moment, which any [advance](Self::advance) so far has reached.
    pub(crate) fn present(&self) -> Epoch {
        Epoch(self.now())
    }

    /// Returns the argument for [`cleaned`](Self::cleaned). Called before a CPU drops everything it
    /// knows of user space.
    #[inline]
    pub(super) fn now(&self) -> usize {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Records that this CPU has dropped all translations of user space at `now`, and uses no older
    /// one.
    #[inline]
    pub(super) fn cleaned(&self, cpu: CpuId, now: usize) {
        self.cell(cpu).clean.store(now, Ordering::Release);
    }

    /// Returns whether `cpu` has dropped everything it knew at `epoch`.
    pub(super) fn is_clean(&self, cpu: CpuId, epoch: Epoch) -> bool {
        epoch.is_reached_by(self.cell(cpu).clean.load(Ordering::Acquire))
    }
}

/// A CPU that reads the tables of a space, see [`Readers::walk`]. It stays on its CPU:
///
/// ```compile_fail,E0277
/// use ptarmigan::tlb::Reading;
/// fn elsewhere(reading: Reading<'static>) {
///     std::thread::spawn(move || drop(reading)); // a reader is not `Send`
/// }
/// ```
#[must_use = "what is found is protected only as long as the reader is there"]
pub struct Reading<'a> {
    cell: &'a Cell,
    _stay: PhantomData<*const ()>,
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        // Counted first: an interrupt that comes in before the last store finds the epoch still
        // there, and ends it itself.
        let depth = self.cell.depth.load(Ordering::Relaxed) - 1;
        self.cell.depth.store(depth, Ordering::Relaxed);
        // Whose tables the others read is not known here; nor may the next reader find an old name
        // beside its new epoch.
        self.cell.space.store(SEVERAL, Ordering::Relaxed);
        if depth == 0 {
            self.cell.since.store(NOT_READING, Ordering::Release);
        }
    }
}
