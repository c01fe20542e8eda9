//! Keeps the kernel's half of every root table the same.
//!
//! # Protocol
//!
//! 1. Constructed roots, live ones and ones that rest on a list, are linked through their frames'
//!    records.
//! 2. A change of the kernel map takes the lock of the roots, and goes along that list.
//! 3. Construction copies the entries and registers the root under the same lock; destruction takes
//!    it out under that lock (H2, H14, REQ-3, REQ-16).
//!
//! ```text
//!  reference ──> │ kernel entries │
//!  set(index)     └──┬──> root of A (live) ──> root of B (live) ──> root that rests in a magazine
//!  construct         └── lock: copy, then register ──> a set that comes later finds it
//! ```
//!
//! # Why
//!
//! A cached root is handed out without another construction, so it must get each change while it
//! rests. Linux had both mistakes: in 2002 cached roots kept old kernel entries (H2), and in 2007
//! an entry that was set between the copy and the registration was lost (H14). Copying at each
//! hand-out would give up the gain of the lists. Copying at a fault comes too late for the fault on
//! the kernel's stack.
//!
//! The lock of the claims is taken before the lock of the roots, never after it.
use super::claims::Claims;
use crate::addr::{FRAME_SHIFT, Pfn, PhysAddr};
use crate::cpu::MachineId;
use crate::error::error;
use crate::format::{Entry, Format, check_tables};
use crate::frames::{Dirty, Frame, Frames, NoFrame, Request, Use};
use crate::page::{Construct, Level};
use crate::sync::SpinLock;
use crate::table::node::{read, set_kernel};
use crate::window::OpenWindow;
use core::fmt;
use core::marker::PhantomData;

/// Entries of a format have no room for the number of a frame: it would have the entry of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryTooHigh {
    /// The format's name.
    pub format: &'static str,
    /// Its [`PHYS_BITS`](Format::PHYS_BITS).
    pub bits: u32,
    /// The highest frame of the memory.
    pub highest: Pfn,
}

impl fmt::Display for MemoryTooHigh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryTooHigh { format, bits, highest } = self;
        write!(
            f,
            "entries of {format} have {bits} bits of address, and the memory goes up to frame {highest}: \
             leave frames above {bits} bits out"
        )
    }
}

impl core::error::Error for MemoryTooHigh {}

/// Compares the memory of a machine with the reach of its format's entries.
///
/// # Errors
///
/// [`MemoryTooHigh`] if a frame lies beyond [`Format::PHYS_BITS`].
pub fn check_memory<F: Format>(frames: &Frames) -> Result<(), MemoryTooHigh> {
    let ends = frames.runs().map(|run| u64::from(run.start.0) + u64::from(run.frames));
    let end = ends.max().unwrap_or(0);
    if F::PHYS_BITS >= u64::BITS || end.saturating_sub(1) >> F::PHYS_BITS.saturating_sub(FRAME_SHIFT) == 0 {
        return Ok(());
    }
    let highest = Pfn(end.saturating_sub(1) as u32);
    Err(MemoryTooHigh { format: F::NAME, bits: F::PHYS_BITS, highest })
}

/// Why there is no kernel map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelMapError {
    /// There was no memory for its root.
    NoFrame(NoFrame),
    /// Entries of the format cannot name all frames of the machine.
    TooHigh(MemoryTooHigh),
}

impl fmt::Display for KernelMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelMapError::NoFrame(e) => e.fmt(f),
            KernelMapError::TooHigh(e) => e.fmt(f),
        }
    }
}

error!(KernelMapError: NoFrame => NoFrame, MemoryTooHigh => TooHigh);

/// The kernel's entries, and the roots that have a copy.
///
/// On a machine with one root, each space's root has a copy of these entries. On a machine with two
/// (AArch64's `TTBR1`), the kernel has a tree of its own: the map is of a format whose
/// [`USER_ROOT_ENTRIES`](Format::USER_ROOT_ENTRIES) are 0, its [root](Self::root) is loaded once,
/// and the spaces' roots, of another format, are constructed by
/// [`NoConstruct`](crate::page::NoConstruct).
pub struct KernelMap<F: Format, W> {
    machine: MachineId,
    window: W,
    /// A root of which only the kernel's entries are used.
    reference: PhysAddr,
    /// First registered root.
    roots: SpinLock<Pfn>,
    /// Ranges that have an owner. Taken before the lock of the roots.
    claims: SpinLock<Claims>,
    _format: PhantomData<F>,
}

impl<F: Format, W: OpenWindow> KernelMap<F, W> {
    pub(super) const ROOT: Level = F::LAYOUT.root();

    /// Makes an empty kernel map; takes memory for its root, of the order of a root whatever
    /// `request` says.
    ///
    /// # Errors
    ///
    /// [`KernelMapError`] if there is no memory, or if the machine has frames that entries of the
    /// format cannot name.
    ///
    /// # Safety
    ///
    /// 1. The window must reach the frame that `request` takes, and each root that the map
    ///    [constructs](Construct).
    // A call: it is made once, and would add to the largest stack frame of a kernel's set-up.
    #[inline(never)]
    pub unsafe fn new(frames: &Frames, window: W, request: Request) -> Result<Self, KernelMapError> {
        const { check_tables::<F>() };
        check_memory::<F>(frames)?;
        let request = Request { order: F::LAYOUT.order(Self::ROOT), ..request };
        // SAFETY: 1. passed on.
        let frame = unsafe { frames.take(request)?.zeroed(&window) };
        let reference = frame.into_raw().addr();
        Ok(KernelMap {
            machine: frames.machine(),
            window,
            reference,
            roots: SpinLock::new(Pfn::NONE),
            claims: SpinLock::new(Claims::new()),
            _format: PhantomData,
        })
    }

    /// Gives the frames of the reference table, and of the tables that ranges had below it, back.
    ///
    /// # Errors
    ///
    /// The map itself, if roots that carry a copy of it are still about, a range was not released,
    /// or `frames` are another machine's.
    #[expect(clippy::result_large_err, reason = "what is refused comes back by value: there is no heap")]
    pub fn end(self, frames: &Frames) -> Result<(), Self> {
        let in_use = *self.roots.lock() != Pfn::NONE || self.claims.lock().in_use();
        if in_use || !frames.machine().matches(self.machine) {
            return Err(self);
        }
        let give = |frames: &Frames, at: PhysAddr, level: Level| {
            frames.meta(at.pfn()).set_usage(Use::Taken);
            // SAFETY: 1. `new` took the reference, and a range each of the tables below it, of
            // their levels' orders; no root links these any more, and `self` is consumed. 2.
            // `Dirty` makes no promise.
            frames.give(unsafe { Frame::<Dirty>::from_raw(self.machine, at.pfn(), F::LAYOUT.order(level)) });
        };
        self.give_tables_back(frames, |frames, at| give(frames, at, Level(Self::ROOT.0.saturating_sub(1))));
        give(frames, self.reference, Self::ROOT);
        Ok(())
    }

    /// Gives back the tables that ranges have linked in the reference root; no range is left, and
    /// no root.
    fn give_tables_back(&self, frames: &Frames, give: impl Fn(&Frames, PhysAddr)) {
        for index in 0..F::entries(Self::ROOT) {
            if self.claims.lock().has_filled(index)
                && let Some(raw) = self.get(index)
                && let Entry::Link(at) = F::entry(Self::ROOT, raw)
            {
                give(frames, at);
            }
        }
    }

    /// Returns how many tables it keeps until it ends: the reference table, and those that ranges
    /// have had linked to it.
    pub fn tables(&self) -> usize {
        1 + self.claims.lock().tables()
    }

    /// The machine whose map it is.
    pub(in crate::table) fn machine(&self) -> MachineId {
        self.machine
    }

    /// Returns the address of the root that has only the kernel's entries, for as long as the map
    /// is there.
    ///
    /// A machine with two roots loads it as the kernel's, once on each CPU. On others, CPUs that
    /// are in no space may have it loaded. Ranges that are [claimed](Self::claim) appear in it.
    pub fn root(&self) -> PhysAddr {
        self.reference
    }

    /// The root that has all of the kernel's entries.
    pub(in crate::table) fn reference(&self) -> PhysAddr {
        self.reference
    }

    /// Ranges that have an owner.
    pub(super) fn claims(&self) -> &SpinLock<Claims> {
        &self.claims
    }

    /// Returns entry `index` of the root; `None` if that is not one of the kernel's.
    pub fn get(&self, index: usize) -> Option<u64> {
        Self::kernel_entries().contains(&index).then(|| self.read(self.reference, index))
    }

    fn read(&self, at: PhysAddr, index: usize) -> u64 {
        read::<F, W>(&self.window, Self::ROOT, at, index)
    }

    fn write(&self, at: PhysAddr, index: usize, raw: u64) {
        set_kernel::<F, W>(&self.window, at, index, raw);
    }

    /// Sets entry `index` of every root, live and cached; an index that is not the kernel's is
    /// ignored. Returns how many roots there were.
    ///
    /// Roots smaller than a frame (x86 PAE) are not registered, as they have no record: their
    /// kernel entry, which links one table that all share, has to be set before the first of them
    /// is made.
    ///
    /// The caller flushes if the entry was present before. Where the change [needs a
    /// break](Format::needs_break), it clears the entry and flushes first.
    ///
    /// # Safety
    ///
    /// 1. `raw` must be empty, or an entry of a root: every access that the MMU lets through by it
    ///    is the kernel's own, and a table that it links stays a table until no root has the entry
    ///    any more and all TLBs have been flushed.
    /// 2. No [range](Self::claim) lies below the entry.
    /// 3. `frames` must be those that the map was made for.
    pub unsafe fn set(&self, frames: &Frames, index: usize, raw: u64) -> usize {
        if !Self::kernel_entries().contains(&index) {
            return 0;
        }
        let roots = self.roots.lock();
        self.write(self.reference, index, raw);
        let (mut at, mut n) = (*roots, 0);
        while at != Pfn::NONE {
            self.write(at.addr(), index, raw);
            at = next(frames, at);
            n += 1;
        }
        n
    }

    fn kernel_entries() -> core::ops::Range<usize> {
        F::USER_ROOT_ENTRIES..F::entries(Self::ROOT)
    }
}

// The registry uses words of a root's record that are free: the second word of the map of touched
// lines, of which a root needs the first alone however the root is split, and the chain link, which
// a root has no use for (a gather holds it apart).
fn next(frames: &Frames, pfn: Pfn) -> Pfn {
    Pfn(frames.meta(pfn).lines(1))
}

fn set_next(frames: &Frames, pfn: Pfn, to: Pfn) {
    frames.meta(pfn).set_lines(1, to.0);
}

// SAFETY: 1. `construct` writes entries of the kernel's half alone, and `destruct` clears those
// that it finds. 2. and 3. roots are found by the registry, which `destruct` takes the root out of.
unsafe impl<F: Format, W: OpenWindow> Construct for KernelMap<F, W> {
    unsafe fn construct(&self, frames: &Frames, root: PhysAddr) {
        let small = F::LAYOUT.is_small(Self::ROOT);
        if small {
            // Before the copy: an entry that is filled from now on would be missed.
            self.claims.lock().small_roots += 1;
        }
        let mut roots = self.roots.lock();
        for index in Self::kernel_entries() {
            let raw = self.read(self.reference, index);
            if !F::is_none(raw) {
                self.write(root, index, raw);
            }
        }
        if !small {
            let pfn = root.pfn();
            set_next(frames, pfn, *roots);
            frames.meta(pfn).set_link(Pfn::NONE);
            if *roots != Pfn::NONE {
                frames.meta(*roots).set_link(pfn);
            }
            *roots = pfn;
        }
    }

    unsafe fn destruct(&self, frames: &Frames, root: PhysAddr) {
        let mut roots = self.roots.lock();
        let pfn = root.pfn();
        if !F::LAYOUT.is_small(Self::ROOT) {
            let (after, before) = (next(frames, pfn), frames.meta(pfn).link());
            if before == Pfn::NONE {
                *roots = after;
            } else {
                set_next(frames, before, after);
            }
            if after != Pfn::NONE {
                frames.meta(after).set_link(before);
            }
            set_next(frames, pfn, Pfn(0));
        }
        for index in Self::kernel_entries() {
            if !F::is_none(self.read(root, index)) {
                self.write(root, index, 0);
            }
        }
        drop(roots);
        if F::LAYOUT.is_small(Self::ROOT) {
            self.claims.lock().small_roots -= 1;
        }
    }
}
