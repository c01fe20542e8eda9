//! `aarch64-paging`: `RootTable`, released and with hooks, and `Noted`.
use aarch64_paging::descriptor::{El1Attributes, PhysicalAddress};
use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, RootTable, Translation, VaRange};
use ptarmigan_adapters::aarch64_paging::{Noted, Tables};
use ptarmigan_bench::table::contender::PAGE;

use super::Way;
use super::ours::OurPages;
use super::work::Work;
use crate::peers::aarch64_paging::{FLAGS, Identity};

fn region(virt: usize, bytes: usize) -> MemoryRegion {
    MemoryRegion::new(virt, virt + bytes)
}

const PAGES_ONLY: Constraints = Constraints::NO_BLOCK_MAPPINGS;

fn table<T: Translation<El1Attributes>>(work: &Work, tables: impl Fn() -> T) {
    for pages in work.spaces() {
        let mut table = RootTable::with_va_range(tables(), 0, El1And0, VaRange::Lower);
        for &(virt, phys) in pages {
            table.map_range(&region(virt, PAGE), PhysicalAddress(phys), FLAGS, PAGES_ONLY).expect("map");
        }
        if let Some(range) = work.range {
            let to = PhysicalAddress(range.phys);
            table.map_range(&region(range.virt, range.bytes), to, FLAGS, PAGES_ONLY).expect("map a range");
        }
    }
}

fn noted(work: &Work, ours: &OurPages) {
    for pages in work.spaces() {
        let mut table = Noted::table_with_va_range(ours, 0, El1And0, VaRange::Lower);
        for &(virt, phys) in pages {
            table.map_range(&region(virt, PAGE), PhysicalAddress(phys), FLAGS, PAGES_ONLY).expect("map");
        }
        if let Some(range) = work.range {
            let to = PhysicalAddress(range.phys);
            table.map_range(&region(range.virt, range.bytes), to, FLAGS, PAGES_ONLY).expect("map a range");
        }
    }
}

#[inline(never)]
pub fn run(way: Way, work: &Work, ours: &OurPages) {
    match way {
        Way::Released => table(work, || Identity),
        Way::Hooks => table(work, || Tables::new(ours)),
        Way::Space => noted(work, ours),
    }
}
