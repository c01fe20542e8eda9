//! Reports the counts of a machine.
use crate::error::{PtError, answer};
use crate::machine::{Parts, PtMachine, TablePages};
use crate::object::{ConstArg, Out};
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::Policy;

/// The counts of a machine. Exact when no CPU is in a call. While no gather is open, `frames` is
/// the sum of `free_frames`, `tables`, `cached_tables`, `pages`, `cached_pages` and `own_frames`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PtCounts {
    /// Frames under management.
    pub frames: u64,
    /// Frames that are free: not in use, and not resting in a list.
    pub free_frames: u64,
    /// Tables in use. i386: without roots, which are smaller than a page.
    pub tables: u64,
    /// Table pages that rest in lists.
    pub cached_tables: u64,
    /// Frames of `pt_page_alloc` in use, mapped or not. One that waits in a gather is no more.
    pub pages: u64,
    /// Frames for data that rest in lists of CPUs.
    pub cached_pages: u64,
    /// Frames that the library has for itself: the tables of the kernel's half, and on i386 those
    /// that hold roots.
    pub own_frames: u64,
    /// Table pages that were handed out from a list or an allocator.
    pub allocs: u64,
    /// Of these, the ones that came from the allocator.
    pub misses: u64,
    /// Flushes of one page of a space, of several, of a whole space, and of the kernel's half.
    pub flushes: [u64; 4],
    /// CPUs that were asked by others to forget something.
    pub ipis: u64,
}

/// Writes the counts so far.
///
/// # Safety
///
/// - `machine` is NULL or points to a `struct pt_machine` that does not end meanwhile.
/// - `counts` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_counts(machine: ConstArg<'_, PtMachine>, counts: Out<'_, PtCounts>) -> i32 {
    let read = || -> Result<(), PtError> {
        let parts = machine.find::<Parts>()?;
        let (frames, lists, flushes) =
            (parts.frames().counts(), parts.policy().counts(), parts.tlb().counts());
        let sum =
            |of: fn(&ptarmigan::quicklist::LevelCounts) -> usize| lists.levels.iter().map(of).sum::<usize>();
        let TablePages { live, cached } = TablePages::of(&lists);
        let all = PtCounts {
            frames: frames.total.into(),
            free_frames: frames.free.into(),
            tables: live,
            cached_tables: cached,
            pages: parts.pages(),
            cached_pages: parts.data().resting() as u64,
            own_frames: parts.own_frames(),
            allocs: sum(|level| level.allocs) as u64,
            misses: sum(|level| level.misses) as u64,
            flushes: [flushes.page, flushes.range, flushes.full, flushes.kernel].map(|n| n as u64),
            ipis: flushes.asked as u64,
        };
        counts.put(all)
    };
    answer(read())
}
