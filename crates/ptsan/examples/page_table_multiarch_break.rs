//! `page_table_multiarch` remaps live entries of AArch64 without making them invalid first.
//!
//! `cargo run -p ptsan --features page_table_multiarch --example page_table_multiarch_break`
#[path = "shared/verdict.rs"]
mod verdict;

use memory_addr::{PhysAddr, VirtAddr};
use page_table_multiarch::{MappingFlags, PageSize, PageTable64};
use ptsan::adapters::Machine;
use ptsan::adapters::page_table_multiarch::{A64, A64Entry, Handler, edit};
use ptsan::{Access, Arch, Config, Kind};
use verdict::{Defect, silent};

const VA: usize = 0x7000;
const FLAGS: MappingFlags = MappingFlags::READ.union(MappingFlags::WRITE).union(MappingFlags::USER);

/// Maps a page, uses it, and lets `change` change it.
fn run(change: impl FnOnce(&mut PageTable64<A64, A64Entry, Handler>, VirtAddr)) -> Machine {
    let machine = Machine::new(Config::new(Arch::aarch64_4k(48)));
    let _current = machine.enter();
    let mut table = PageTable64::try_new().expect("a machine has frames");
    machine.load(0, table.root_paddr().as_usize() as u64, 1);
    let (va, frame) = (VirtAddr::from_usize(VA), PhysAddr::from_usize(0x123_4000));
    edit(&mut table, |cursor| cursor.map(va, frame, PageSize::Size4K, FLAGS)).expect("the page is free");
    machine.access(0, VA as u64, Access::WRITE).expect("the page is mapped");
    // A walk that the CPU makes by itself would cache the new entry beside the old one.
    machine.walk_ahead(0, VA as u64);
    change(&mut table, va);
    let _ = machine.access(0, VA as u64, Access::WRITE);
    machine.leave(0);
    machine
}

fn main() {
    let other = PhysAddr::from_usize(0x567_8000);
    let remapped = run(|table, va| {
        edit(table, |cursor| cursor.remap(va, other, FLAGS)).expect("the page is mapped");
    });
    Defect {
        title: "remap gives a live entry another frame, without break-before-make",
        source: "page_table_multiarch 0.6.2, src/bits64.rs:396 stores the frame, :397 the flags; the flush comes when the cursor is \
                 dropped (the AArch64 table is the same code)",
        why: "AArch64 demands that the entry be made invalid and the TLB be invalidated before another output address is stored. \
              Besides, there are two stores: in between the new frame has the old permissions.",
        at: &[],
        must: &[Kind::BreakBeforeMake],
        may: &[],
    }
    .found(&remapped);

    let by_hand = run(|table, va| {
        edit(table, |cursor| cursor.unmap(va)).expect("the page is mapped");
        edit(table, |cursor| cursor.map(va, other, PageSize::Size4K, FLAGS)).expect("the page is free");
    });
    silent("unmap, flush, map", &by_hand);
    let protected = run(|table, va| {
        edit(table, |cursor| cursor.protect(va, MappingFlags::READ | MappingFlags::USER))
            .expect("the page is mapped");
    });
    silent("protect: permissions may change in place", &protected);
}
