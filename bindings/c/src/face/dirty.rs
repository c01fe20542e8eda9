//! Logs of the pages of a tree that are used or written.
use super::tree::{PtTree, PtVisit, edit_range, level, teller};
use crate::cpu::PtCpu;
use crate::object::Arg;
use core::ffi::c_void;

/// Takes `PT_ATTR_DIRTY` from all pages in the `bytes` from `va` on, and calls `visit`, unless it
/// is NULL, for each that had it, in order, with its former attributes. Every CPU has forgotten the
/// attribute when it returns: the next call tells the pages that are written from then on. The
/// pages may be written until then, so their memory is read after the call, not in `visit`.
///
/// A large page is told as a whole, also if it lies partly in the range. Afterwards large pages in
/// the range are split into entries of tables of `largest` or lower, also those that were not
/// written, so that the next call tells their parts; `PT_LEVELS - 1` splits none. Never needs
/// memory.
///
/// AArch64 and RISC-V: where the MMU leaves the bit to software, the first write faults, and the
/// handler sets it with `pt_tree_protect`.
///
/// Fails, without a change, with `PT_ERROR_RANGE`, and with `PT_ERROR_ARGUMENT` for a level that
/// there is not.
///
/// # Safety
///
/// - `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling
///   CPU.
/// - `visit` is NULL or may be called so, and returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_take_dirty(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    bytes: u64,
    largest: u32,
    visit: PtVisit,
    context: *mut c_void,
) -> i32 {
    edit_range((tree, cpu), (va, bytes), |_, range, edit| {
        Ok(edit.take_dirty(range, level(largest)?, teller(visit, context))?)
    })
}

/// Takes `PT_ATTR_WRITE` from all pages in the `bytes` from `va` on, and calls `visit`, unless it
/// is NULL, for each that had it, in order, with its former attributes. Each write to them faults
/// when it returns. The handler notes the page, and allows writes again with `pt_tree_protect`.
///
/// A large page that lies partly in the range is split first. Afterwards those in the range are
/// split into entries of tables of `largest` or lower, as `pt_tree_take_dirty` does.
///
/// Fails as `pt_tree_take_dirty` does.
///
/// # Safety
///
/// As for `pt_tree_take_dirty`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_write_protect(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    bytes: u64,
    largest: u32,
    visit: PtVisit,
    context: *mut c_void,
) -> i32 {
    edit_range((tree, cpu), (va, bytes), |_, range, edit| {
        Ok(edit.write_protect(range, level(largest)?, teller(visit, context))?)
    })
}

/// Takes `PT_ATTR_ACCESSED` from all pages in the `bytes` from `va` on, and calls `visit`, unless
/// it is NULL, for each that had it, in order, with its former attributes. The next call tells the
/// pages that are used after this one. Large pages stay as they are, and are told as a whole.
///
/// AArch64 and RISC-V: where the MMU leaves the bit to software, the first use faults, and the
/// handler sets it with `pt_tree_protect`.
///
/// Fails, without a change, with `PT_ERROR_RANGE`.
///
/// # Safety
///
/// As for `pt_tree_take_dirty`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_take_accessed(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    bytes: u64,
    visit: PtVisit,
    context: *mut c_void,
) -> i32 {
    edit_range((tree, cpu), (va, bytes), |_, range, edit| {
        edit.take_accessed(range, teller(visit, context));
        Ok(())
    })
}
