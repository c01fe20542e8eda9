//! A space of the crate `page-table-generic` on pages of the lists. The crate has no format of its
//! own: here is one of x86-64. A table that becomes empty goes back while the space lives, and
//! waits for the flush.
//!
//! ```sh
//! cargo run --release -p ptarmigan-adapters --features page-table-generic --example adapter_page_table_generic
//! ```
use page_table_generic::{PageTableEntry, PhysAddr, TableMeta, VirtAddr};
use ptarmigan::format::X86_64;
use ptarmigan::page::FlushProof;
use ptarmigan::quicklist::{Policy, Quicklists};
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_adapters::page_table_generic::{Space, TableEntry};
use ptarmigan_adapters::{Home, Pages};
use ptarmigan_hosted::{CpuSlot, Host, HostConfig};
use std::cell::Cell;
use std::error::Error;

/// Present, writable, user.
const FLAGS: u64 = 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const LARGE: u64 = 1 << 7;

/// An entry of x86-64.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct Entry(u64);

impl PageTableEntry for Entry {
    type PteConfig = u64;

    fn new_page(at: PhysAddr, flags: u64, large: bool) -> Self {
        Entry(at.as_usize() as u64 & ADDRESS | flags & !LARGE | if large { LARGE } else { 0 })
    }
    fn new_table(at: PhysAddr) -> Self {
        Entry(at.as_usize() as u64 | FLAGS)
    }
    fn paddr(&self, _: bool) -> PhysAddr {
        PhysAddr::from_usize((self.0 & ADDRESS) as usize)
    }
    fn config(&self, _: bool) -> u64 {
        self.0 & !ADDRESS & !LARGE
    }
    fn present(&self) -> bool {
        self.0 & 1 != 0
    }
    fn huge(&self, directory: bool) -> bool {
        directory && self.0 & LARGE != 0
    }
    fn unused(&self) -> bool {
        self.0 == 0
    }
    fn clear(&mut self) {
        self.0 = 0;
    }
}

// SAFETY: 1. 8 bytes, and `clear` makes zeroes. 2. `new_table` makes it present, without bit 7. 3.
// `new_page` sets bit 7.
unsafe impl TableEntry for Entry {}

#[derive(Clone, Copy)]
struct FourLevels;

impl TableMeta for FourLevels {
    type P = Entry;
    const PAGE_SIZE: usize = 4096;
    const LEVEL_BITS: &'static [usize] = &[9, 9, 9, 9];
    const MAX_BLOCK_LEVEL: usize = 3;
    fn flush(_: Option<VirtAddr>) {}
}

type Lists = Quicklists<'static, DirectMap, &'static KernelMap<X86_64, DirectMap>>;
type Mine = Pages<'static, &'static Lists, CpuSlot>;

std::thread_local! {
    static PAGES: Cell<Option<&'static Mine>> = const { Cell::new(None) };
}

/// Leads the hooks to the pages. Private, so no other code calls them.
#[derive(Clone, Copy)]
struct Here;

// SAFETY: 1. the only thread sets them once. 2. no other code knows the type. 3. it is the default.
unsafe impl Home for Here {
    type Policy = &'static Lists;
    type Pin = CpuSlot;
    fn pages() -> &'static Mine {
        PAGES.get().expect("`main` sets them first")
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let host: &'static _ = Box::leak(Box::new(Host::<X86_64>::new(HostConfig::default())?));
    let lists: &'static Lists = Box::leak(Box::new(host.quicklists()?));
    let pages: &'static Mine =
        Box::leak(Box::new(Pages::new(lists, host.slot(0).ok_or("the CPU is taken")?)?));
    PAGES.set(Some(pages));

    let mut space = Space::<FourLevels, Here>::new()?;
    for at in (0..32).map(|region| region << 21) {
        let frame = PhysAddr::from_usize(0x1_0000_0000 + at);
        space.map_page(VirtAddr::from_usize(at), frame, 4096, FLAGS)?;
    }
    println!("a space of 32 pages has {} tables", lists.counts().live());
    space.unmap(VirtAddr::from_usize(0), 16 << 21)?;
    let waiting = pages.take_waiting();
    println!("half of it unmapped: {} tables wait for the flush", waiting.len());
    // A kernel flushes here, on every CPU that may have loaded the root.
    // SAFETY: 1. no CPU has.
    waiting.flushed(unsafe { FlushProof::claim() });
    drop(space);
    // SAFETY: as above.
    pages.take_waiting().flushed(unsafe { FlushProof::claim() });
    if lists.counts().live() != 0 {
        return Err("tables have not come back".into());
    }
    Ok(())
}
