//! Table pages of trees that are the kernel's own.
use crate::arch::{PT_LEVELS, PT_PAGE_SIZE, ROOT_IS_FRAME};
use crate::cpu::{Cpu, PtCpu};
use crate::error::{PT_OK, PtError, answer};
use crate::machine::{Parts, PtMachine, cached};
use crate::object::{Arg, ConstArg};
use crate::states::State;
use core::ffi::c_void;
use ptarmigan::addr::PhysAddr;
use ptarmigan::format::{Format, FormatExt};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::page::{Clean, ForeignTable, Level};
use ptarmigan::quicklist::Returned;

type Entries = crate::arch::Entries;

/// Returns a page for a table of `level`, at its address in the direct map: all zero, or for a root
/// with the kernel's half in place. If there is no page, returns NULL, and `pt_cpu_error` says why.
///
/// A hit takes no lock and does not clear the page: it came back as it is. `level` is 0 for tables
/// that hold pages, and below `PT_LEVELS`. On i386 roots are smaller than a page, and are made by
/// `pt_tree_init` only: `PT_ERROR_ARGUMENT`.
///
/// # Safety
///
/// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_quicklist_alloc(cpu: Arg<'_, PtCpu>, level: u32) -> *mut c_void {
    let Ok(cpu) = cpu.find_inline::<Cpu>() else { return core::ptr::null_mut() };
    // A hit, without values to keep across a call: registers that a slow path needs are saved
    // there.
    if level < PT_LEVELS - 1
        && let Some(page) = cpu.on().policy().at_hand(Level(level as u8))
    {
        let at = page.into_raw();
        return match cpu.parts().states().near(at.pfn()) {
            Some(state) => {
                state.become_table(Level(level as u8));
                cpu.parts().pointer(at)
            }
            None => handed_out(cpu, level, at),
        };
    }
    alloc_slow(cpu, level)
}

#[cold]
#[inline(never)]
fn alloc_slow(cpu: &Cpu, level: u32) -> *mut c_void {
    let levels = if ROOT_IS_FRAME { PT_LEVELS } else { PT_LEVELS - 1 };
    if level >= levels {
        return cpu.refuse(PtError::Argument);
    }
    match cpu.on().alloc(Level(level as u8), AllocFlags::NORMAL) {
        Ok(page) => handed_out(cpu, level, page.into_raw()),
        Err(_) => cpu.refuse(PtError::NoMemory),
    }
}

/// Notes that C has the table.
#[cold]
#[inline(never)]
fn handed_out(cpu: &Cpu, level: u32, at: PhysAddr) -> *mut c_void {
    let parts = cpu.parts();
    if let Some(state) = parts.states().of(parts.frames(), at.pfn()) {
        state.become_table(Level(level as u8));
    }
    parts.pointer(at)
}

/// A table page of the caller's, found by an address in the direct map.
struct Found<'a> {
    state: State<'a>,
    at: PhysAddr,
    offset: usize,
}

#[inline]
fn table(cpu: &Cpu, address: *const c_void) -> Result<Found<'static>, PtError> {
    let parts = cpu.parts();
    let at = parts.physical(address);
    // Numbers of frames have 32 bits.
    if at.0 >> 44 != 0 {
        return Err(PtError::Foreign);
    }
    let state = parts.states().of(parts.frames(), at.pfn()).ok_or(PtError::Foreign)?;
    let offset = (at.0 % PT_PAGE_SIZE) as usize;
    Ok(Found { state, at: at.pfn().addr(), offset })
}

/// Gives back a page that was never linked, or that no CPU can reach any more: no flush takes
/// place. The page is as it was handed out.
///
/// Fails, and does not take the page, with `PT_ERROR_POINTER` if `page` is not the beginning of a
/// page, `PT_ERROR_FOREIGN` if it did not come from `pt_quicklist_alloc`, `PT_ERROR_FREED` if it
/// was given back before or waits in a gather, `PT_ERROR_UNFLUSHED` if `pt_table_touched` was told
/// of an entry in it, and `PT_ERROR_DIRTY` if its content was looked at (`verify_every`) and
/// something is left.
///
/// # Safety
///
/// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
/// - Neither code nor an MMU uses a page that came from `pt_quicklist_alloc` any more, and its
///   content is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_quicklist_free(cpu: Arg<'_, PtCpu>, page: *mut c_void) -> i32 {
    let Ok(here) = cpu.find_inline::<Cpu>() else { return not_here(cpu) };
    let at = here.parts().physical(page);
    // As in `pt_quicklist_alloc`: whatever is not as it mostly is, is looked at again.
    if at.0 >> 44 == 0
        && let Some(state) = here.parts().states().near(at.pfn())
        && let Some(level) = state.table_unwritten()
        && at.0.is_multiple_of(PT_PAGE_SIZE)
        && here.skips()
    {
        state.become_freed();
        // SAFETY: as in `free_slow`.
        unsafe { here.on().free_unlinked(Clean::from_raw(at, level)) };
        return PT_OK;
    }
    free_slow(here, page)
}

#[cold]
#[inline(never)]
fn not_here(cpu: Arg<'_, PtCpu>) -> i32 {
    answer(Cpu::find(&cpu).map(drop))
}

#[cold]
#[inline(never)]
fn free_slow(cpu: &Cpu, page: *mut c_void) -> i32 {
    let free = || {
        let Found { state, at, offset } = table(cpu, page)?;
        if offset != 0 {
            return Err(PtError::Pointer);
        }
        let level = state.unwritten()?;
        if cpu.verifies() && !is_clean(cpu.parts(), at, level) {
            return Err(PtError::Dirty);
        }
        state.become_freed();
        // SAFETY: of `from_raw`: 1. the state says that C has the page, as a table of this level,
        // and C gives it away. 2. and 3. by the contract of `pt_quicklist_free`. Of `Returned`: 1.
        // `pt_quicklist_alloc` took it from this machine.
        give(cpu, unsafe { Returned::new(Clean::from_raw(at, level)) });
        Ok(())
    };
    answer(free())
}

/// Gives back a page that came from the policy of the CPU's machine, for callers that are not in a
/// hurry.
#[inline(never)]
pub(super) fn give(cpu: &Cpu, page: Returned<Clean>) {
    // SAFETY: 1. it is `Returned`.
    unsafe { cpu.on().free_unlinked(page.into_inner()) };
}

/// Returns whether a table is as it was handed out; of a root, the user's half.
#[cold]
pub(super) fn is_clean(parts: &Parts, at: PhysAddr, level: Level) -> bool {
    let words = parts.pointer(at).cast::<u64>();
    // SAFETY: a table of the caller's (its state says so), in the direct map.
    (0..users_entries(level)).all(|i| unsafe { words.add(i).read_volatile() } == 0)
}

/// Returns how many entries of a table are not the kernel's.
fn users_entries(level: Level) -> usize {
    if level == Entries::LAYOUT.root() { Entries::USER_ROOT_ENTRIES } else { Entries::entries(level) }
}

/// Tells that the entry at `entry`, in a page of `pt_quicklist_alloc`, is about to be written to
/// something that is not 0. Mostly a neighbour came before, and it costs a load and a comparison.
///
/// `pt_gather_table` clears the reported entries only. So an entry that is cleared need not be
/// told, and the table need not be cleared.
///
/// Fails with `PT_ERROR_FOREIGN` or `PT_ERROR_FREED` for another page, and with `PT_ERROR_RANGE`
/// for an entry of the kernel's half of a root.
///
/// # Safety
///
/// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_table_touched(cpu: Arg<'_, PtCpu>, entry: *const c_void) -> i32 {
    let touched = || {
        let cpu = Cpu::find(&cpu)?;
        let Found { state, at, offset } = table(cpu, entry)?;
        let level = state.table()?;
        if offset / 8 >= users_entries(level) {
            return Err(PtError::Range);
        }
        state.become_written(level);
        foreign(cpu, at, level).touched(offset);
        Ok(())
    };
    answer(touched())
}

/// A table of the caller's, whose state says that it has one.
pub(super) fn foreign(cpu: &Cpu, at: PhysAddr, level: Level) -> ForeignTable<'static> {
    // SAFETY: 1. the table came from this machine's policy and has not been handed back (its
    // state). 2. only the caller of this hands it back.
    unsafe { ForeignTable::from_raw(cpu.parts().frames(), &Entries::LAYOUT, level, at) }
}

/// Finds a table of the caller's by its address, and its kind.
pub(super) fn own_table(
    cpu: &Cpu,
    page: *const c_void,
) -> Result<(State<'static>, PhysAddr, Level), PtError> {
    let Found { state, at, offset } = table(cpu, page)?;
    if offset != 0 {
        return Err(PtError::Pointer);
    }
    Ok((state, at, state.table()?))
}

/// Gives back pages that rest in the lists of the CPU's node to the allocator: while more than
/// `min_pages` rest, up to `max_free`. Returns how many, or an error. For when memory is short;
/// idle CPUs (`pt_cpu_idle`) and the end of gathers trim by themselves.
///
/// # Safety
///
/// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_quicklist_trim(cpu: Arg<'_, PtCpu>, min_pages: u64, max_free: u64) -> i64 {
    match Cpu::find(&cpu) {
        Ok(cpu) => {
            let on = cpu.on();
            let want = cached(cpu.parts()).saturating_sub(min_pages).min(max_free);
            i64::from(on.policy().reclaim(on.node(), u32::try_from(want).unwrap_or(u32::MAX)))
        }
        Err(e) => i64::from(e.code()),
    }
}

/// Returns how many pages rest in the lists of all CPUs and nodes; 0 for an object that is no
/// machine.
///
/// # Safety
///
/// `machine` is NULL or points to a `struct pt_machine` that does not end meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_quicklist_total_size(machine: ConstArg<'_, PtMachine>) -> u64 {
    machine.find::<Parts>().map_or(0, cached)
}
