//! Entries from before they were valid, which CPUs may keep.
use super::Exhibit;
use super::format::Format;
use super::machine::{LARGE, Machine, PAGE, Setup, four};
use ptsan::{Access, Flush, Kind, Rule};

pub const NEW_PAGE: Exhibit = Exhibit {
    name: "bao-new-page",
    numbers: "bao-hypervisor PR #378",
    project: "Bao (RISC-V)",
    year: 2026,
    pattern: false,
    kind: Kind::StaleUse,
    rules: &[Rule::InvalidKept],
    check: "Config::keeps_invalid: a second fault of a CPU on an entry that is valid by now",
    setup: Setup { keeps_invalid: true, ..four(Format::RiscV) },
    model: new_page,
};

const KERNEL: Access = Access::WRITE.kernel();

/// A page is mapped and cleared. A hart has walked for the address before, and keeps the entry that
/// was empty then: the store faults, and it faults again when it is repeated.
fn new_page(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let at = m.entry(space, va, 0);
    let (hart, _) = m.two_cpus();
    let _ = m.touch_as(hart, va, KERNEL);
    m.step(|m| {
        let phys = m.frame();
        m.write(at, m.format.page(phys));
        if !broken {
            m.flush_everywhere(Flush::space(space));
        }
        let _ = m.touch_as(hart, va, KERNEL);
        let _ = m.touch_as(hart, va, KERNEL);
    });
    m.work();
}

pub const NEW_TABLE: Exhibit = Exhibit {
    name: "edk2-new-table",
    numbers: "EDK II 2025.02, RiscVMmuLib",
    project: "EDK II (RISC-V)",
    year: 2025,
    pattern: true,
    kind: Kind::StaleUse,
    rules: &[Rule::InvalidKept],
    check: "Config::keeps_invalid: a link, of which a flush by address says nothing",
    setup: Setup { keeps_invalid: true, ..four(Format::RiscV) },
    model: new_table,
};

/// A table is linked for the first page of a region, and the hart fences the address of that page.
/// The fence is about the entry of the page. The empty entry above it may stay.
fn new_table(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let (one, other) = m.two_addresses();
    let (directory, table) = (m.entry(space, one, 1), m.table(0));
    let (hart, _) = m.two_cpus();
    let page = one & !(LARGE - 1) | (other & (LARGE - 1));
    let _ = m.touch_as(hart, page, KERNEL);
    m.step(|m| {
        let phys = m.frame();
        m.poke(table + page % LARGE / PAGE * 8, m.format.page(phys));
        m.write(directory, m.format.table(table));
        m.flush_everywhere(if broken { Flush::page(space, page) } else { Flush::space(space) });
        let _ = m.touch_as(hart, page, KERNEL);
        let _ = m.touch_as(hart, page, KERNEL);
    });
    m.work();
}

pub const HUGE_LEVEL: Exhibit = Exhibit {
    name: "hugetlb-level",
    numbers: "\"Fix flush_hugetlb_tlb_range() invalidation level\"",
    project: "Linux (arm64)",
    year: 2025,
    pattern: false,
    kind: Kind::FlushMissing,
    rules: &[Rule::RestrictNotFlushed],
    check: "Flush::level: a flush that names another level drops nothing",
    setup: four(Format::Arm),
    model: huge_level,
};

/// The permissions of a large page change, and the flush by address names the level of small pages
/// in its operand. Hardware need not look for a large one.
fn huge_level(m: &mut Machine, broken: bool) {
    /// The page is read-only.
    const READ_ONLY: u64 = 1 << 7;
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address() & !(LARGE - 1);
    let (at, large) = (m.entry(space, va, 1), m.large_frame());
    m.write(at, m.format.large(large));
    m.touch_everywhere(space, va);
    m.work();
    m.step(|m| {
        let protecting = m.begin();
        m.exchange(at, m.format.large(large) | READ_ONLY);
        m.flush_everywhere(Flush::page(space, va).leaf_only().level(if broken { 0 } else { 1 }));
        m.end(protecting);
    });
    m.work();
}
