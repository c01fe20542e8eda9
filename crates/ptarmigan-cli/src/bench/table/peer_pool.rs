//! The table allocator every peer gets: as fast as an allocator can be that knows nothing about a page's content.
//!
//! A prefaulted arena, a last-in-first-out free list kept *outside* the pages, and a bump pointer behind it. The
//! arena is poisoned once, so that nobody profits from memory that happens to be fresh and zero. "Physical"
//! addresses are host addresses: `phys_to_virt` is the identity for every contender.
//!
//! It has nothing to do with the library's `PagePool`, which is a contender of its own in [`pages`](crate::bench::pages).

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr;

/// Bytes in a table page.
pub const PAGE: usize = 4096;

/// Tables in the arena (32 MiB). Mapping 1,048,576 pages takes 2,054 of them.
const TABLES: usize = 8192;

struct PeerPool {
    base: Cell<usize>,
    bump: Cell<usize>,
    end: Cell<usize>,
    listed: Cell<usize>,
    live: Cell<usize>,
    list: [Cell<usize>; TABLES],
}

// Not an object that contenders carry: two of the peers take their allocator as plain functions without a context.
// Each thread has a pool of its own, so nothing needs an atomic.
thread_local! {
    static POOL: PeerPool = const {
        PeerPool {
            base: Cell::new(0),
            bump: Cell::new(0),
            end: Cell::new(0),
            listed: Cell::new(0),
            live: Cell::new(0),
            list: [const { Cell::new(0) }; TABLES],
        }
    };
}

/// Sets this thread's arena up, if it is not yet, and forgets the free list, so that every case sees the same addresses
/// in the same order.
///
/// # Panics
///
/// If tables are still out: a case that leaks has no right to a number.
pub fn reset() {
    POOL.with(|pool| {
        assert_eq!(pool.live.get(), 0, "page-table pages leaked");
        if pool.base.get() == 0 {
            let base = arena();
            pool.base.set(base);
            pool.end.set(base + TABLES * PAGE);
        }
        pool.bump.set(pool.base.get());
        pool.listed.set(0);
    });
}

/// Poisoned memory for [`TABLES`] tables, never given back.
fn arena() -> usize {
    // Huge-page alignment, as a kernel's direct map would have.
    const LAYOUT: Layout = match Layout::from_size_align(TABLES * PAGE, 2 << 20) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two is a valid alignment"),
    };
    // SAFETY: the layout's size is not zero.
    let start = unsafe { alloc(LAYOUT) };
    if start.is_null() {
        handle_alloc_error(LAYOUT);
    }
    // SAFETY: `start` points at that many bytes allocated just above.
    unsafe { ptr::write_bytes(start, 0xa5, LAYOUT.size()) };
    start.expose_provenance()
}

/// Hands out a table with arbitrary content.
///
/// # Panics
///
/// If there is none left.
#[inline(always)]
pub fn alloc_raw() -> usize {
    POOL.with(|pool| {
        pool.live.set(pool.live.get() + 1);
        let listed = pool.listed.get();
        if listed != 0 {
            pool.listed.set(listed - 1);
            return pool.list[listed - 1].get();
        }
        let table = pool.bump.get();
        if table == pool.end.get() {
            exhausted();
        }
        pool.bump.set(table + PAGE);
        table
    })
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
    POOL.with(|pool| {
        pool.live.set(pool.live.get() - 1);
        let listed = pool.listed.get();
        pool.list[listed].set(table);
        pool.listed.set(listed + 1);
    });
}

/// Tables handed out and not yet back.
pub fn live() -> usize {
    POOL.with(|pool| pool.live.get())
}
