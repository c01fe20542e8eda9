//! `page-table-generic` frees tables before the flush: on unmap, when a mapping call is rolled
//! back, and when root entries are shared.
//!
//! `cargo run -p ptsan --features page-table-generic --example page_table_generic_unmap`
#[path = "shared/verdict.rs"]
mod verdict;

use page_table_generic::{PageTable, PagingError, PhysAddr, VirtAddr};
use ptsan::adapters::page_table_generic::{READ_WRITE, X64, flush};
use ptsan::adapters::{Current, Machine};
use ptsan::{Access, Arch, Config, Kind};
use verdict::{Defect, silent};

type Table = PageTable<X64, Machine>;

const VA: usize = 0x7000;
const PAGE: usize = 4096;

/// Makes two CPUs run in a table without mappings. The second one's walker walks for [`VA`] by
/// itself.
fn empty() -> (Machine, Current, Table) {
    let machine = Machine::new(Config { cpus: 2, ..Config::new(Arch::x86_64()) });
    let current = machine.enter();
    let table = Table::new(machine.clone()).expect("a machine has frames");
    for cpu in 0..2 {
        machine.load(cpu, table.root_paddr().as_usize() as u64, 1);
    }
    machine.walk_ahead(1, VA as u64);
    (machine, current, table)
}

fn with_a_page() -> (Machine, Current, Table) {
    let (machine, current, mut table) = empty();
    table
        .map_page(VirtAddr::from_usize(VA), PhysAddr::from_usize(0x123_4000), PAGE, READ_WRITE)
        .expect("the page is free");
    machine.access(0, VA as u64, Access::READ).expect("the page is mapped");
    (machine, current, table)
}

fn unmap() {
    let (machine, _current, mut table) = with_a_page();
    table.unmap(VirtAddr::from_usize(VA), PAGE).expect("the page is mapped");
    Defect {
        title: "unmap frees three tables, and flushes only before it unlinks them",
        source: "page-table-generic 0.9.1, src/map.rs:280 flushes the page, :333 unlinks its table, :334 deallocates",
        why: "The flush comes while the tables are still linked, so the walker may cache the way to them again. Nothing is \
              flushed between unlinking and deallocating. On RISC-V an invalidation by address need not even reach the \
              caches of the upper levels.",
        at: &["src/map.rs:334:"],
        must: &[Kind::FreeBeforeFlush],
        may: &[Kind::UseAfterFree],
    }
    .found(&machine);
    end(&machine, table);
}

fn rollback() {
    let (machine, _current, mut table) = empty();
    let frames = |va: VirtAddr| match va.as_usize() {
        VA => Ok(PhysAddr::from_usize(0x123_4000)),
        _ => Err(PagingError::NoMemory),
    };
    let result = table.map_region_checked(VirtAddr::from_usize(VA), frames, 2 * PAGE, READ_WRITE);
    assert!(result.is_err(), "the second page has no frame");
    Defect {
        title: "a mapping call that fails frees its tables first and flushes at the end",
        source: "page-table-generic 0.9.1, src/table.rs:1149 unmaps the pages made so far with flush: false, which \
                 deallocates at src/map.rs:334; the flush comes at table.rs:1226",
        why: "The tables were live from the first page on, so any CPU may have walked them. They may be allocated again \
              before the flush at the end of the call.",
        at: &["src/table.rs:1149:", "src/map.rs:334:"],
        must: &[Kind::FreeBeforeFlush],
        may: &[Kind::UseAfterFree],
    }
    .found(&machine);
    end(&machine, table);
}

fn share() {
    let (machine, _current, mut table) = with_a_page();
    let mut kernel = Table::new(machine.clone()).expect("a machine has frames");
    kernel
        .map_page(VirtAddr::from_usize(VA), PhysAddr::from_usize(0x567_8000), PAGE, READ_WRITE)
        .expect("the page is free");
    // SAFETY: 1. `kernel` outlives `table`. 2. No call changes or unmaps the shared range through
    // `table`.
    unsafe { table.share_root_entries_from(&kernel, VirtAddr::from_usize(0), 1 << 39) }
        .expect("a root entry");
    Defect {
        title: "sharing a root entry frees its old tables while the root still points at them",
        source: "page-table-generic 0.9.1, src/frame.rs:678 deallocates, :682 clears the entry (dealloc_entry_recursive, called \
                 at src/table.rs:902); the flush comes at table.rs:906",
        why: "The live root leads to freed frames until the entry is cleared, and the CPUs' caches do until the flush. It takes \
              a loaded table with tables of its own in the shared range; the function's Safety section does not exclude \
              that.",
        at: &["src/frame.rs:678:", "src/table.rs:902:"],
        must: &[Kind::FreeWhileLinked, Kind::FreeBeforeFlush],
        may: &[Kind::UseAfterFree],
    }
    .found(&machine);
    end(&machine, table);
    drop(kernel);
}

fn deferred() {
    let (machine, _current, mut table) = with_a_page();
    let (.., tables) = table.unmap_page_deferred(VirtAddr::from_usize(VA)).expect("the page is mapped");
    assert_eq!(tables.len(), 3);
    flush(None);
    // SAFETY: every CPU has flushed.
    unsafe { tables.reclaim() };
    silent("unmap_page_deferred, a flush of everything, then reclaim", &machine);
    end(&machine, table);
}

fn end(machine: &Machine, table: Table) {
    machine.walk_ahead_no_more();
    (0..2).for_each(|cpu| machine.leave(cpu));
    drop(table);
}

fn main() {
    unmap();
    rollback();
    share();
    deferred();
}
