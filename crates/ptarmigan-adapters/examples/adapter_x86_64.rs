//! A sparse space of the crate `x86_64` on pages of the lists, which keep returned tables until the
//! TLBs have forgotten it.
//!
//! ```sh
//! cargo run --release -p ptarmigan-adapters --features x86_64 --example adapter_x86_64
//! ```
use ptarmigan::format::X86_64;
use ptarmigan::page::FlushProof;
use ptarmigan::quicklist::Policy;
use ptarmigan_adapters::{Pages, x86_64::Space};
use ptarmigan_hosted::{Host, HostConfig};
use std::error::Error;
use x86_64::structures::paging::{Page, PageTableFlags as Flags, PhysFrame, Size4KiB};
use x86_64::{PhysAddr, VirtAddr};

fn main() -> Result<(), Box<dyn Error>> {
    let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
    let lists = host.quicklists()?;
    let pages = Pages::new(&lists, host.slot(0).ok_or("the CPU is taken")?)?;
    let flags = Flags::PRESENT | Flags::WRITABLE | Flags::USER_ACCESSIBLE;
    let mut space = Space::new(&pages).ok_or("no memory")?;
    for region in 0..32 {
        let page = Page::<Size4KiB>::containing_address(VirtAddr::new(region << 21));
        let frame = PhysFrame::containing_address(PhysAddr::new(0x1_0000_0000 + (region << 12)));
        // SAFETY: no program runs in the space.
        let flush = unsafe { space.map_to(page, frame, flags) }.map_err(|e| format!("{e:?}"))?;
        flush.ignore(); // a kernel: flush.flush()
    }
    println!("a space of 32 pages has {} tables", lists.counts().live());
    drop(space);
    let waiting = pages.take_waiting();
    println!("{} tables wait for the flush", waiting.len());
    // A kernel flushes here, on every CPU that may have loaded the root.
    // SAFETY: 1. no CPU has.
    waiting.flushed(unsafe { FlushProof::claim() });
    println!("{} are out after it", lists.counts().live());
    if lists.counts().live() != 0 {
        return Err("tables have not come back".into());
    }
    Ok(())
}
