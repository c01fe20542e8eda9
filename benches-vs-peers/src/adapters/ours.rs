//! The library's pages for this benchmark: in a static, as in a kernel, since static hooks have no
//! argument to carry them.
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use ptarmigan::addr::PhysAddr;
use ptarmigan::format::X86_64;
use ptarmigan::quicklist::{Policy, Quicklists};
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_adapters::{Home, Pages};
use ptarmigan_bench::machine::host;
use ptarmigan_hosted::{CpuSlot, Host};

type Lists = Quicklists<'static, DirectMap, &'static KernelMap<X86_64, DirectMap>>;
pub type OurPages = Pages<'static, &'static Lists, CpuSlot>;

static PAGES: AtomicPtr<OurPages> = AtomicPtr::new(ptr::null_mut());
/// The direct map of `PAGES`: in a kernel, a constant.
static DIRECT_MAP: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// Held while a thread uses `PAGES`, which are of its CPU.
static IN_USE: Mutex<()> = Mutex::new(());

/// Sets a machine up, which stays for ever, and calls `f` with its pages. One caller at a time.
pub fn with_pages<R>(f: impl FnOnce(&'static OurPages) -> Result<R, String>) -> Result<R, String> {
    let _alone = IN_USE.lock().map_err(|_| "another thread has panicked in here")?;
    let host: &'static Host<X86_64> = Box::leak(Box::new(host().map_err(|e| e.to_string())?));
    let lists: &'static Lists = Box::leak(Box::new(host.quicklists().map_err(|e| e.to_string())?));
    let cpu = host.slot(0).ok_or("the machine's CPU is taken")?;
    let pages = Pages::new(lists, cpu).map_err(|e| e.to_string())?;
    // SAFETY: 1. no MMU walks the tables.
    let pages: &'static _ = Box::leak(Box::new(unsafe { pages.at_once() }));
    DIRECT_MAP.store(pages.pointer(PhysAddr(0)), Relaxed);
    PAGES.store(ptr::from_ref(pages).cast_mut(), Relaxed);
    let result = f(pages);
    PAGES.store(ptr::null_mut(), Relaxed);
    result
}

/// Returns the pages that have not come back.
pub fn out(pages: &OurPages) -> usize {
    pages.policy().counts().live()
}

/// Where hooks find this thread's pages.
#[derive(Clone, Copy)]
pub struct Here;

// SAFETY: 1. they are those of `with_pages`, until it returns. 2. no other code calls them. 3. the
// direct map is one offset, which `with_pages` has stored.
unsafe impl Home for Here {
    type Policy = &'static Lists;
    type Pin = CpuSlot;

    #[inline]
    fn pages() -> &'static OurPages {
        // SAFETY: null, or leaked by `with_pages`; only the thread that is in there makes spaces.
        unsafe { PAGES.load(Relaxed).as_ref() }.expect("hooks are called in `with_pages`")
    }

    #[inline]
    fn pointer(at: PhysAddr) -> *mut u8 {
        DIRECT_MAP.load(Relaxed).wrapping_add(at.0 as usize)
    }
}
