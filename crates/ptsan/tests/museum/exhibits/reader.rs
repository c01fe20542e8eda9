//! Software that walks tables without a lock, and data that its locks should protect.
use super::Exhibit;
use super::format::Format;
use super::machine::{LARGE, Machine, PAGE, Setup, four};
use ptsan::{Flush, Kind, Rule};

pub const GUP_FAST: Exhibit = Exhibit {
    name: "hugetlb-gup-fast",
    numbers: "CVE-2025-38085",
    project: "Linux",
    year: 2025,
    pattern: false,
    kind: Kind::FreeUnderReader,
    rules: &[Rule::HeldByReader],
    check: "tables that a reader without a lock may have reached, at table_freed",
    setup: four(Format::X86),
    model: gup_fast,
};

/// Two processes share a table. One drops it; the other is gone already, so that the table may
/// serve another process. A lockless walk of the first, which the flush did not end, is still in
/// it.
fn gup_fast(m: &mut Machine, broken: bool) {
    let (first, second) = (m.space(), m.space());
    m.everywhere(first);
    m.work();
    let va = m.address();
    let phys = m.map(first, va);
    let (directory, table) = (m.entry(first, va, 1), m.entry(first, va, 0) & !(PAGE - 1));
    let other = m.entry(second, va, 1);
    m.write(other, m.format.table(table));
    m.touch_everywhere(first, va);
    m.write(other, 0);
    m.flush_everywhere(Flush::space(second));
    m.step(|m| {
        let walk = m.reader(first);
        m.exchange(directory, 0);
        let start = va & !(LARGE - 1);
        m.flush_everywhere(Flush::range(first, start, start + LARGE, PAGE));
        if !broken {
            // A message to all CPUs waits for the walk, which has interrupts off.
            m.reader_ends(walk);
        }
        m.free_frame(phys);
        m.free_table(table);
        if broken {
            m.reader_ends(walk);
        }
    });
    m.work();
}

pub const MIGRATE: Exhibit = Exhibit {
    name: "migrate-device-unlocked",
    numbers: "60bae7370896",
    project: "Linux",
    year: 2022,
    pattern: false,
    kind: Kind::FlushMissing,
    rules: &[Rule::ReleasedBeforeFlush],
    check: "flushes that are owed when the lock of a table is released",
    setup: Setup { locks: true, ..four(Format::X86) },
    model: migrate,
};

/// Entries are cleared under the lock of their table, and flushed after it is released. Who takes
/// the lock in between, for `madvise`, finds no page and has nothing to flush.
fn migrate(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let phys = m.map(space, va);
    let at = m.entry(space, va, 0);
    m.guard(at & !(PAGE - 1));
    m.touch_everywhere(space, va);
    m.step(|m| {
        m.take_locks();
        m.exchange(at, 0);
        if !broken {
            m.flush_everywhere(Flush::page(space, va));
        }
        m.release_locks();
        if broken {
            m.flush_everywhere(Flush::page(space, va));
        }
    });
    m.free_frame(phys);
    m.work();
}
