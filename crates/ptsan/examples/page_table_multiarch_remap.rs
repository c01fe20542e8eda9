//! `page_table_multiarch` remaps a large page to an address that no large page can have.
//!
//! `cargo run -p ptsan --features page_table_multiarch --example page_table_multiarch_remap`
#[path = "shared/verdict.rs"]
mod verdict;

use memory_addr::{PhysAddr, VirtAddr};
use page_table_multiarch::x86_64::X64PageTable;
use page_table_multiarch::{MappingFlags, PageSize};
use ptsan::adapters::Machine;
use ptsan::adapters::page_table_multiarch::{Handler, edit};
use ptsan::{Access, Arch, Config, Kind};
use verdict::{Defect, silent};

const LARGE: usize = 0x20_0000;
/// A page in the large page.
const VA: usize = LARGE + 0x5000;

/// Maps a large page, uses it, and remaps the page at [`VA`] to `frame`, as a copy-on-write fault
/// does.
fn remap(frame: usize) -> Machine {
    let machine = Machine::new(Config::new(Arch::x86_64()));
    let current = machine.enter();
    let mut table = X64PageTable::<Handler>::try_new().expect("a machine has frames");
    machine.load(0, table.root_paddr().as_usize() as u64, 1);
    let flags = MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER;
    let (va, large) = (VirtAddr::from_usize(LARGE), PhysAddr::from_usize(0x4000_0000));
    edit(&mut table, |cursor| cursor.map(va, large, PageSize::Size2M, flags)).expect("the page is free");
    machine.access(0, VA as u64, Access::READ).expect("the page is mapped");

    let (va, frame) = (VirtAddr::from_usize(VA), PhysAddr::from_usize(frame));
    let size = edit(&mut table, |cursor| cursor.remap(va, frame, flags));
    assert_eq!(size, Ok(PageSize::Size2M), "the call says that it went well");
    let _ = machine.access(0, VA as u64, Access::READ);
    machine.leave(0);
    drop(table);
    drop(current);
    machine.finish();
    machine
}

fn main() {
    Defect {
        title: "remap of a large page stores an address with reserved bits",
        source: "page_table_multiarch 0.6.2, src/bits64.rs:396 (map aligns the frame down at :377, remap does not)",
        why: "In an entry of a 2 MiB page the bits below the size are reserved: the next access to any of the 512 pages raises \
              a reserved-bit fault, and the call has returned Ok.",
        at: &[],
        must: &[Kind::MalformedEntry],
        may: &[],
    }
    .found(&remap(0x123_4000));
    silent("remap to a frame of the large size", &remap(0x8000_0000));
}
