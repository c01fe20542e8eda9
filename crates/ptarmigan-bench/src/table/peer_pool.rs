//! The table allocator of every peer: as fast as is possible without knowing the contents of pages.
//!
//! It has a prefaulted arena, a last-in-first-out free list *outside* the pages, and a bump pointer
//! behind it. The arena is poisoned once, so no contender profits from fresh memory that is zero by
//! chance. "Physical" addresses are host addresses: `phys_to_virt` is the identity for every
//! contender.
//!
//! The library's `PagePool` is something else, and a contender of its own in
//! [`pages`](crate::pages).

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

// Not an object in the contenders, because two of the peers take their allocator as plain functions
// without a context. Each thread has its own pool, so no atomics are needed.
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

/// Sets up this thread's arena on the first call, and clears the free list. So every case sees the
/// same addresses in the same order.
///
/// # Panics
///
/// If tables are still allocated: a case that leaks has no result.
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

/// Allocates poisoned memory for [`TABLES`] tables, which is never freed.
fn arena() -> usize {
    // Aligned to huge pages, like a kernel's direct map.
    const LAYOUT: Layout = match Layout::from_size_align(TABLES * PAGE, 2 << 20) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two is a valid alignment"),
    };
    // SAFETY: the size of the layout is not zero.
    let start = unsafe { alloc(LAYOUT) };
    if start.is_null() {
        handle_alloc_error(LAYOUT);
    }
    // SAFETY: `start` points to that many bytes, allocated just above.
    unsafe { ptr::write_bytes(start, 0xa5, LAYOUT.size()) };
    start.expose_provenance()
}

/// Allocates a table with arbitrary contents.
///
/// # Panics
///
/// If no table is left.
#[inline]
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

/// Allocates a table with all entries zero.
#[inline]
pub fn alloc_zeroed() -> usize {
    let table = alloc_raw();
    // SAFETY: the pool hands out whole pages of its arena, each to one owner at a time.
    unsafe { ptr::write_bytes(ptr::with_exposed_provenance_mut::<u8>(table), 0, PAGE) };
    table
}

/// Frees a table.
#[inline]
pub fn free(table: usize) {
    POOL.with(|pool| {
        pool.live.set(pool.live.get() - 1);
        let listed = pool.listed.get();
        pool.list[listed].set(table);
        pool.listed.set(listed + 1);
    });
}

/// Returns the number of allocated tables.
pub fn live() -> usize {
    POOL.with(|pool| pool.live.get())
}
