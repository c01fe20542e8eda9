//! The library's pages for this benchmark: one machine for each thread that asks, as static hooks
//! have no argument to carry one.
use std::cell::Cell;

use ptarmigan::adapters::{Home, Pages};
use ptarmigan::format::X86_64;
use ptarmigan::hosted::{CpuSlot, Host};
use ptarmigan::quicklist::{Policy, Quicklists};
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_cli::bench::machine::host;

type Lists = Quicklists<'static, DirectMap, &'static KernelMap<X86_64, DirectMap>>;
pub type OurPages = Pages<'static, &'static Lists, CpuSlot>;

std::thread_local! {
    static PAGES: Cell<Option<&'static OurPages>> = const { Cell::new(None) };
}

/// Sets this thread's machine up, which stays for ever.
pub fn set_up() -> Result<&'static OurPages, String> {
    let host: &'static Host<X86_64> = Box::leak(Box::new(host().map_err(|e| e.to_string())?));
    let lists: &'static Lists = Box::leak(Box::new(host.quicklists().map_err(|e| e.to_string())?));
    let cpu = host.slot(0).ok_or("the machine's CPU is taken")?;
    let pages = Pages::new(lists, cpu).map_err(|e| e.to_string())?;
    // SAFETY: 1. no MMU walks the tables.
    let pages = Box::leak(Box::new(unsafe { pages.at_once() }));
    PAGES.set(Some(pages));
    Ok(pages)
}

/// Returns the pages that have not come back.
pub fn out(pages: &OurPages) -> usize {
    pages.policy().counts().live()
}

/// Where hooks find this thread's pages.
#[derive(Clone, Copy)]
pub struct Here;

// SAFETY: 1. each thread sets one up, and spaces do not leave theirs. 2. nothing else calls them.
unsafe impl Home for Here {
    type Policy = &'static Lists;
    type Pin = CpuSlot;

    #[inline(always)]
    fn pages() -> &'static OurPages {
        PAGES.get().expect("`set_up` comes first")
    }
}
