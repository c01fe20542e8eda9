//! `page-table-generic` unmaps the wrong pages: too few when a range begins inside a hole or a
//! large page, too many when it covers a part of a large page.
//!
//! `cargo run -p ptsan --features page-table-generic --example page_table_generic_ranges`
#[path = "shared/verdict.rs"]
mod verdict;

use page_table_generic::{PageTable, PhysAddr, VirtAddr};
use ptsan::adapters::page_table_generic::{READ_ONLY, READ_WRITE, X64};
use ptsan::adapters::{Current, Machine};
use ptsan::{Access, Arch, Config, Expected, Kind};
use verdict::{Defect, silent};

type Table = PageTable<X64, Machine>;

const PAGE: usize = 4096;
const LARGE: usize = 0x20_0000;
const FRAME: u64 = 0x123_4000;
const LARGE_FRAME: u64 = 0x4000_0000;

fn empty() -> (Machine, Current, Table) {
    let machine = Machine::new(Config::new(Arch::x86_64()));
    let current = machine.enter();
    let table = Table::new(machine.clone()).expect("a machine has frames");
    machine.load(0, table.root_paddr().as_usize() as u64, 1);
    (machine, current, table)
}

fn map(table: &mut Table, va: usize, frame: u64, size: usize) {
    let (va, frame) = (VirtAddr::from_usize(va), PhysAddr::from_usize(frame as usize));
    table.map_page(va, frame, size, READ_WRITE).expect("the page is free");
}

fn begins_in_a_hole() {
    let (machine, _current, mut table) = empty();
    map(&mut table, 2 * LARGE, FRAME, PAGE);
    // The range begins at the second page of a 2 MiB that has no table. It ends with the first page
    // of the next, which is mapped.
    table.unmap(VirtAddr::from_usize(LARGE + PAGE), LARGE).expect("a range with a hole");
    assert!(machine.access(0, 2 * LARGE as u64, Access::WRITE).is_ok(), "the page is still there");
    machine.expect(0, 2 * LARGE as u64, None);
    end(&machine, table);

    let (inside, _current, mut table) = empty();
    map(&mut table, LARGE, LARGE_FRAME, LARGE);
    map(&mut table, 2 * LARGE, FRAME, PAGE);
    table.unmap(VirtAddr::from_usize(LARGE + LARGE / 2), LARGE / 2 + PAGE).expect("a mapped range");
    inside.expect(0, 2 * LARGE as u64, None);
    end(&inside, table);

    for (title, machine) in [
        ("unmap of a range that begins inside a hole leaves its last pages mapped", machine),
        ("unmap of a range that begins inside a large page leaves its last pages mapped", inside),
    ] {
        Defect {
            title,
            source: "page-table-generic 0.9.1, src/map.rs:259, :268 (hole) and :283 (large page) advance by the size of an \
                     entry from wherever the range began, not to the end of that entry",
            why: "The call says Ok, the owner gives the frame to another program, and the hardware still lets the old one read \
                  and write it. Ranges with holes are what demand paging makes.",
        at: &[],
        must: &[Kind::Disagreement],
            may: &[],
        }
        .found(&machine);
    }
}

fn part_of_a_large_page() {
    let (machine, _current, mut table) = empty();
    map(&mut table, LARGE, LARGE_FRAME, LARGE);
    table.unmap(VirtAddr::from_usize(LARGE + 5 * PAGE), PAGE).expect("a mapped page");
    machine.expect(0, LARGE as u64, Some(Expected::at(LARGE_FRAME)));
    end(&machine, table);
    Defect {
        title: "unmap of one page in a large page takes all 512",
        source: "page-table-generic 0.9.1, src/map.rs:276 clears the whole entry (protect_region splits it, src/table.rs:1909)",
        why: "The other 511 pages fault from now on, although the caller did not ask for that and the call said Ok; the caller that \
              keeps account of frames believes them mapped.",
        at: &[],
        must: &[Kind::Disagreement],
        may: &[],
    }
    .found(&machine);
}

fn right() {
    let (machine, _current, mut table) = empty();
    map(&mut table, LARGE, LARGE_FRAME, LARGE);
    map(&mut table, 2 * LARGE, FRAME, PAGE);
    table.protect_region(VirtAddr::from_usize(LARGE + 5 * PAGE), PAGE, READ_ONLY).expect("a mapped page");
    assert!(machine.access(0, (LARGE + 5 * PAGE) as u64, Access::WRITE).is_err());
    machine.expect(0, LARGE as u64, Some(Expected::at(LARGE_FRAME).in_page_of(PAGE as u64)));
    table.unmap(VirtAddr::from_usize(LARGE), LARGE + PAGE).expect("a range that begins where an entry does");
    machine.expect(0, 2 * LARGE as u64, None);
    end(&machine, table);
    silent("protect_region in a large page, unmap of a range that begins where an entry does", &machine);
}

fn end(machine: &Machine, table: Table) {
    machine.leave(0);
    drop(table);
}

fn main() {
    begins_in_a_hole();
    part_of_a_large_page();
    right();
}
