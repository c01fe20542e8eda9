//! `page-table-generic` changes live entries of AArch64 without making them invalid first.
//!
//! `cargo run -p ptsan --features page-table-generic --example page_table_generic_break`
#[path = "shared/verdict.rs"]
mod verdict;

use page_table_generic::{PageTable, PhysAddr, VirtAddr};
use ptsan::adapters::page_table_generic::{A64, READ_ONLY, READ_WRITE};
use ptsan::adapters::{Current, Machine};
use ptsan::{Access, Arch, Config, Kind};
use verdict::{Defect, silent};

type Table = PageTable<A64, Machine>;

const PAGE: usize = 4096;
const LARGE: usize = 0x20_0000;

fn with_a_page(size: usize) -> (Machine, Current, Table) {
    let machine = Machine::new(Config::new(Arch::aarch64_4k(48)));
    let current = machine.enter();
    let mut table = Table::new(machine.clone()).expect("a machine has frames");
    let (va, frame) = (VirtAddr::from_usize(LARGE), PhysAddr::from_usize(0x4000_0000));
    table.map_page(va, frame, size, READ_WRITE).expect("the page is free");
    machine.load(0, table.root_paddr().as_usize() as u64, 1);
    machine.access(0, LARGE as u64, Access::WRITE).expect("the page is mapped");
    // A walk that the CPU makes by itself would cache the new entry beside the old one.
    machine.walk_ahead(0, LARGE as u64);
    machine.walk_ahead(0, (LARGE + PAGE) as u64);
    (machine, current, table)
}

fn remap() {
    let (machine, _current, mut table) = with_a_page(PAGE);
    let (va, frame) = (VirtAddr::from_usize(LARGE), PhysAddr::from_usize(0x5000_0000));
    table.remap_page(va, frame, READ_WRITE).expect("the page is mapped");
    assert_eq!(machine.access(0, LARGE as u64, Access::WRITE).map(|t| t.phys), Ok(0x5000_0000));
    Defect {
        title: "remap_page gives a live entry another frame in one store",
        source: "page-table-generic 0.9.1, src/frame.rs:413 (remap_recursive, called at src/table.rs:1951); the huge split at \
                 src/frame.rs:337 does it right",
        why: "AArch64 demands that the entry be made invalid and the TLB be invalidated before another output address is stored: \
              otherwise two translations of one address may be in use at once, which loses coherency, breaks exclusive \
              accesses, or raises a conflict abort.",
        at: &["src/table.rs:1952:"],
        must: &[Kind::BreakBeforeMake],
        may: &[],
    }
    .found(&machine);
    end(&machine, table);
}

fn restore() {
    let (machine, _current, mut table) = with_a_page(LARGE);
    let deposit = table.prepare_huge_split(VirtAddr::from_usize(LARGE)).expect("a large page");
    let split = table.split_huge_page_with(deposit).expect("nothing changed it");
    for page in 0..4 {
        machine.access(0, (LARGE + page * PAGE) as u64, Access::WRITE).expect("the pages are mapped");
    }
    drop(table.restore_huge_split(split).expect("nothing changed it"));
    Defect {
        title: "restore_huge_split makes a block while all its pages but one are cached",
        source: "page-table-generic 0.9.1, src/frame.rs:377 invalidates one address of the 512 that the table mapped; :378 stores the \
                 block",
        why: "Pages and the block that covers them are in the TLB together: a conflict abort, or a mixture of both. It \
              takes a split that was walked; the function is documented for aborts of unpublished transactions.",
        at: &[],
        must: &[Kind::BreakBeforeMake],
        may: &[],
    }
    .found(&machine);
    end(&machine, table);
}

fn right() {
    let (machine, _current, mut table) = with_a_page(LARGE);
    table.split_huge_page(VirtAddr::from_usize(LARGE)).expect("a large page");
    for page in 0..4 {
        machine.access(0, (LARGE + page * PAGE) as u64, Access::WRITE).expect("the pages are mapped");
    }
    table.protect_page(VirtAddr::from_usize(LARGE), READ_ONLY).expect("the page is mapped");
    assert!(machine.access(0, LARGE as u64, Access::WRITE).is_err());
    end(&machine, table);
    silent("a large page split, and a page protected", &machine);
}

fn end(machine: &Machine, table: Table) {
    machine.leave(0);
    drop(table);
}

fn main() {
    remap();
    restore();
    right();
}
