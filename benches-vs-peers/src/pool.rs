//! The table allocator every peer gets: as fast as an allocator can be that knows nothing about a page's content.
//!
//! A prefaulted arena, a last-in-first-out free list kept *outside* the pages, and a bump pointer behind it. The
//! arena is poisoned once, so that nobody profits from memory that happens to be fresh and zero. "Physical"
//! addresses are host addresses: `phys_to_virt` is the identity for every contender.

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr;

/// Bytes in a table page.
pub const PAGE: usize = 4096;

/// Tables in the arena (32 MiB). Mapping 1,048,576 pages takes 2,054 of them.
const TABLES: usize = 8192;

struct Pool {
    base: Cell<usize>,
    bump: Cell<usize>,
    end: Cell<usize>,
    listed: Cell<usize>,
    live: Cell<usize>,
    list: [Cell<usize>; TABLES],
}

// SAFETY: the benchmark has one thread; nothing in this program starts another. The pool is a static because two
// of the peers take their allocator as plain functions without a context.
unsafe impl Sync for Pool {}

static POOL: Pool = Pool {
    base: Cell::new(0),
    bump: Cell::new(0),
    end: Cell::new(0),
    listed: Cell::new(0),
    live: Cell::new(0),
    list: [const { Cell::new(0) }; TABLES],
};

/// Sets the arena up. Called once, before any contender runs.
pub fn init() {
    let bytes = TABLES * PAGE;
    // Huge-page alignment, as a kernel's direct map would have.
    let Ok(layout) = Layout::from_size_align(bytes, 2 << 20) else { return };
    // SAFETY: the layout's size is not zero.
    let start = unsafe { alloc(layout) };
    if start.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: `start` points at `bytes` bytes allocated just above.
    unsafe { ptr::write_bytes(start, 0xa5, bytes) };
    let base = start.expose_provenance();
    POOL.base.set(base);
    POOL.bump.set(base);
    POOL.end.set(base + bytes);
}

/// Forgets the free list and starts the arena anew, so that every case sees the same addresses in the same order.
///
/// # Panics
///
/// If tables are still out: a case that leaks has no right to a number.
pub fn reset() {
    assert_eq!(POOL.live.get(), 0, "page-table pages leaked");
    POOL.bump.set(POOL.base.get());
    POOL.listed.set(0);
}

/// Hands out a table with arbitrary content.
#[inline(always)]
pub fn alloc_raw() -> usize {
    POOL.live.set(POOL.live.get() + 1);
    let listed = POOL.listed.get();
    if listed != 0 {
        POOL.listed.set(listed - 1);
        return POOL.list[listed - 1].get();
    }
    let table = POOL.bump.get();
    if table == POOL.end.get() {
        exhausted();
    }
    POOL.bump.set(table + PAGE);
    table
}

#[cold]
#[inline(never)]
fn exhausted() -> ! {
    panic!("the table pool is exhausted")
}

/// Hands out a table whose entries are all zero.
#[inline(always)]
pub fn alloc_zeroed() -> usize {
    let table = alloc_raw();
    // SAFETY: the pool hands out whole pages of its arena, each to one owner at a time.
    unsafe { ptr::write_bytes(ptr::with_exposed_provenance_mut::<u8>(table), 0, PAGE) };
    table
}

/// Takes a table back.
#[inline(always)]
pub fn free(table: usize) {
    POOL.live.set(POOL.live.get() - 1);
    let listed = POOL.listed.get();
    POOL.list[listed].set(table);
    POOL.listed.set(listed + 1);
}

/// Tables handed out and not yet back.
pub fn live() -> usize {
    POOL.live.get()
}
