//! Flushes that are gathered for later, and code that does not wait for them.
use super::Exhibit;
use super::format::Format;
use super::machine::{LARGE, Machine, PAGE, four};
use ptsan::{Flush, Kind, Rule};

pub const PFNMAP: Exhibit = Exhibit {
    name: "munmap-pfnmap",
    numbers: "CVE-2022-39188, b67fbebd4cf9",
    project: "Linux",
    year: 2022,
    pattern: false,
    kind: Kind::DataFreedBeforeFlush,
    rules: &[Rule::DataNotFlushed],
    check: "debts of pages, due at frame_freed by another operation than the one that owes them",
    setup: four(Format::X86),
    model: pfnmap,
};

/// `munmap` clears the entries of a device's mapping, takes the area out of the reverse map, and
/// flushes later. The driver looks for mappings to revoke, finds no area, and frees its pages.
fn pfnmap(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let device = m.map(space, va);
    let at = m.entry(space, va, 0);
    m.touch_everywhere(space, va);
    m.step(|m| {
        let unmapping = m.begin();
        m.exchange(at, 0);
        if !broken {
            m.flush_everywhere(Flush::page(space, va));
        }
        // The area is out of the reverse map: the driver has nothing to clear or to flush.
        let revoking = m.begin();
        m.free_frame(device);
        m.end(revoking);
        if broken {
            m.flush_everywhere(Flush::page(space, va));
        }
        m.end(unmapping);
    });
    m.work();
}

pub const RECLAIM_BATCH: Exhibit = Exhibit {
    name: "reclaim-batch",
    numbers: "3ea277194daa",
    project: "Linux",
    year: 2017,
    pattern: false,
    kind: Kind::FlushMissing,
    rules: &[Rule::UnmapNotFlushed],
    check: "debts of stores outside operations, due when any operation ends",
    setup: four(Format::X86),
    model: reclaim_batch,
};

/// Reclaim clears entries and leaves the flush to the end of its batch. `mprotect` comes in
/// between, finds no page at the address, and returns without a flush: writes go on through the
/// TLB.
fn reclaim_batch(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let phys = m.map(space, va);
    let at = m.entry(space, va, 0);
    m.touch_everywhere(space, va);
    m.step(|m| {
        m.exchange(at, 0);
        let mut batched = true;
        let protecting = m.begin();
        if !broken && batched {
            m.flush_everywhere(Flush::page(space, va));
            batched = false;
        }
        // There is no page whose rights could be taken away.
        m.end(protecting);
        if batched {
            m.flush_everywhere(Flush::page(space, va));
        }
        m.free_frame(phys);
    });
    m.work();
}

pub const SLOW_PATH: Exhibit = Exhibit {
    name: "table-batch-slow-path",
    numbers: "d86564a2f085",
    project: "Linux",
    year: 2018,
    pattern: false,
    kind: Kind::FreeBeforeFlush,
    rules: &[Rule::HeldInStructureCache, Rule::HeldByWalker],
    check: "tables in paging-structure caches at table_freed, of a CPU that runs in the space",
    setup: four(Format::X86),
    model: slow_path,
};

/// Tables wait in a batch for the flush. If memory for the batch cannot be had, a table is freed at
/// once: the code waits for walkers of software, and forgets those of the CPUs.
fn slow_path(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let start = m.address() & !(LARGE - 1);
    let tables = 2 + m.below(3);
    // From this table on the batch cannot grow.
    let full = m.below(tables);
    let mut unmapped = Vec::new();
    for va in (0..tables).map(|n| start + n * LARGE) {
        let phys = m.map(space, va);
        m.touch_everywhere(space, va);
        unmapped.push((m.entry(space, va, 1), m.entry(space, va, 0) & !(PAGE - 1), phys));
    }
    m.step(|m| {
        let whole = Flush::range(space, start, start + tables * LARGE, PAGE);
        let unmapping = m.begin();
        let mut batch = Vec::new();
        for (n, &(directory, table, _)) in unmapped.iter().enumerate() {
            m.exchange(directory, 0);
            if n as u64 >= full {
                if !broken {
                    m.flush_everywhere(whole);
                }
                m.free_table(table);
            } else {
                batch.push(table);
            }
        }
        m.flush_everywhere(whole);
        batch.into_iter().for_each(|table| m.free_table(table));
        unmapped.iter().for_each(|&(.., phys)| m.free_frame(phys));
        m.end(unmapping);
    });
    m.work();
}
