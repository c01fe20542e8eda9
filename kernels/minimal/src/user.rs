//! Uses memory as a program would, and has its page faults served.
//!
//! ```text
//!  serving   HANDLER = handler, release ── f: stores, loads ── HANDLER = null ── fault served?
//!  fault     HANDLER.swap(null), acquire ── handler(at, access) ── HANDLER = handler
//!  a fault of the handler's own ──> null ──> not served: the run ends
//! ```
//!
//! # Why
//!
//! The handler borrows the space that the test made, and an exception handler has no parameter. So
//! it is a static, for as long as `f` runs. It is taken out while it is called: a handler that
//! faults itself would call itself with the space borrowed twice. The check that a fault occurred
//! is there because without paging the test would pass, too.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use ptarmigan::addr::VirtAddr;
use ptarmigan::format::{Access, Format as _};
use ptarmigan_kernel_base::{fail_if, say};

use crate::arch::Format;

type Handler<'a> = &'a mut dyn FnMut(VirtAddr, Access) -> bool;

/// Points at the handler that serves page faults now.
static HANDLER: AtomicPtr<Handler<'static>> = AtomicPtr::new(ptr::null_mut());
/// Page faults that were served.
static SERVED: AtomicU32 = AtomicU32::new(0);

/// Runs `f`, whose page faults `handler` serves; ends the run if no page fault occurs.
pub fn serving<R>(mut handler: impl FnMut(VirtAddr, Access) -> bool, f: impl FnOnce() -> R) -> R {
    let before = SERVED.load(Ordering::Relaxed);
    let mut handler: Handler<'_> = &mut handler;
    HANDLER.store((&raw mut handler).cast(), Ordering::Release);
    let result = f();
    HANDLER.store(ptr::null_mut(), Ordering::Release);
    check("a page fault was served", SERVED.load(Ordering::Relaxed) > before);
    result
}

/// Serves a page fault, for the architecture's exception handler; false if it cannot be served.
pub fn fault(at: u64, access: Access) -> bool {
    // A fault of the handler's own finds no handler.
    let handler = HANDLER.swap(ptr::null_mut(), Ordering::Acquire);
    if handler.is_null() {
        return false;
    }
    // SAFETY: `serving` keeps the handler until it takes the pointer back, and does not use it
    // meanwhile; there is one CPU, and a fault while this one is served finds no pointer.
    let served = unsafe { (*handler)(VirtAddr(at), access) };
    HANDLER.store(handler, Ordering::Release);
    SERVED.fetch_add(1, Ordering::Relaxed);
    served
}

fn word(at: u64) -> *mut u64 {
    fail_if(
        at >= Format::USER_END || !at.is_multiple_of(8),
        format_args!("{at:#x} is no word of a program's"),
    );
    ptr::with_exposed_provenance_mut(at as usize)
}

/// Writes a word of the space that is loaded. A fault that is not served ends the run.
pub fn store(at: u64, value: u64) {
    // SAFETY: no object of the kernel's is in a program's half of a space.
    unsafe { word(at).write_volatile(value) };
}

/// Reads a word of the space that is loaded, likewise.
pub fn load(at: u64) -> u64 {
    // SAFETY: as for `store`.
    unsafe { word(at).read_volatile() }
}

/// Prints a property that holds; ends the run if it does not.
pub fn check(what: &str, holds: bool) {
    fail_if(!holds, format_args!("not so: {what}"));
    say!("{what}");
}
