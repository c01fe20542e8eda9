//! A sparse space of the crate `page_table_multiarch` on pages of the lists. Its hooks are static,
//! so they find the pages in a static.
//!
//! ```sh
//! cargo run --release -p ptarmigan-adapters --features page_table_multiarch --example adapter_page_table_multiarch
//! ```
use std::error::Error;

#[cfg(target_arch = "x86_64")]
fn main() -> Result<(), Box<dyn Error>> {
    x86::run()
}

#[cfg(not(target_arch = "x86_64"))]
fn main() -> Result<(), Box<dyn Error>> {
    Err("this example uses the crate's x86-64 tables, which it has on that machine alone".into())
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use memory_addr::{PhysAddr, VirtAddr};
    use page_table_entry::x86_64::X64PTE;
    use page_table_multiarch::x86_64::X64PagingMetaData;
    use page_table_multiarch::{MappingFlags, PageSize};
    use ptarmigan::format::X86_64;
    use ptarmigan::quicklist::{Policy, Quicklists};
    use ptarmigan::table::KernelMap;
    use ptarmigan::window::DirectMap;
    use ptarmigan_adapters::{Home, Pages, page_table_multiarch::Space};
    use ptarmigan_hosted::{CpuSlot, Host, HostConfig};
    use std::cell::Cell;
    use std::error::Error;

    type Lists = Quicklists<'static, DirectMap, &'static KernelMap<X86_64, DirectMap>>;
    type Mine = Pages<'static, &'static Lists, CpuSlot>;

    std::thread_local! {
        static PAGES: Cell<Option<&'static Mine>> = const { Cell::new(None) };
    }

    /// Leads the hooks to the pages. Private, so no other code calls them.
    #[derive(Clone, Copy)]
    struct Here;

    // SAFETY: 1. the only thread sets them once. 2. no other code knows the type. 3. it is the
    // default.
    unsafe impl Home for Here {
        type Policy = &'static Lists;
        type Pin = CpuSlot;
        fn pages() -> &'static Mine {
            PAGES.get().expect("`run` sets them first")
        }
    }

    pub fn run() -> Result<(), Box<dyn Error>> {
        let host: &'static _ = Box::leak(Box::new(Host::<X86_64>::new(HostConfig::default())?));
        let lists: &'static Lists = Box::leak(Box::new(host.quicklists()?));
        // SAFETY: 1. a program has no MMU that walks the tables.
        let pages = unsafe { Pages::new(lists, host.slot(0).ok_or("the CPU is taken")?)?.at_once() };
        PAGES.set(Some(Box::leak(Box::new(pages))));

        let flags = MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER;
        for round in ["first", "second"] {
            let before = lists.counts().levels[0];
            let space = Space::<X64PagingMetaData, X64PTE, Here>::try_new();
            let mut space = space.map_err(|e| format!("{e:?}"))?;
            let mut cursor = space.cursor();
            for at in (0..32).map(|region| region << 21) {
                let frame = PhysAddr::from_usize(0x1_0000_0000 + at);
                cursor
                    .map(VirtAddr::from_usize(at), frame, PageSize::Size4K, flags)
                    .map_err(|e| format!("{e:?}"))?;
            }
            drop(cursor);
            let tables = lists.counts().live();
            drop(space);
            let fetched = lists.counts().levels[0].misses - before.misses;
            println!("{round} space: 32 pages, {tables} tables, {fetched} pages from the frame allocator");
        }
        if lists.counts().live() != 0 {
            return Err("tables have not come back".into());
        }
        Ok(())
    }
}
