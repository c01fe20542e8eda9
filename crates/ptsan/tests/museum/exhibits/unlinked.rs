//! Tables that are freed while a walker still knows them.
use super::Exhibit;
use super::format::Format;
use super::machine::{LARGE, Machine, PAGE, four};
use ptsan::{Flush, Kind, Rule};

pub const LEAF_SFENCE: Exhibit = Exhibit {
    name: "riscv-leaf-sfence",
    numbers: "8246601a7d39",
    project: "Linux (RISC-V)",
    year: 2024,
    pattern: false,
    kind: Kind::FreeBeforeFlush,
    rules: &[Rule::HeldInStructureCache, Rule::HeldByWalker],
    check: "StructureScope::WholeSpace: a flush by address drops no tables",
    setup: four(Format::RiscV),
    model: leaf_sfence,
};

/// The pages of a table are flushed by address, and the table is freed. `SFENCE.VMA` with an
/// address orders leaf entries alone; for the entry above a whole space has to be flushed.
fn leaf_sfence(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let phys = m.map(space, va);
    let (directory, leaf) = (m.entry(space, va, 1), m.entry(space, va, 0));
    m.touch_everywhere(space, va);
    m.step(|m| {
        let unmapping = m.begin();
        m.exchange(leaf, 0);
        m.exchange(directory, 0);
        m.flush_everywhere(if broken { Flush::page(space, va) } else { Flush::space(space) });
        m.free_frame(phys);
        m.free_table(leaf & !(PAGE - 1));
        m.end(unmapping);
    });
    m.work();
}

pub const EPT_DEFERRED: Exhibit = Exhibit {
    name: "xen-ept-deferred",
    numbers: "XSA-480, CVE-2026-23554",
    project: "Xen",
    year: 2026,
    pattern: false,
    kind: Kind::FreeBeforeFlush,
    rules: &[Rule::HeldInStructureCache, Rule::HeldByWalker],
    check: "tables of extended paging in paging-structure caches at table_freed",
    setup: four(Format::Ept),
    model: ept_deferred,
};

/// Changes under the lock of a guest's memory are flushed once, when the lock is dropped. Tables
/// are freed at once.
fn ept_deferred(m: &mut Machine, broken: bool) {
    let guest = m.space();
    m.everywhere(guest);
    m.work();
    let start = m.address() & !(LARGE - 1);
    let changes = 1 + m.below(3);
    let mut blocks = Vec::new();
    for gpa in (0..changes).map(|n| start + n * LARGE) {
        let phys = m.map(guest, gpa);
        m.touch_everywhere(guest, gpa);
        blocks.push((m.entry(guest, gpa, 1), m.entry(guest, gpa, 0) & !(PAGE - 1), phys));
    }
    m.step(|m| {
        let mut tables = Vec::new();
        for &(directory, table, _) in &blocks {
            m.exchange(directory, 0);
            if broken {
                m.free_table(table);
            } else {
                tables.push(table);
            }
        }
        // The lock is dropped: INVEPT on every CPU.
        m.flush_everywhere(Flush::space(guest));
        tables.into_iter().for_each(|table| m.free_table(table));
        blocks.iter().for_each(|&(.., phys)| m.free_frame(phys));
    });
    m.work();
}

pub const STALE_DIRECTORY: Exhibit = Exhibit {
    name: "nanvix-stale-directory",
    numbers: "nanvix PR #2244",
    project: "Nanvix",
    year: 2026,
    pattern: false,
    kind: Kind::FreeBeforeFlush,
    rules: &[Rule::UnlinkNotFlushed, Rule::HeldByWalker, Rule::HeldInStructureCache],
    check: "debts of tables that CPUs may have walked to again since their last flush",
    setup: four(Format::X86),
    model: stale_directory,
};

/// The last page of a table is unmapped and flushed. Then the table is found empty, its entry is
/// cleared without a flush, and the table is freed. A walker may have read the entry again.
fn stale_directory(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let phys = m.map(space, va);
    let (directory, leaf) = (m.entry(space, va, 1), m.entry(space, va, 0));
    m.touch_everywhere(space, va);
    let (_, reader) = m.two_cpus();
    m.step(|m| {
        m.exchange(leaf, 0);
        m.flush_everywhere(Flush::page(space, va));
        m.free_frame(phys);
        let _ = m.touch(reader, va);
        m.exchange(directory, 0);
        if !broken {
            m.flush_everywhere(Flush::page(space, va));
        }
        m.free_table(leaf & !(PAGE - 1));
    });
    // The address is used again, with another table.
    m.map(space, va);
    m.touch_everywhere(space, va);
}
