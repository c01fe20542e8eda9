//! Trees: tables that are the library's, of a space.
use super::{aligned, page};
use crate::arch::{Entries, PT_LEVELS, PT_PAGE_SIZE, PT_USER_END};
use crate::attr::{PtPage, asked};
use crate::cpu::{Cpu, PtCpu};
use crate::error::{PtError, answer};
use crate::lock::{Call, Turn};
use crate::machine::Parts;
use crate::object::{self, Arg, LastArg, Object, Out, Word};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::cpu::MachineId;
use ptarmigan::format::Attr;
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::table::{Free, Mapped, Tree, TreeMut};

/// Words of 8 bytes in a `pt_tree`.
pub const PT_TREE_WORDS: usize = 32;

/// A tree of tables, of one space. Zero before `pt_tree_init`; not moved between that and
/// `pt_tree_exit`.
///
/// Calls for one tree take turns: a CPU waits for the calls of others, and answers their requests
/// meanwhile. From a callback, or from the handler of an interrupt that came in between, a call for
/// the same tree returns `PT_ERROR_BUSY`.
#[repr(C, align(64))]
pub struct PtTree {
    /// The library's.
    pub opaque: [u64; PT_TREE_WORDS],
}

/// The content of a `pt_tree`.
#[repr(C)]
struct Held {
    word: Word,
    machine: MachineId,
    turn: Turn,
    tree: UnsafeCell<MaybeUninit<Tree<Entries>>>,
}

// SAFETY: 1. `repr(C)`, with the word first. 2. `object::finish` compares. 3. odd, and no other
// kind has it.
unsafe impl Object for Held {
    type Storage = PtTree;
    const KIND: usize = 0x7472_6539;
}

/// Called for a page with the pointer passed beside it. It may call functions for other objects.
pub type PtVisit = Option<unsafe extern "C" fn(context: *mut c_void, page: *const PtPage)>;

/// Runs `f` on the tree in `tree`, in its turn.
pub(super) fn with<R>(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    f: impl FnOnce(&Cpu, &mut Tree<Entries>) -> Result<R, PtError>,
) -> Result<R, PtError> {
    let (cpu, held, _turn) = begin(tree, cpu)?;
    // SAFETY: `pt_tree_init` has written it, and it is this call's alone for its turn.
    let tree = unsafe { (*held.tree.get()).assume_init_mut() };
    f(cpu, tree)
}

/// Finds the tree in `tree`, which is of the CPU's machine, and waits for its turn.
///
/// The machine is compared before the wait: a CPU of another machine would answer that machine's
/// requests meanwhile, and the call that it waits for may be waiting for this thread's own CPU.
#[inline(never)]
fn begin<'a>(tree: Arg<'a, PtTree>, cpu: Arg<'a, PtCpu>) -> Result<(&'a Cpu, &'a Held, Call<'a>), PtError> {
    let (cpu, held) = (Cpu::find(&cpu)?, tree.find::<Held>()?);
    cpu.on().check(held.machine)?;
    let turn = held.turn.begin(cpu)?;
    Ok((cpu, held, turn))
}

/// Returns the user's addresses from `va` on.
pub(super) fn range(va: u64, bytes: u64) -> Result<VirtRange, PtError> {
    aligned(va)?;
    aligned(bytes)?;
    VirtRange::bytes(VirtAddr(va), bytes).filter(|range| range.end <= PT_USER_END).ok_or(PtError::Range)
}

/// Edits the user's addresses from `va` on, and flushes what the edit has changed; the answer of
/// the call.
pub(super) fn edit_range(
    (tree, cpu): (Arg<'_, PtTree>, Arg<'_, PtCpu>),
    (va, bytes): (u64, u64),
    f: impl FnOnce(&Cpu, VirtRange, &mut TreeMut<'_, Entries, Parts>) -> Result<(), PtError>,
) -> i32 {
    answer(with(tree, cpu, |cpu, tree| {
        let range = range(va, bytes)?;
        let mut edit = tree.edit(cpu.on())?;
        f(cpu, range, &mut edit)?;
        edit.flush();
        Ok(())
    }))
}

/// Looks whether a tree may map a frame: data of the caller's, or no frame of the library's at all.
fn mappable(cpu: &Cpu, pfn: Pfn) -> Result<(), PtError> {
    let parts = cpu.parts();
    match parts.states().of(parts.frames(), pfn) {
        Some(state) => state.data(),
        None if parts.is_boot_memory(pfn) => Err(PtError::Foreign),
        None => Ok(()),
    }
}

fn become_mapped(cpu: &Cpu, pfn: Pfn) {
    if let Some(state) = cpu.parts().states().of(cpu.parts().frames(), pfn) {
        state.become_mapped();
    }
}

/// Takes the frame of a page that goes away from the tree that owned it; false if no tree did. A
/// tree owns no frame of a large page.
fn disown(cpu: &Cpu, pfn: Pfn) -> bool {
    let state = cpu.parts().states().of(cpu.parts().frames(), pfn);
    let owned = state.filter(|state| state.is_mapped());
    if let Some(state) = owned {
        page::no_more(cpu, state);
    }
    owned.is_some()
}

/// Makes an empty tree, of a new space.
///
/// Fails with `PT_ERROR_NO_MEMORY`.
///
/// # Safety
///
/// - `tree` is NULL or points to a `struct pt_tree`, which stays where it is and is left alone
///   until `pt_tree_exit`.
/// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_init(tree: Arg<'_, PtTree>, cpu: Arg<'_, PtCpu>) -> i32 {
    let init = || {
        let cpu = Cpu::find(&cpu)?;
        let held = tree.vacant::<Held>()?;
        let made = Tree::new(cpu.on(), AllocFlags::NORMAL)?;
        // SAFETY: the storage is this call's alone and has room (`object::finish` compares). 1. all
        // fields are written.
        unsafe {
            (&raw mut (*held).machine).write(cpu.on().tlb().machine());
            (&raw mut (*held).turn).write(Turn::new());
            (&raw mut (*held).tree).write(UnsafeCell::new(MaybeUninit::new(made)));
            object::finish(held);
        }
        Ok(())
    };
    answer(init())
}

/// Ends a tree: has every CPU leave its space, and gives back all tables and all frames of
/// `pt_page_alloc` that it maps.
///
/// Fails with `PT_ERROR_BUSY` in the middle of a flush or a switch of this CPU.
///
/// # Safety
///
/// - `tree` is NULL or points to a `struct pt_tree` that no other code uses any more.
/// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_exit(tree: LastArg<'_, PtTree>, cpu: Arg<'_, PtCpu>) -> i32 {
    let exit = || {
        let (cpu, held, turn) = begin(tree.as_arg(), cpu)?;
        // SAFETY: `pt_tree_init` has written it, and it is this call's alone. It is written back if
        // it does not end.
        let made = unsafe { (*held.tree.get()).assume_init_read() };
        let give = |page: Mapped| {
            if disown(cpu, page.frame) {
                // SAFETY: 1. a data frame that the tree owned with one reference. Every CPU has
                // left the space before its pages are named.
                page::give(cpu, unsafe { page::Unused::new(page.frame) });
            }
        };
        match made.end_leaves(cpu.on(), give) {
            Ok(()) => {
                drop(turn);
                tree.end::<Held>();
                Ok(())
            }
            Err(refused) => {
                // SAFETY: as above.
                unsafe { (*held.tree.get()).write(refused.value) };
                Err(refused.error.into())
            }
        }
    };
    answer(exit())
}

/// Begins to run in the tree's space on this CPU: has its root loaded, unless it is loaded and up
/// to date.
///
/// Fails with `PT_ERROR_BUSY` in the middle of another switch of this CPU.
///
/// # Safety
///
/// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_activate(tree: Arg<'_, PtTree>, cpu: Arg<'_, PtCpu>) -> i32 {
    answer(with(tree, cpu, |cpu, tree| Ok(tree.activate(cpu.on())?)))
}

/// Leaves the tree's space on this CPU: the kernel's own root is loaded.
///
/// # Safety
///
/// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_deactivate(tree: Arg<'_, PtTree>, cpu: Arg<'_, PtCpu>) -> i32 {
    answer(with(tree, cpu, |cpu, tree| Ok(tree.deactivate(cpu.on())?)))
}

/// Returns the physical address of the tree's root; 0 if there is no tree.
///
/// # Safety
///
/// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_root(tree: Arg<'_, PtTree>, cpu: Arg<'_, PtCpu>) -> u64 {
    with(tree, cpu, |_, tree| Ok(tree.root().0)).unwrap_or(0)
}

/// Returns how many tables of `level` the tree has, or an error.
///
/// # Safety
///
/// `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_tables(tree: Arg<'_, PtTree>, cpu: Arg<'_, PtCpu>, level: u32) -> i64 {
    let count = |_: &Cpu, tree: &mut Tree<Entries>| Ok(tree.count(self::level(level)?));
    with(tree, cpu, count).map_or_else(|e| i64::from(e.code()), i64::from)
}

/// Maps the page at `va` to the frame at `phys`, with `attr` of `enum pt_attr`. A frame of
/// `pt_page_alloc` belongs to the tree from then on: it is given back when it is unmapped, or with
/// the tree. Any other frame that is not the library's may be mapped too: a device's, the kernel's
/// own.
///
/// Fails, without a change, with `PT_ERROR_MAPPED`, `PT_ERROR_NO_MEMORY`, `PT_ERROR_RANGE`,
/// `PT_ERROR_ARGUMENT` for attributes that cannot be asked for, and for a frame of the library's
/// that is not data of the caller's as `pt_page_free` does.
///
/// # Safety
///
/// - `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling
///   CPU.
/// - Whatever programs do with the page is allowed to the frame, until it has been unmapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_map(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    phys: u64,
    attr: u32,
) -> i32 {
    let map = |cpu: &Cpu, tree: &mut Tree<Entries>| {
        let (attr, pfn) = (asked(attr)?, page::frame(phys)?);
        let at = VirtAddr(range(va, PT_PAGE_SIZE)?.start);
        mappable(cpu, pfn)?;
        let mut tree = tree.edit(cpu.on())?;
        // SAFETY: 1. by the caller; a frame that may be handed out again was refused.
        unsafe { tree.map(at, pfn, attr, AllocFlags::NORMAL)? };
        become_mapped(cpu, pfn);
        Ok(())
    };
    answer(with(tree, cpu, map))
}

/// Maps the `bytes` from `va` on to the frames from `phys` on, as `pt_tree_map` maps each. If one
/// fails, no page is mapped.
///
/// # Safety
///
/// As for `pt_tree_map`, for each page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_map_range(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    bytes: u64,
    phys: u64,
    attr: u32,
) -> i32 {
    let map = |cpu: &Cpu, tree: &mut Tree<Entries>| {
        let (attr, first) = (asked(attr)?, page::frame(phys)?);
        let range = range(va, bytes)?;
        let last = phys.checked_add(bytes).ok_or(PtError::Range)?.saturating_sub(PT_PAGE_SIZE).max(phys);
        let frames = first.0..=page::frame(last)?.0;
        frames.clone().try_for_each(|pfn| mappable(cpu, Pfn(pfn)))?;
        let mut edit = tree.edit(cpu.on())?;
        // Not by the library's own call for ranges: it has another copy of the code that unmaps.
        for (at, pfn) in (range.start..range.end).step_by(PT_PAGE_SIZE as usize).zip(frames.clone()) {
            // SAFETY: 1. by the caller; frames that may be handed out again were refused.
            if let Err(e) = unsafe { edit.map(VirtAddr(at), Pfn(pfn), attr, AllocFlags::NORMAL) } {
                // The tree does not own a frame yet: it gives no frame back.
                unmap(cpu, &mut edit, range.and(VirtRange::up_to(at)), None, ptr::null_mut());
                return Err(e.into());
            }
        }
        if !range.is_empty() {
            frames.for_each(|pfn| become_mapped(cpu, Pfn(pfn)));
        }
        Ok(())
    };
    answer(with(tree, cpu, map))
}

/// Unmaps a range, and tells `visit`.
pub(super) fn unmap(
    cpu: &Cpu,
    edit: &mut TreeMut<'_, Entries, Parts>,
    range: VirtRange,
    visit: PtVisit,
    context: *mut c_void,
) {
    let owns = |page: Mapped| {
        tell(visit, context, page);
        disown(cpu, page.frame)
    };
    // SAFETY: 1. `pt_tree_map` made the frame the tree's, with its one reference. No page that is a
    // large one has such a frame (`pt_tree_map_range_large`, `pt_tree_collapse`).
    unsafe { edit.unmap_owned(range, Free::Empty, owns) };
}

/// Unmaps all pages in the `bytes` from `va` on, and gives back tables that are empty then. Every
/// CPU has forgotten the pages when it returns. Never needs memory.
///
/// For each page `visit` is called, unless it is NULL, before the flush: frames that are the
/// kernel's own may be used for something else after `pt_tree_unmap` has returned. Those of
/// `pt_page_alloc` are given back by it. For a large page it is called once, with its `level`. One
/// that lies partly in the range is split first, and only its pages in the range go.
///
/// # Safety
///
/// - `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling
///   CPU.
/// - `visit` is NULL or may be called so, and returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_unmap(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    bytes: u64,
    visit: PtVisit,
    context: *mut c_void,
) -> i32 {
    edit_range((tree, cpu), (va, bytes), |cpu, range, edit| {
        unmap(cpu, edit, range, visit, context);
        Ok(())
    })
}

/// Calls back for a page.
fn tell(visit: PtVisit, context: *mut c_void, page: Mapped) {
    if let Some(visit) = visit {
        // SAFETY: it may be called so (contracts of the functions that take one).
        unsafe { visit(context, &described(page)) };
    }
}

/// Calls back for each page: of one type for all calls, so that they share code.
pub(super) fn teller(visit: PtVisit, context: *mut c_void) -> impl FnMut(Mapped) {
    move |page| tell(visit, context, page)
}

fn described(page: Mapped) -> PtPage {
    PtPage {
        va: page.at.0,
        phys: page.frame.addr().0,
        bytes: 1 << page.shift,
        attr: page.attr.0,
        level: page.level.0.into(),
    }
}

/// Refuses a level that there is not.
pub(super) fn level(level: u32) -> Result<Level, PtError> {
    if level < PT_LEVELS { Ok(Level(level as u8)) } else { Err(PtError::Argument) }
}

/// Gives all pages in the `bytes` from `va` on the attributes `attr`, of `enum pt_attr`. Bits that
/// MMUs have set are kept. Every CPU has forgotten the pages as they were when it returns. A large
/// page that lies partly in the range is split first.
///
/// Fails, without a change, with `PT_ERROR_ARGUMENT` for attributes that cannot be asked for, and
/// `PT_ERROR_RANGE`.
///
/// # Safety
///
/// - `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling
///   CPU.
/// - Whatever programs do with the pages from then on is allowed to their frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_protect(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    bytes: u64,
    attr: u32,
) -> i32 {
    edit_range((tree, cpu), (va, bytes), |_, range, edit| {
        let attr = asked(attr)?;
        let kept = Attr::ACCESSED | Attr::DIRTY | Attr::SPECIAL;
        Ok(edit.change_range(range, |old| attr | Attr(old.0 & kept.0))?)
    })
}

/// Writes the page that maps `va` to `page`, even where the MMU would not let the access through.
/// It may be a large one: the physical address of `va` is `page->phys + (va - page->va)`.
///
/// Fails with `PT_ERROR_NOT_MAPPED`.
///
/// # Safety
///
/// - `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling
///   CPU.
/// - `page` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_query(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    page: Out<'_, PtPage>,
) -> i32 {
    let query = |cpu: &Cpu, tree: &mut Tree<Entries>| {
        page.check()?;
        if va >= PT_USER_END {
            return Err(PtError::Range);
        }
        page.put(described(tree.view().query_leaf(cpu.on(), VirtAddr(va)).ok_or(PtError::NotMapped)?))
    };
    answer(with(tree, cpu, query))
}

/// Calls `visit` for each page that is mapped in the `bytes` from `va` on, in order; for a large
/// page once, also for one that lies partly in the range.
///
/// # Safety
///
/// - `tree` is NULL or points to a `struct pt_tree`, `cpu` to the `struct pt_cpu` of the calling
///   CPU.
/// - `visit` may be called so, and returns; NULL is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_tree_walk(
    tree: Arg<'_, PtTree>,
    cpu: Arg<'_, PtCpu>,
    va: u64,
    bytes: u64,
    visit: PtVisit,
    context: *mut c_void,
) -> i32 {
    let walk = |cpu: &Cpu, tree: &mut Tree<Entries>| {
        if visit.is_none() {
            return Err(PtError::Pointer);
        }
        let range = range(va, bytes)?;
        tree.view().walk_leaves(cpu.on(), range, teller(visit, context))?;
        Ok(())
    };
    answer(with(tree, cpu, walk))
}
