//! The hash table, and the CPU that finds pages in it.
//!
//! # Rules of an MMU with a hash table
//!
//! 1. First the refill, then the fault. The handler asks the tree for an entry that allows the
//!    access and puts it into the hash table. Only without such an entry does it call `fault`; the
//!    access then misses once more, and the refill finds it.
//! 2. A protection violation may be a refill as well. A page that was not written yet is read-only
//!    in the hash table. The refill for a write notes that it is dirty and writes the entry anew:
//!    the TLB forgets it if [`Inserted`] says so.
//! 3. The bits for *referenced* and *changed* are set from the beginning. The MMU writes them where
//!    it found the entry, which may have become another page's.
//! 4. Context numbers are the machine's (`BROADCASTS`). When they are handed out anew, `forget_all`
//!    wipes the table. Number 0 is the kernel's; `unload` loads its user segments.
//! 5. Costs count entries. Forgetting a page looks at two groups, forgetting everything at the
//!    whole table; `Costs::page_hashed` is the price of a page that was hashed.
//! 6. Compilers copy by floating-point registers: both the user's and those of a kernel that is
//!    interrupted have to be saved.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, Ordering};

use ptarmigan::addr::{Pfn, VirtAddr};
use ptarmigan::cpu::{CpuSet, Pinned};
use ptarmigan::format::{Access, Attr, Format, Formats, Ppc32};
use ptarmigan::page::Level;
use ptarmigan::tlb::hash::{HashSizeError, HashTable, Hashed32, Inserted, Mapping, Refill, Tag};
use ptarmigan::tlb::{Invalidation, Ipi, Mmu, Root, Scope, SpaceId, Structures};

use ptarmigan_kernel_base::direct::direct;
use ptarmigan_kernel_base::once_cell::OnceCell;

use super::mmu::{self, KERNEL_SEGMENT, SEGMENTS};
use super::negative_controls::{NegativeControl, leaves_out};

/// Bytes of the hash table, the smallest one: pages drive others out.
pub const HASH_TABLE: u64 = 64 << 10;

static HASHED: OnceCell<HashTable<Hashed32>> = OnceCell::new();

/// The hash table.
pub fn table() -> &'static HashTable<Hashed32> {
    HASHED.get()
}

/// Makes the hash table of the memory at `at`, and gives the segments their numbers.
///
/// # Errors
///
/// [`HashSizeError`] if `at` is not aligned to the table's size.
///
/// # Safety
///
/// 1. Nobody else uses [`HASH_TABLE`] bytes from there on, now or later, and they are in the direct
///    map.
/// 2. It is called once.
pub unsafe fn set_up(at: u64) -> Result<(), HashSizeError> {
    let base = NonNull::new(direct::<u8>(at)).unwrap_or(NonNull::dangling());
    // SAFETY: 1. Point 1 of the caller's.
    let table = unsafe { HashTable::new(base, HASH_TABLE)? };
    // SAFETY: 1. Point 2 of the caller's.
    unsafe { HASHED.set(table) };
    // SAFETY: 1. It is one from here on, and `new` refuses one that is not aligned.
    unsafe { mmu::set_hash_table(at) };
    for segment in KERNEL_SEGMENT..SEGMENTS {
        // SAFETY: 1. For good; the kernel runs in block translations.
        unsafe { mmu::set_segment(segment, Tag::of(0, segment << 28).vsid()) };
    }
    load_segments(0);
    mmu::forget_all();
    Ok(())
}

/// The CPU, which broadcasts invalidations, and the hash table that it shares with its like.
pub struct Hashed;

/// Removes the pages in `scope` of a context's segments from the hash table and the TLBs.
fn flush(context: u16, scope: &Scope, first: u32, end: u32) {
    let context = u32::from(context);
    let table = HASHED.get();
    let (remove, tlbie) = match context {
        0 => (NegativeControl::KernelRemove, NegativeControl::KernelTlbie),
        _ => (NegativeControl::Remove, NegativeControl::Tlbie),
    };
    if leaves_out(remove) {
        return mmu::forget_all();
    }
    let forgets = !leaves_out(tlbie);
    match scope.pages() {
        Some(pages) => pages.for_each(|at| {
            let at = at as u32;
            table.remove(Tag::of(context, at), || {
                if forgets {
                    mmu::forget(at);
                }
            });
        }),
        None => {
            table.remove_segments(context, first..end, || {
                if forgets {
                    mmu::forget_all();
                }
            });
        }
    }
}

/// Loads the user's segment registers with the numbers of a context.
fn load_segments(context: u16) {
    for segment in 0..KERNEL_SEGMENT {
        // SAFETY: 1. The user's segments, in which the kernel neither runs nor reads.
        unsafe { mmu::set_segment(segment, Tag::of(context.into(), segment << 28).vsid()) };
    }
    mmu::segments_changed();
}

// SAFETY: 1. and 2. `tlbie` drops a page of all segments on all CPUs, and one for each class drops
// all; the page has gone from the hash table before, or all of the context's segments have. 3.
// Other spaces have other segments. Pages under the number are this space's, unless `keep` says
// otherwise or all numbers are handed out anew; they are removed then. 4. The user's segments of
// context 0 have no page in the hash table. 5. `tlbie` is broadcast; the MMU looks only into the
// hash table, and finds only entries that were put there. 6. It keeps no root and no entry. 7. The
// functions do not unwind.
unsafe impl Mmu for Hashed {
    const FORMATS: Formats = Formats::of::<Ppc32>();
    const BROADCASTS: bool = true;
    const WALKS_TABLES: bool = false;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, _pin: &Pinned<'_>, what: &Invalidation) {
        flush(what.asid, &what.scope, 0, KERNEL_SEGMENT);
    }

    fn invalidate_kernel(&self, _pin: &Pinned<'_>, scope: &Scope) {
        flush(0, scope, KERNEL_SEGMENT, SEGMENTS);
    }

    fn load(&self, _pin: &Pinned<'_>, root: &Root) {
        if root.forget_all {
            HASHED.get().wipe(mmu::forget_all);
        } else if !root.keep {
            flush(root.asid, &Scope::Full, 0, KERNEL_SEGMENT);
        }
        load_segments(root.asid);
        CURRENT.store(root.asid, Ordering::Relaxed);
    }

    fn unload(&self, _pin: &Pinned<'_>, _space: SpaceId) {
        load_segments(0);
        CURRENT.store(0, Ordering::Relaxed);
    }
}

impl Ipi for Hashed {
    fn send(&self, _pin: &Pinned<'_>, _cpus: &CpuSet, _serve: &dyn Fn(&Pinned<'_>)) {}
}

/// The context of the space that is loaded.
static CURRENT: AtomicU16 = AtomicU16::new(0);

/// Returns the hash table's mapping for an entry. The bits that note uses are set from the
/// beginning: they are noted in the software's entry as well, and the MMU would write them into an
/// entry that may have become another page's. Pages that were not written to yet are read-only, so
/// that the first write is missed and noted.
fn mapping(raw: u64) -> Mapping {
    let attr = Ppc32::attr(Level::PTE, raw);
    let writable = attr.has(Attr::WRITE) && attr.has(Attr::DIRTY);
    // The supervisor has the key 0, the user 1.
    let protection = match (writable, attr.has(Attr::USER)) {
        (true, true) => 2,
        (true, false) => 0,
        (false, _) => 3,
    };
    let used = Mapping::REFERENCED | if writable { Mapping::CHANGED } else { 0 };
    Mapping(Ppc32::frame(Level::PTE, raw).addr().0 as u32 | used | Ppc32::storage(raw) | protection)
}

/// Puts a page into the hash table that was missed, if its entry, which `entry` reads and marks,
/// allows the access. `protected` says that there was an entry that did not.
fn refill(context: u16, at: u32, protected: bool, entry: &dyn Fn() -> Option<Refill<u64>>) -> bool {
    let tag = Tag::of(context.into(), at);
    let entry = || entry().map(|page| page.map(mapping));
    // SAFETY: 1. the tables map the frame so for whatever runs in the segment; if they change, the
    // flush takes the page out. 2. callers pass on the bit of the entry, or have it searched.
    match unsafe { HASHED.get().refill(tag, entry) } {
        None => return false,
        // TLBs know it as it was.
        Some(Inserted::Again) => mmu::forget(at),
        Some(_) if protected => mmu::forget(at),
        Some(_) => {}
    }
    true
}

/// Puts a page of the space that is loaded into the hash table; false if its entry does not allow
/// the access. `protected` says that an entry was there that did not.
pub fn refill_user(at: u32, protected: bool, entry: &dyn Fn() -> Option<Refill<u64>>) -> bool {
    refill(CURRENT.load(Ordering::Relaxed), at, protected, entry)
}

/// Puts a page into the hash table as its entry says, without the bit in the entry that says so: a
/// mistake, to be noticed. False if the entry does not allow the access.
pub fn insert_unmarked(va: VirtAddr, protected: bool, frame: Pfn, attr: Attr, access: Access) -> bool {
    let raw = Ppc32::leaf(Level::PTE, frame, attr | Attr::ACCESSED | Attr::DIRTY);
    let entry = || Ppc32::allows(Level::PTE, raw, access).then_some(Refill { entry: raw, was_hashed: true });
    refill_user(va.0 as u32, protected, &entry)
}

/// Puts a page of the kernel's into the hash table; false if its entry does not allow the access.
pub fn refill_kernel(at: u32, protected: bool, entry: &dyn Fn() -> Option<Refill<u64>>) -> bool {
    refill(0, at, protected, entry)
}
