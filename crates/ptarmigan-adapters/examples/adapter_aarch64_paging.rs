//! A sparse space of the crate `aarch64-paging` on pages of the lists.
//!
//! ```sh
//! cargo run --release -p ptarmigan-adapters --features aarch64-paging --example adapter_aarch64_paging
//! ```
use aarch64_paging::descriptor::{El1Attributes as A, PhysicalAddress};
use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, VaRange};
use ptarmigan::format::X86_64;
use ptarmigan::quicklist::Policy;
use ptarmigan_adapters::{Pages, aarch64_paging::Noted};
use ptarmigan_hosted::{Host, HostConfig};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
    let lists = host.quicklists()?;
    // SAFETY: 1. a program has no MMU that walks the tables. In a kernel, `Mapping` flushes before
    // it gives a table back.
    let pages = unsafe { Pages::new(&lists, host.slot(0).ok_or("the CPU is taken")?)?.at_once() };
    let flags = A::VALID | A::ACCESSED | A::NON_GLOBAL | A::INNER_SHAREABLE | A::USER;
    for round in ["first", "second"] {
        let before = lists.counts().levels[0];
        let mut table = Noted::table_with_va_range(&pages, 0, El1And0, VaRange::Lower);
        for at in (0..32).map(|region| region << 21) {
            let page = MemoryRegion::new(at, at + 0x1000);
            table.map_range(&page, PhysicalAddress(0x1_0000_0000 + at), flags, Constraints::empty())?;
        }
        let tables = lists.counts().live();
        drop(table);
        let after = lists.counts().levels[0];
        let fetched = after.misses - before.misses;
        println!("{round} space: 32 pages, {tables} tables, {fetched} pages from the frame allocator");
    }
    if lists.counts().live() != 0 {
        return Err("tables have not come back".into());
    }
    Ok(())
}
