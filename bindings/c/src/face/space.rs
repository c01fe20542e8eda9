//! Tracks the CPUs' use of spaces whose tables are the kernel's own.
use super::quicklist::{foreign, give, own_table};
use crate::arch::{Entries, ROOT_ALIGN};
use crate::cpu::{Cpu, PtCpu};
use crate::error::{PtError, answer};
use crate::object::{self, Arg, LastArg, Object, Word};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use ptarmigan::addr::PhysAddr;
use ptarmigan::format::Format;
use ptarmigan::quicklist::Returned;
use ptarmigan::tlb::SpaceTlb;

/// Words of 8 bytes in a `pt_space`.
pub const PT_SPACE_WORDS: usize = 24;

/// The CPUs' use of a space whose tables are the kernel's own. Zero before `pt_space_init`; not
/// moved between that and `pt_space_exit`.
#[repr(C, align(64))]
pub struct PtSpace {
    /// The library's.
    pub opaque: [u64; PT_SPACE_WORDS],
}

/// The content of a `pt_space`.
#[repr(C)]
pub(super) struct Space {
    word: Word,
    tlb: SpaceTlb,
    /// Gathers that have begun and not finished.
    gathers: AtomicU32,
}

// SAFETY: 1. `repr(C)`, with the word first. 2. `object::finish` compares. 3. odd, and no other
// kind has it.
unsafe impl Object for Space {
    type Storage = PtSpace;
    const KIND: usize = 0x7370_6135;
}

impl Space {
    pub(super) fn tlb(&self) -> &SpaceTlb {
        &self.tlb
    }

    pub(super) fn begin_gather(&self) {
        self.gathers.fetch_add(1, Relaxed);
    }

    pub(super) fn end_gather(&self) {
        self.gathers.fetch_sub(1, Relaxed);
    }
}

/// Makes a space that no CPU has loaded.
///
/// # Safety
///
/// - `space` is NULL or points to a `struct pt_space`, which stays where it is and is left alone
///   until `pt_space_exit`.
/// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_space_init(space: Arg<'_, PtSpace>, cpu: Arg<'_, PtCpu>) -> i32 {
    let init = || {
        let cpu = Cpu::find(&cpu)?;
        let space = space.vacant::<Space>()?;
        // SAFETY: the storage is this call's alone and has room (`object::finish` compares). 1. all
        // fields are written.
        unsafe {
            (&raw mut (*space).tlb).write(cpu.on().tlb().new_space());
            (&raw mut (*space).gathers).write(AtomicU32::new(0));
            object::finish(space);
        }
        Ok(())
    };
    answer(init())
}

/// Begins to run in the space on this CPU: has the root at physical address `root` loaded, unless
/// it is loaded and up to date.
///
/// Fails with `PT_ERROR_RANGE` for an address that no root can have, and with `PT_ERROR_BUSY` in
/// the middle of another switch of this CPU.
///
/// # Safety
///
/// - `space` is NULL or points to a `struct pt_space`, `cpu` to the `struct pt_cpu` of the calling
///   CPU.
/// - `root` is the root of the space's tables, which has the kernel's half, and stays one until
///   every CPU has left the space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_space_activate(space: Arg<'_, PtSpace>, cpu: Arg<'_, PtCpu>, root: u64) -> i32 {
    let activate = || -> Result<(), PtError> {
        let (cpu, space) = (Cpu::find(&cpu)?, space.find::<Space>()?);
        if root == 0 || !root.is_multiple_of(ROOT_ALIGN) {
            return Err(PtError::Range);
        }
        // SAFETY: 1. by the caller.
        unsafe { cpu.on().tlb().activate(cpu.on().pin(), &space.tlb, PhysAddr(root))? };
        Ok(())
    };
    answer(activate())
}

/// Leaves the space on this CPU: the kernel's own root is loaded.
///
/// # Safety
///
/// `space` is NULL or points to a `struct pt_space`, `cpu` to the `struct pt_cpu` of the calling
/// CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_space_deactivate(space: Arg<'_, PtSpace>, cpu: Arg<'_, PtCpu>) -> i32 {
    let deactivate = || -> Result<(), PtError> {
        let (cpu, space) = (Cpu::find(&cpu)?, space.find::<Space>()?);
        cpu.on().tlb().deactivate(cpu.on().pin(), &space.tlb)?;
        Ok(())
    };
    answer(deactivate())
}

/// Ends a space that no CPU has loaded, and gives back its root, unless `root` is NULL. Its other
/// tables went to gathers.
///
/// Fails, without a change, with `PT_ERROR_IN_USE` while a CPU has the space loaded or a gather has
/// not finished, and as `pt_quicklist_free` does for `root`; `PT_ERROR_ARGUMENT` if it is no root.
///
/// # Safety
///
/// - `space` is NULL or points to a `struct pt_space` that no other code uses, `cpu` to the
///   `struct pt_cpu` of the calling CPU.
/// - `root` is NULL or the root of the space's tables, which is not used any more.
///   `pt_table_touched` was told of each entry that was written to something that is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_space_exit(
    space: LastArg<'_, PtSpace>,
    cpu: Arg<'_, PtCpu>,
    root: *mut c_void,
) -> i32 {
    let exit = || {
        let (cpu, held) = (Cpu::find(&cpu)?, space.find::<Space>()?);
        cpu.on().check(held.tlb.machine())?;
        if !held.tlb.is_unloaded() || held.gathers.load(Relaxed) != 0 {
            return Err(PtError::InUse);
        }
        if !root.is_null() {
            let (state, at, level) = own_table(cpu, root)?;
            if level != Entries::LAYOUT.root() {
                return Err(PtError::Argument);
            }
            // SAFETY: 1. and 3. it is a root that is not used any more (contract). 2. its user's
            // half came zero, and `pt_table_touched` has noted the entries that the caller has
            // written. 4. the direct map shows it.
            let cleared = unsafe { foreign(cpu, at, level).clear_touched(cpu.on().window()) };
            if !super::quicklist::is_clean(cpu.parts(), at, level) {
                return Err(PtError::Dirty);
            }
            state.become_freed();
            // SAFETY: of `never_walked`: 1. no CPU has the space loaded, nor loads it again. One
            // that did has loaded another root since, and dropped all that is not global with it
            // (contract of `PtHooks`). Of `Returned`: 1. its state says so.
            give(cpu, unsafe { Returned::new(cleared.never_walked()) });
        }
        space.end::<Space>();
        Ok(())
    };
    answer(exit())
}
