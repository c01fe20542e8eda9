//! Large pages of trees.
use super::page;
use super::tree::{PtTree, level, range, unmap, with};
use crate::arch::{
    Entries, HAS_GROUPS, PT_GROUPS, PT_PAGE_SIZE, PT_USER_END, group_bytes, has_pages, level_bytes,
};
use crate::attr::asked;
use crate::cpu::{Cpu, PtCpu};
use crate::error::{PtError, answer};
use crate::object::Arg;
use core::ptr;
use ptarmigan::addr::{PhysAddr, VirtAddr, VirtRange};
use ptarmigan::frames::AllocFlags;
use ptarmigan::page::Level;
use ptarmigan::table::Tree;

/// Maps the `bytes` from `va` on to the frames from `phys` on, with `attr` of `enum pt_attr`: with
/// the largest pages that fit, entries of tables of level `largest` or lower. A large page fits
/// where its first address and its first frame are aligned to its size. With `largest | PT_GROUPS`
/// each group that fits has the hint. If one fails, no page is mapped.
///
/// The frames are not the library's: a device's, or memory that no run of the configuration names.
/// Tables for pages that may be split later are reserved now, so that no other call for large pages
/// needs memory, except `pt_tree_collapse`.
///
/// Fails, without a change, with `PT_ERROR_FOREIGN` if a frame is the library's, with
/// `PT_ERROR_ARGUMENT` if entries of `largest` map no pages or the format has no groups, and
/// otherwise as `pt_tree_map` does.
/// Whether the CPUs of a machine have pages of that size is the caller's to know: those of 1 GiB
/// are an option on x86-64.
///
/// # Safety
///
/// As for `pt_tree_map`, for each page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_map_range_large(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    bytes: u64,
    phys: u64,
    attr: u32,
    largest: u32,
) -> i32 {
    let map = |cpu: &Cpu, tree: &mut Tree<Entries>| {
        let groups = largest & PT_GROUPS != 0;
        let (attr, largest) = (asked(attr)?, level(largest & !PT_GROUPS)?);
        if !has_pages(largest) || groups && !HAS_GROUPS {
            return Err(PtError::Argument);
        }
        let range = range(va, bytes)?;
        page::frame(phys)?;
        page::frame(phys.checked_add(bytes).ok_or(PtError::Range)?.saturating_sub(PT_PAGE_SIZE).max(phys))?;
        if cpu.parts().has_any_of(phys, bytes) {
            return Err(PtError::Foreign);
        }
        let mut edit = tree.edit(cpu.on())?;
        let (mut va, mut phys) = (range.start, phys);
        // Not by the library's own call for ranges: it has another copy of the code that maps.
        while va < range.end {
            let fits = |bytes: u64| (va | phys) & (bytes - 1) == 0 && bytes <= range.end - va;
            let is_group = |level| groups && group_bytes(level).is_some_and(fits);
            let is_page = |level| level == Level::PTE || has_pages(level) && fits(level_bytes(level));
            let levels = (0..=largest.0).rev().map(Level);
            let level = { levels }.find(|level| is_group(*level) || is_page(*level)).unwrap_or(Level::PTE);
            let (at, pfn) = (VirtAddr(va), PhysAddr(phys).pfn());
            // SAFETY: 1. by the caller; frames that may be handed out again were refused.
            let (put, bytes) = unsafe {
                if is_group(level) {
                    let put = edit.map_group(at, level, pfn, attr, AllocFlags::NORMAL);
                    (put, group_bytes(level).unwrap_or_default())
                } else {
                    (edit.map_large(at, level, pfn, attr, AllocFlags::NORMAL), level_bytes(level))
                }
            };
            if let Err(e) = put {
                unmap(cpu, &mut edit, range.and(VirtRange::up_to(va)), None, ptr::null_mut());
                return Err(e.into());
            }
            va += bytes;
            phys += bytes;
        }
        Ok(())
    };
    answer(with(tree, cpu, map))
}

/// Gives the entries from `va` on of a table of `level` the hint that they are a group, which the
/// MMU may keep as one. They map frames that follow each other, of which the first one is aligned
/// to the size of all, with the same attributes but for `PT_ATTR_ACCESSED` and `PT_ATTR_DIRTY`;
/// each has each of these two if one of them has it. A group, or a larger page, stays.
///
/// Accesses to the pages fault meanwhile. The handler repeats them after the call.
///
/// Fails, without a change, with `PT_ERROR_DIFFERS` if the pages are not mapped like that,
/// `PT_ERROR_RANGE` for an address that is not aligned to the size of all, and `PT_ERROR_ARGUMENT`
/// if there are no groups of that level.
///
/// # Safety
///
/// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_make_group(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    level: u32,
) -> i32 {
    let make = |cpu: &Cpu, tree: &mut Tree<Entries>| {
        let level = self::level(level)?;
        range(va, group_bytes(level).ok_or(PtError::Argument)?)?;
        let mut edit = tree.edit(cpu.on())?;
        edit.make_group(VirtAddr(va), level)?;
        edit.flush();
        Ok(())
    };
    answer(with(tree, cpu, make))
}

/// Splits the large page that maps `va` until `va` is mapped by an entry of a table of `level` or
/// lower, and takes the hint from a group of entries of `level`. A page that is as small already
/// stays, and so does an address that is not mapped. Calls for a part of a large page or a group do
/// it themselves. Never needs memory.
///
/// Fails with `PT_ERROR_RANGE`, and with `PT_ERROR_ARGUMENT` for a level that there is not.
///
/// # Safety
///
/// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_split(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    level: u32,
) -> i32 {
    let split = |cpu: &Cpu, tree: &mut Tree<Entries>| {
        let level = self::level(level)?;
        if va >= PT_USER_END {
            return Err(PtError::Range);
        }
        let mut edit = tree.edit(cpu.on())?;
        edit.split(VirtAddr(va), level)?;
        edit.flush();
        Ok(())
    };
    answer(with(tree, cpu, split))
}

/// Puts a large page, an entry of a table of `level`, in the place of the pages from `va` on, which
/// are entries of one table of the level below. They map frames that follow each other, of which
/// the first one is aligned to the size of the large page, with the same attributes but for
/// `PT_ATTR_ACCESSED` and `PT_ATTR_DIRTY`. It has each of these two if one of the pages has it. The
/// table is given back. A page that is as large already stays.
///
/// Accesses to the pages fault meanwhile. The handler repeats them after the call.
///
/// Fails, without a change, with `PT_ERROR_DIFFERS` if the pages are not mapped like that,
/// `PT_ERROR_FOREIGN` if one of the frames came from `pt_page_alloc`, `PT_ERROR_RANGE` for an
/// address that is not aligned to the size, `PT_ERROR_ARGUMENT` if there are no pages of that
/// level, and `PT_ERROR_NO_MEMORY`: a table is reserved for the time when it is split.
///
/// # Safety
///
/// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_collapse(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    level: u32,
) -> i32 {
    let collapse = |cpu: &Cpu, tree: &mut Tree<Entries>| {
        let level = self::level(level)?;
        let range = range(va, level_bytes(level))?;
        // The tree owns each frame by its entry, and an entry for all of them would own none.
        let mut is_own = false;
        tree.view().walk_leaves(cpu.on(), range, |page| {
            is_own |= cpu.parts().has_any_of(page.frame.addr().0, PT_PAGE_SIZE);
        })?;
        if is_own {
            return Err(PtError::Foreign);
        }
        let mut edit = tree.edit(cpu.on())?;
        edit.collapse(VirtAddr(va), level)?;
        edit.flush();
        Ok(())
    };
    answer(with(tree, cpu, collapse))
}
