//! Checks the root that maps the kernel, and the window that it maps.
use super::error::SetupError;
use crate::addr::{FRAME_SHIFT, FRAME_SIZE, PhysAddr};
use crate::cpu::Pinned;
use crate::format::{Attr, Entry, Format, Slot};
use crate::frames::{MemoryRun, ZoneClass};
use crate::page::Level;
use crate::table::KernelMap;
use crate::tlb::Mmu;
use crate::window::{OpenWindow, WindowGuard};

/// Which entries the kernel's half of roots has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    Unsaid,
    At(PhysAddr),
    None,
}

/// Returns the root that the kernel's half is copied from, if roots have one; its entries are such
/// as a kernel's half can have. If MMUs walk it, it maps the window to the memory of `runs`.
///
/// # Safety
///
/// 1. The window reaches the root and the tables that map the window, or `hardware` says that it
///    does not.
pub(super) unsafe fn check_root<F: Format, W: OpenWindow, S: Mmu>(
    root: Root,
    window: &W,
    runs: &[MemoryRun],
    hardware: &S,
    pin: &Pinned<'_>,
) -> Result<Option<PhysAddr>, SetupError> {
    let at = match root {
        Root::None => return Ok(None),
        Root::Unsaid if F::USER_ROOT_ENTRIES >= F::entries(F::LAYOUT.root()) => return Ok(None),
        Root::Unsaid => return Err(SetupError::NoKernelRoot),
        Root::At(at) => at,
    };
    // SAFETY: 1. the caller's 1.
    unsafe { check_kernel_root::<F, W, S>(at, window, runs, S::WALKS_TABLES, hardware, pin)? };
    Ok(Some(at))
}

/// Checks the root that the kernel's half is copied from, as [`Setup`](super::Setup) does, for code
/// that puts its machine together by hand: the entries of its kernel's half are such as these have,
/// and it and the tables that it links lie outside `runs`. If an MMU `walks` it, it maps the
/// window to the memory of `runs`, in the format `F`. Runs beyond the window are shown by other
/// means, and are not looked for.
///
/// # Errors
///
/// [`SetupError::BadKernelRoot`], [`SetupError::TableInRun`], [`SetupError::BadKernelEntry`], or
/// [`SetupError::WindowShows`].
///
/// # Safety
///
/// 1. The window must reach the root and the tables that map the window, unless `hardware` says
///    that it does not.
pub unsafe fn check_kernel_root<F: Format, W: OpenWindow, S: Mmu>(
    at: PhysAddr,
    window: &W,
    runs: &[MemoryRun],
    walks: bool,
    hardware: &S,
    pin: &Pinned<'_>,
) -> Result<(), SetupError> {
    let level = F::LAYOUT.root();
    let bytes = F::LAYOUT.table_bytes(level);
    let end = at.0.checked_add(bytes).ok_or(SetupError::BadKernelRoot { at: at.0, bytes })?;
    if !at.0.is_multiple_of(bytes) || end > window.limit().0 {
        return Err(SetupError::BadKernelRoot { at: at.0, bytes });
    }
    // A table in memory that the library takes over would be handed out.
    let outside = |at: PhysAddr| {
        let frame = at.0 >> FRAME_SHIFT;
        let has =
            |run: &&MemoryRun| frame.checked_sub(run.start.0.into()).is_some_and(|n| n < run.frames.into());
        runs.iter().find(has).map_or(Ok(()), |run| Err(SetupError::TableInRun { at: at.0, run: *run }))
    };
    outside(at)?;
    let tables = KernelTables { window, hardware, pin };
    tables.may_read(at)?;
    for index in F::USER_ROOT_ENTRIES..F::entries(level) {
        let raw = entry::<F, W>(window, at, index);
        let fits = match F::entry(level, raw) {
            Entry::None => true,
            Entry::Link(table) => {
                outside(table)?;
                true
            }
            Entry::Leaf => F::LEAF_LEVELS >> level.0 & 1 == 1 && !F::attr(level, raw).has(Attr::USER),
        };
        if !fits {
            return Err(SetupError::BadKernelEntry { index, raw });
        }
    }
    if walks && F::USER_ROOT_ENTRIES < F::entries(level) {
        for run in runs {
            let end = (u64::from(run.start.0) + u64::from(run.frames)) << FRAME_SHIFT;
            if end > window.limit().0 {
                continue;
            }
            let mut next = run.start.addr();
            while next.0 < end {
                let shown = tables.shown::<F>(at, next)?;
                next.0 = match run.class {
                    ZoneClass::Low => next.0.saturating_add(shown),
                    // Frames that are shown one by one: the first and the last will do.
                    ZoneClass::High if next.0 < end - FRAME_SIZE as u64 => end - FRAME_SIZE as u64,
                    ZoneClass::High => end,
                };
            }
        }
    }
    Ok(())
}

/// Reads entry `index` of the table at `at`.
pub(super) fn entry<F: Format, W: OpenWindow>(window: &W, at: PhysAddr, index: usize) -> u64 {
    let guard = window.open_low(at);
    let slot = guard.base().cast::<F::Slot>().wrapping_add(index);
    // SAFETY: the window reaches the table (`Setup::build_in`, point 2), which is aligned to its
    // size (`check_kernel_root`, `KernelTables::shown`) and has more entries than `index`. Entries
    // are atomics of this type.
    unsafe { &*slot }.load()
}

/// The way to the tables of the kernel's half.
struct KernelTables<'a, W, S> {
    window: &'a W,
    hardware: &'a S,
    pin: &'a Pinned<'a>,
}

impl<W: OpenWindow, S: Mmu> KernelTables<'_, W, S> {
    /// Refuses a window through which the CPU does not come to `at`.
    fn may_read(&self, at: PhysAddr) -> Result<(), SetupError> {
        let guard = self.window.open_low(at);
        if self.hardware.may_show(self.pin, guard.base(), at) {
            return Ok(());
        }
        Err(SetupError::WindowShows { at: at.0, va: guard.base().addr() as u64, shows: None })
    }

    /// Returns how many bytes from `at` on the window shows by one leaf below `root`.
    fn shown<F: Format>(&self, root: PhysAddr, at: PhysAddr) -> Result<u64, SetupError> {
        let guard = self.window.open(at);
        let va = guard.base().addr() as u64;
        let wrong = |shows| SetupError::WindowShows { at: at.0, va, shows };
        if va < F::KERNEL_START || va > KernelMap::<F, W>::LAST {
            return Err(wrong(None));
        }
        let (mut table, mut level) = (root, F::LAYOUT.root());
        loop {
            let index = F::index(level, va);
            let raw = entry::<F, W>(self.window, table, index);
            match F::entry(level, raw) {
                Entry::Link(next) if level > Level::PTE => {
                    level = Level(level.0 - 1);
                    let bytes = F::LAYOUT.table_bytes(level);
                    let end = next.0.saturating_add(bytes);
                    if !next.0.is_multiple_of(bytes) || end > self.window.limit().0 {
                        return Err(wrong(None));
                    }
                    self.may_read(next)?;
                    table = next;
                }
                Entry::Leaf if F::LEAF_LEVELS >> level.0 & 1 == 1 && F::is_present(level, raw) => {
                    // Encrypted, where the format says so: tables are.
                    let attr = F::attr(level, raw);
                    if !attr.has(Attr::WRITE) || attr.has(Attr::USER) || attr.has(Attr::SHARED) {
                        return Err(wrong(None));
                    }
                    let size = 1u64 << F::shift(level);
                    let within = va & (size - 1);
                    let first = F::frame(level, F::unhinted(level, index, raw)).addr().0;
                    let shows = first.wrapping_add(within);
                    return if shows == at.0 { Ok(size - within) } else { Err(wrong(Some(shows))) };
                }
                _ => return Err(wrong(None)),
            }
        }
    }
}
