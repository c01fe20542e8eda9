//! CPUs that a shootdown takes for uninvolved: lazy ones, and one in the middle of a switch.
use super::Exhibit;
use super::format::Format;
use super::machine::{LARGE, Machine, PAGE, Setup, four};
use ptsan::{Flush, Kind, Rule};

pub const COLLAPSE_LAZY: Exhibit = Exhibit {
    name: "collapse-lazy-cpu",
    numbers: "CVE-2025-22045, 3ef938c35035",
    project: "Linux (x86)",
    year: 2025,
    pattern: false,
    kind: Kind::FreeBeforeFlush,
    rules: &[Rule::HeldInStructureCache, Rule::HeldByWalker],
    check: "tables in paging-structure caches at table_freed, of a lazy CPU",
    setup: four(Format::X86),
    model: collapse_lazy,
};

/// A table is taken out so that a large page can come in its place. The flush is that of a range of
/// pages and does not say that a table goes, so lazy CPUs are spared. Their walkers are not lazy.
fn collapse_lazy(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let start = m.address() & !(LARGE - 1);
    let mut pages = Vec::new();
    for _ in 0..2 + m.below(4) {
        let va = start + m.below(512) * PAGE;
        if !pages.iter().any(|&(old, _)| old == va) {
            pages.push((va, m.map(space, va)));
            m.touch_everywhere(space, va);
        }
    }
    let (directory, table) = (m.entry(space, start, 1), m.entry(space, start, 0));
    let (large, (lazy, _)) = (m.large_frame(), m.two_cpus());
    m.lazy(lazy);
    m.step(|m| {
        let collapsing = m.begin();
        m.exchange(directory, 0);
        let frees_tables = !broken;
        for cpu in (0..m.cpus()).filter(|&cpu| cpu != lazy || frees_tables) {
            m.flush(cpu, Flush::range(space, start, start + LARGE, PAGE));
        }
        m.free_table(table);
        for (_, phys) in pages {
            m.free_frame(phys);
        }
        m.end(collapsing);
    });
    m.write(directory, m.format.large(large));
    m.resume(lazy);
    // It catches up.
    m.flush(lazy, Flush::space(space));
    m.touch_everywhere(space, start);
}

pub const SWITCHING: Exhibit = Exhibit {
    name: "switching-cpu-skipped",
    numbers: "CVE-2025-37964, fea4e317f9e7",
    project: "Linux (x86)",
    year: 2025,
    pattern: false,
    kind: Kind::FlushMissing,
    rules: &[Rule::UnmapNotFlushed],
    check: "debts of pages of a CPU that loaded the root just before the store",
    setup: Setup { asids: true, ..four(Format::X86) },
    model: switching,
};

/// A CPU loads a root and writes down afterwards which space it runs in. A shootdown in between
/// reads the note and leaves the CPU out.
fn switching(m: &mut Machine, broken: bool) {
    let (space, other) = (m.space(), m.space());
    m.everywhere(space);
    m.work();
    let va = m.address();
    let phys = m.map(space, va);
    let at = m.entry(space, va, 0);
    m.touch_everywhere(space, va);
    let (late, _) = m.two_cpus();
    m.switch(late, other);
    m.work();
    m.step(|m| {
        // It checks that nothing was flushed since it left, and loads the root as it is. What it
        // runs in is still unknown.
        m.switch(late, space);
        let unmapping = m.begin();
        m.exchange(at, 0);
        let gets_it = |cpu| cpu != late || !broken;
        for cpu in (0..m.cpus()).filter(|&cpu| gets_it(cpu)) {
            m.flush(cpu, Flush::page(space, va));
        }
        m.end(unmapping);
    });
    m.flush(late, Flush::page(space, va));
    m.free_frame(phys);
    m.work();
}
