//! `page_table_multiarch` frees tables while a loaded root points at them, in two ways around
//! `copy_from`.
//!
//! ```sh
//! cargo run -p ptsan --features page_table_multiarch_copy_from --example page_table_multiarch_copy_from
//! ```
#[path = "shared/verdict.rs"]
mod verdict;

use memory_addr::{PhysAddr, VirtAddr};
use page_table_multiarch::x86_64::X64PageTable;
use page_table_multiarch::{MappingFlags, PageSize};
use ptsan::adapters::Machine;
use ptsan::adapters::page_table_multiarch::{Handler, edit};
use ptsan::{Access, Arch, Config, Kind};
use verdict::{Defect, silent};

type Table = X64PageTable<Handler>;

const VA: usize = 0x7000;
/// The bytes that one entry of the root spans.
const ROOT_ENTRY: usize = 1 << 39;

/// Creates a table that maps one page.
fn with_a_page(frame: usize) -> Table {
    let mut table = Table::try_new().expect("a machine has frames");
    let flags = MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER;
    let (va, frame) = (VirtAddr::from_usize(VA), PhysAddr::from_usize(frame));
    edit(&mut table, |cursor| cursor.map(va, frame, PageSize::Size4K, flags)).expect("the page is free");
    table
}

/// Loads the table on CPU 0 and reads the page.
fn load_and_use(machine: &Machine, table: &Table) {
    machine.load(0, table.root_paddr().as_usize() as u64, 1);
    let _ = machine.access(0, VA as u64, Access::READ);
}

/// Replaces the mappings below the first entry of the root of `table` by those of `source`.
fn copy(table: &mut Table, source: &Table) {
    edit(table, |cursor| cursor.copy_from(source, VirtAddr::from_usize(0), ROOT_ENTRY));
}

fn old_tables_first() {
    let machine = Machine::new(Config::new(Arch::x86_64()));
    let _current = machine.enter();
    let mut table = with_a_page(0x123_4000);
    let source = with_a_page(0x567_8000);
    load_and_use(&machine, &table);
    copy(&mut table, &source);
    Defect {
        title: "copy_from frees the old tables while the root still points at them",
        source: "page_table_multiarch 0.6.2, src/bits64.rs:599 deallocates, :601 replaces the entry; the flush comes when the \
                 cursor is dropped (the same at src/bits32.rs:515)",
        why: "Between the two lines the walker reaches freed tables from the live root; until the flush it holds them \
              in its paging-structure cache. The allocator may have reused them by then.",
        at: &["bits64.rs:599:"],
        must: &[Kind::FreeWhileLinked, Kind::FreeBeforeFlush],
        may: &[],
    }
    .found(&machine);
    machine.leave(0);
    drop((table, source));
}

fn source_dropped_first() {
    let machine = Machine::new(Config::new(Arch::x86_64()));
    let _current = machine.enter();
    let mut table = Table::try_new().expect("a machine has frames");
    let source = with_a_page(0x567_8000);
    copy(&mut table, &source);
    load_and_use(&machine, &table);
    drop(source);
    let reused = with_a_page(0x999_9000);
    let _ = machine.access(0, VA as u64 + 0x1000, Access::READ);
    Defect {
        title: "a table that was copied from can be dropped while the copy is loaded",
        source: "page_table_multiarch 0.6.2, src/bits64.rs:578 takes the source by a reference that ends with the call, :601 \
                 copies its entry, :307 frees what it points at",
        why: "copy_from is a safe function without a condition on the source, and nothing ties the two tables together. \
              After the drop the loaded root leads to frames that have another owner.",
        at: &["bits64.rs:307:"],
        must: &[Kind::FreeWhileLinked, Kind::FreeBeforeFlush, Kind::ReuseBeforeFlush],
        may: &[Kind::UseAfterFree, Kind::LinkedBeforeCleared, Kind::WalkLoop, Kind::StaleUse],
    }
    .found(&machine);
    machine.leave(0);
    drop((table, reused));
}

fn right() {
    let machine = Machine::new(Config::new(Arch::x86_64()));
    let _current = machine.enter();
    let mut table = Table::try_new().expect("a machine has frames");
    let source = with_a_page(0x567_8000);
    machine.load(0, table.root_paddr().as_usize() as u64, 1);
    copy(&mut table, &source);
    assert!(machine.access(0, VA as u64, Access::READ).is_ok());
    machine.leave(0);
    drop(table);
    drop(source);
    machine.finish();
    silent("copy_from into an empty range, the source dropped last", &machine);
}

fn main() {
    old_tables_first();
    source_dropped_first();
    right();
}
