//! Gathers tables and frames that an operation on a kernel's own tables unlinks, and frees them
//! after one flush.
use super::page::{no_more, own};
use super::quicklist::{foreign, is_clean, own_table};
use super::space::{PtSpace, Space};
use crate::arch::{Entries, PT_PAGE_SIZE, PT_USER_END, has_pages, level_bytes};
use crate::cpu::{Cpu, PtCpu};
use crate::error::{PtError, answer};
use crate::machine::Parts;
use crate::object::{self, Arg, LastArg, Object, Word};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use ptarmigan::addr::FRAME_SHIFT;
use ptarmigan::format::{Attr, Format};
use ptarmigan::gather::{Gather, GatherError};
use ptarmigan::page::Level;

/// Words of 8 bytes in a `pt_gather`.
pub const PT_GATHER_WORDS: usize = 64;

/// The tables and frames that an operation has unlinked so far. Zero before `pt_gather_begin`; not
/// moved between that and `pt_gather_finish`. Usually a local of the operation.
#[repr(C, align(64))]
pub struct PtGather {
    /// The library's.
    pub opaque: [u64; PT_GATHER_WORDS],
}

/// The content of a `pt_gather`.
#[repr(C)]
struct Open {
    word: Word,
    cpu: &'static Cpu,
    space: &'static Space,
    gather: UnsafeCell<MaybeUninit<Gather<'static, Parts>>>,
}

// SAFETY: 1. `repr(C)`, with the word first. 2. `object::finish` compares. 3. odd, and no other
// kind has it.
unsafe impl Object for Open {
    type Storage = PtGather;
    const KIND: usize = 0x6761_7437;
}

impl Open {
    /// Runs `f` on the gather, after `check`.
    fn with<R>(
        gather: Arg<'_, PtGather>,
        check: impl FnOnce() -> Result<R, PtError>,
        f: impl FnOnce(&Cpu, &mut Gather<'static, Parts>, R) -> Result<(), PtError>,
    ) -> Result<(), PtError> {
        let open = gather.find::<Open>()?;
        let checked = check()?;
        // SAFETY: the gather is this call's alone (invariant of `Arg`, 4.), and `f` leads to no
        // function of the gather; `pt_gather_begin` has written it.
        f(open.cpu, unsafe { (*open.gather.get()).assume_init_mut() }, checked)
    }
}

/// Begins a gather for operations on the tables of `space`.
///
/// Fails with `PT_ERROR_BUSY` in the middle of a flush or a switch of this CPU.
///
/// # Safety
///
/// - `gather` is NULL or points to a `struct pt_gather`, which stays where it is and is left alone
///   until `pt_gather_finish`.
/// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU. All calls with the gather
///   are made on this CPU, without preemption in between.
/// - `space` is NULL or points to a `struct pt_space`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_gather_begin(
    gather: Arg<'_, PtGather>,
    cpu: Arg<'_, PtCpu>,
    space: Arg<'_, PtSpace>,
) -> i32 {
    let begin = || {
        // SAFETY: 1. neither ends while a gather is open, and all calls with it are made on this
        // CPU.
        let (cpu, space) = unsafe { (cpu.lasting(), space.lasting()) };
        let (cpu, space): (&'static Cpu, &'static Space) = (cpu.find()?, space.find()?);
        let open = gather.vacant::<Open>()?;
        let made = Gather::new(cpu.on(), space.tlb(), FRAME_SHIFT).map_err(|e| match e {
            GatherError::Refused(e) => e.into(),
            GatherError::Stride(_) | GatherError::Root(_) => PtError::Argument,
        })?;
        // SAFETY: the storage is this call's alone and has room (`object::finish` compares). 1. all
        // fields are written.
        unsafe {
            (&raw mut (*open).cpu).write(cpu);
            (&raw mut (*open).space).write(space);
            (&raw mut (*open).gather).write(UnsafeCell::new(MaybeUninit::new(made)));
            object::finish(open);
        }
        cpu.count_gathers(1);
        space.begin_gather();
        Ok(())
    };
    answer(begin())
}

/// Notes that entries that map the `bytes` from `va` on have been cleared or have lost a
/// permission: the flush makes all CPUs forget them.
///
/// Fails with `PT_ERROR_RANGE` for addresses that are not the user's.
///
/// # Safety
///
/// `gather` is NULL or points to a `struct pt_gather` that the calling CPU has begun.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_gather_changed(gather: Arg<'_, PtGather>, va: u64, bytes: u64) -> i32 {
    let range = || super::tree::range(va, bytes);
    answer(Open::with(gather, range, |_, gather, range| {
        gather.changed(range.start, range.end);
        Ok(())
    }))
}

/// As `pt_gather_changed`, for large pages, entries of tables of `level`: as long as a gather is
/// told of no smaller ones, its flush names each page once.
///
/// Fails with `PT_ERROR_RANGE` for addresses that are not the user's or not aligned to the size,
/// and with `PT_ERROR_ARGUMENT` if entries of `level` are no large pages.
///
/// # Safety
///
/// - `gather` is NULL or points to a `struct pt_gather` that the calling CPU has begun.
/// - No smaller page was mapped in the `bytes` from `va` on. Its entry would stay in the TLBs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_gather_changed_large(
    gather: Arg<'_, PtGather>,
    va: u64,
    bytes: u64,
    level: u32,
) -> i32 {
    let pages = || {
        let level = super::tree::level(level)?;
        if level == Level::PTE || !has_pages(level) {
            return Err(PtError::Argument);
        }
        let range = super::tree::range(va, bytes)?;
        if (va | bytes) & (level_bytes(level) - 1) != 0 {
            return Err(PtError::Range);
        }
        Ok((range, level_bytes(level).trailing_zeros()))
    };
    answer(Open::with(gather, pages, |_, gather, (range, shift)| {
        if range.start < range.end {
            // SAFETY: 1. by the caller.
            unsafe { gather.large_changed(range.start, range.end, shift) }.map_err(|_| PtError::Argument)?;
        }
        Ok(())
    }))
}

/// Takes over a table of `pt_quicklist_alloc` that has just been unlinked; it mapped addresses from
/// `va` on. Entries reported by `pt_table_touched` are cleared now; after the flush the page goes
/// to the lists. Tables below it go to the same gather, or went before. A root goes to
/// `pt_space_exit`.
///
/// Fails with `PT_ERROR_POINTER`, `PT_ERROR_FOREIGN` and `PT_ERROR_FREED` as `pt_quicklist_free`
/// does, `PT_ERROR_ARGUMENT` for a root, and `PT_ERROR_DIRTY` if its content was looked at
/// (`verify_every`) and something is left that was not told; the table is still the caller's then.
///
/// # Safety
///
/// - `gather` is NULL or points to a `struct pt_gather` that the calling CPU has begun.
/// - No entry leads to a table that came from `pt_quicklist_alloc` any more, it was one of the
///   gather's space, and no code writes to it. `pt_table_touched` was told of each entry that was
///   written to something that is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_gather_table(gather: Arg<'_, PtGather>, table: *mut c_void, va: u64) -> i32 {
    let check = || {
        super::aligned(va)?;
        if va < PT_USER_END { Ok(()) } else { Err(PtError::Range) }
    };
    answer(Open::with(gather, check, |cpu, gather, ()| {
        let (state, at, level) = own_table(cpu, table)?;
        if level == Entries::LAYOUT.root() {
            return Err(PtError::Argument);
        }
        // SAFETY: 1. and 3. by the caller. 2. it came zero, and `pt_table_touched` has noted the
        // entries that the caller has written. 4. the direct map shows it.
        let _ = unsafe { foreign(cpu, at, level).clear_touched(cpu.on().window()) };
        if cpu.verifies() && !is_clean(cpu.parts(), at, level) {
            return Err(PtError::Dirty);
        }
        // SAFETY: 1. by the caller. 2. its state says so. 3. noted entries are cleared, and the
        // rest is as it was. 4. pages are frames. 5. the lists say the level of their roots.
        unsafe { gather.foreign_table(at, level, va) }.map_err(|_| PtError::Argument)?;
        state.become_freed();
        Ok(())
    }))
}

/// Takes over a frame of `pt_page_alloc` whose entry, the page at `va`, has just been cleared. It
/// is given back after the flush.
///
/// Fails, and does not take the frame, as `pt_page_free` does.
///
/// # Safety
///
/// - `gather` is NULL or points to a `struct pt_gather` that the calling CPU has begun.
/// - A frame that came from `pt_page_alloc` was mapped in the gather's space alone, at `va`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_gather_page(gather: Arg<'_, PtGather>, va: u64, phys: u64) -> i32 {
    let page = || super::tree::range(va, PT_PAGE_SIZE);
    answer(Open::with(gather, page, |cpu, gather, page| {
        let (state, pfn) = own(cpu, phys)?;
        gather.changed(page.start, page.end);
        no_more(cpu, state);
        // SAFETY: 1. the state says that it is a data frame with one reference, which the caller
        // gives away. 2. noted just now; pages are frames, as the gather was made for.
        unsafe { gather.release::<Entries>(Level::PTE, Entries::leaf(Level::PTE, pfn, Attr::READ)) };
        Ok(())
    }))
}

/// Has every CPU forget the addresses of the gather, waits for all of them, and gives back the
/// tables and frames. Interrupts are on, or the other CPUs answer without them.
///
/// # Safety
///
/// `gather` is NULL or points to a `struct pt_gather` that the calling CPU has begun.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_gather_finish(gather: LastArg<'_, PtGather>) -> i32 {
    let finish = || {
        let open = gather.find::<Open>()?;
        let (cpu, space) = (open.cpu, open.space);
        // SAFETY: the gather is the caller's alone, `pt_gather_begin` has written it, and no code
        // reads it again: the object ends before it is used.
        let made = unsafe { (*open.gather.get()).assume_init_read() };
        gather.end::<Open>();
        made.finish();
        space.end_gather();
        cpu.count_gathers(-1);
        Ok(())
    };
    answer(finish())
}
