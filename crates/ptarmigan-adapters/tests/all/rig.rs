//! A machine without an MMU, whose lists look at every page that comes back.
use ptarmigan::format::X86_64;
use ptarmigan::quicklist::{CheckConfig, Checked, ListsConfig, Policy, Quicklists};
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_adapters::{Home, Pages};
use ptarmigan_hosted::{CpuSlot, Host, HostConfig};
use std::cell::Cell;

pub type Lists = Quicklists<'static, DirectMap, &'static KernelMap<X86_64, DirectMap>, Checked>;
pub type Mine = Pages<'static, &'static Lists, CpuSlot>;

std::thread_local! {
    static PAGES: Cell<Option<&'static Mine>> = const { Cell::new(None) };
}

/// The pages of the test's thread.
#[derive(Clone, Copy, Debug)]
pub struct Here;

// SAFETY: 1. a test has one thread and sets one up, before the first call. 2. tests do not call
// them.
unsafe impl Home for Here {
    type Policy = &'static Lists;
    type Pin = CpuSlot;
    fn pages() -> &'static Mine {
        PAGES.get().expect("set up first")
    }
}

pub fn lists(bytes: u64) -> (&'static Host<X86_64>, &'static Lists) {
    let config = HostConfig { cpus: 1, nodes: 1, bytes, ..HostConfig::default() };
    let host: &'static _ = Box::leak(Box::new(Host::<X86_64>::new(config).unwrap()));
    let check = CheckConfig { sample: 1, ..CheckConfig::new(|misuse| println!("{misuse:?}")) };
    (host, Box::leak(Box::new(host.quicklists_checked(ListsConfig::new(1), check).unwrap())))
}

/// Sets the thread's pages up, which keep returned tables until they are flushed.
pub fn waiting() -> &'static Mine {
    let (host, lists) = lists(16 << 20);
    let pages = Box::leak(Box::new(Pages::new(lists, host.slot(0).unwrap()).unwrap()));
    PAGES.set(Some(pages));
    pages
}

/// Sets the thread's pages up, of a machine with so many bytes.
pub fn at_once_of(bytes: u64) -> &'static Mine {
    let (host, lists) = lists(bytes);
    // SAFETY: 1. no MMU walks the tables.
    let pages = unsafe { Pages::new(lists, host.slot(0).unwrap()).unwrap().at_once() };
    let pages = Box::leak(Box::new(pages));
    PAGES.set(Some(pages));
    pages
}

/// Sets the thread's pages up.
pub fn at_once() -> &'static Mine {
    at_once_of(16 << 20)
}

/// Pages that have not come back.
pub fn out(pages: &Mine) -> usize {
    pages.policy().counts().live()
}

/// All that was handed out has come back, and was zero.
pub fn assert_back(pages: &Mine) {
    assert_eq!(out(pages), 0, "tables have not come back");
    assert_eq!(pages.policy().check().refused(), 0, "tables came back with something in them");
}
