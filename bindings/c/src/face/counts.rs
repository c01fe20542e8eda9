//! Reports the counts of a machine.
use super::put;
use crate::error::{PtError, answer};
use crate::machine::{Parts, PtMachine};
use crate::object;
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::Policy;

/// The counts of a machine. Exact when no CPU is in a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PtCounts {
    /// Frames under management.
    pub frames: u64,
    /// Frames that are free: not in use, and not resting in a list.
    pub free_frames: u64,
    /// Tables in use.
    pub tables: u64,
    /// Table pages that rest in lists.
    pub cached_tables: u64,
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
pub unsafe extern "C" fn pt_counts(machine: *const PtMachine, counts: *mut PtCounts) -> i32 {
    let read = || -> Result<(), PtError> {
        // SAFETY: 1. and 2. by the caller.
        let parts = unsafe { object::find::<Parts>(machine)? };
        let (frames, lists, flushes) =
            (parts.frames().counts(), parts.policy().counts(), parts.tlb().counts());
        let sum =
            |of: fn(&ptarmigan::quicklist::LevelCounts) -> usize| lists.levels.iter().map(of).sum::<usize>();
        let all = PtCounts {
            frames: frames.total.into(),
            free_frames: frames.free.into(),
            tables: lists.live() as u64,
            cached_tables: lists.cached() as u64,
            allocs: sum(|level| level.allocs) as u64,
            misses: sum(|level| level.misses) as u64,
            flushes: [flushes.page, flushes.range, flushes.full, flushes.kernel].map(|n| n as u64),
            ipis: flushes.asked as u64,
        };
        // SAFETY: 1. by the caller.
        unsafe { put(counts, all) }
    };
    answer(read())
}
