//! Guests of Xen whose tables the hypervisor walks and checks.
use super::Exhibit;
use super::format::Format;
use super::machine::{LARGE, Machine, PAGE, Setup, four};
use ptsan::{Flush, Kind, Rule};

pub const LARGE_PAGE_BIT: Exhibit = Exhibit {
    name: "xen-large-page-bit",
    numbers: "XSA-148, CVE-2015-7835",
    project: "Xen",
    year: 2015,
    pattern: false,
    kind: Kind::TableMapped,
    rules: &[Rule::TableWritable],
    check: "frames that an entry maps writable to user mode, against the tables",
    setup: four(Format::X86),
    model: large_page_bit,
};

/// A guest changes an entry of its directory. An update that keeps the address and changes flags is
/// not checked again, and the bit for a large page is taken for a flag: the guest's own table, and
/// all tables beside it, become memory that it may write.
fn large_page_bit(m: &mut Machine, broken: bool) {
    let guest = m.space();
    m.everywhere(guest);
    m.work();
    let start = m.address() & !(LARGE - 1);
    let directory = m.entry(guest, start, 1);
    // A table at the start of a block.
    m.dirty_table_in(LARGE, 0);
    m.clear(LARGE);
    m.write(directory, m.format.table(LARGE));
    let leaf = LARGE + m.below(512) * 8;
    let phys = m.frame();
    m.write(leaf, m.format.page(phys));
    m.touch_everywhere(guest, start);
    m.step(|m| {
        let (old, new) = (m.get(directory), m.format.large(LARGE));
        let same_address = old & !0xfff == new & !0xfff;
        let checked_again = !same_address || !broken;
        let allowed = new & 0x80 == 0;
        if !checked_again || allowed {
            m.exchange(directory, new);
        }
    });
    m.flush_everywhere(Flush::space(guest));
    m.work();
}

pub const LINEAR_TABLES: Exhibit = Exhibit {
    name: "xen-linear-tables",
    numbers: "XSA-286, CVE-2020-27674, 16a20963b320",
    project: "Xen",
    year: 2020,
    pattern: false,
    kind: Kind::StaleUse,
    rules: &[Rule::Remapped],
    check: "accesses through a root that points at itself",
    setup: Setup { recursive: true, ..four(Format::X86) },
    model: linear_tables,
};

/// The entry of the root that points at the root.
const LINEAR: u64 = 510;

/// A guest puts another table into its directory and invalidates the address. The hypervisor finds
/// tables through a root that points at itself, and there the old table is still translated.
fn linear_tables(m: &mut Machine, broken: bool) {
    let guest = m.space();
    let root = m.root(guest);
    m.write(root + LINEAR * 8, m.format.table(root));
    m.everywhere(guest);
    m.work();
    let va = m.address();
    let old = m.map(guest, va);
    let directory = m.entry(guest, va, 1);
    let table = m.table(0);
    m.poke(m.at(table, 0, va), m.format.page(old));
    // The address at which the table of `va` is found.
    let window = 0xffff << 48 | LINEAR << 39 | va >> 9 & !(PAGE - 1);
    m.touch_everywhere(guest, va);
    m.touch_everywhere(guest, window);
    let (user, _) = m.two_cpus();
    m.step(|m| {
        m.exchange(directory, m.format.table(table));
        m.flush_everywhere(Flush::page(guest, va));
        if !broken {
            m.flush_everywhere(Flush::space(guest));
        }
        let _ = m.touch(user, window);
    });
    m.work();
}

pub const IOMMU_DEFERRAL: Exhibit = Exhibit {
    name: "xen-iommu-deferral",
    numbers: "XSA-346, CVE-2020-27671",
    project: "Xen",
    year: 2020,
    pattern: true,
    kind: Kind::DataReusedBeforeFlush,
    rules: &[Rule::DataNotFlushed],
    check: "debts of pages, due at frame_reused",
    setup: Setup { devices: 2, ..four(Format::X86) },
    model: iommu_deferral,
};

/// The flushes of many removals are put off and made one. The references to the pages are not: each
/// page may be given to somebody else while the device can still reach it.
fn iommu_deferral(m: &mut Machine, broken: bool) {
    let guest = m.space();
    m.attach_all(guest);
    m.work();
    let start = m.address();
    let n = 2 + m.below(6);
    let mut pages = Vec::new();
    for va in (0..n).map(|page| start + page * PAGE) {
        pages.push((m.entry(guest, va, 0), m.map(guest, va)));
        m.touch_by_devices(va);
    }
    m.step(|m| {
        let mut held = Vec::new();
        for (at, phys) in pages {
            m.exchange(at, 0);
            if broken {
                m.reuse_frame(phys);
            } else {
                held.push(phys);
            }
        }
        m.flush_devices(Flush::range(guest, start, start + n * PAGE, PAGE));
        held.into_iter().for_each(|phys| m.reuse_frame(phys));
    });
    m.work();
}

pub const WRONG_VARIABLE: Exhibit = Exhibit {
    name: "xen-wrong-variable",
    numbers: "XSA-408, CVE-2022-33745",
    project: "Xen",
    year: 2022,
    pattern: false,
    kind: Kind::DataReusedBeforeFlush,
    rules: &[Rule::DataMadeTable],
    check: "debts of pages, due when their frame is announced as a table",
    setup: four(Format::X86),
    model: wrong_variable,
};

/// The flush depends on the entry that was there before. The line moved behind the store, and its
/// variable means the entry of now there. The page becomes one of the guest's tables.
fn wrong_variable(m: &mut Machine, broken: bool) {
    let guest = m.space();
    m.everywhere(guest);
    m.work();
    let va = m.address();
    let phys = m.map(guest, va);
    let at = m.entry(guest, va, 0);
    m.touch_everywhere(guest, va);
    m.step(|m| {
        let before = m.exchange(at, 0);
        let asked = if broken { m.get(at) } else { before };
        if asked & 1 != 0 {
            m.flush_everywhere(Flush::page(guest, va));
        }
        m.dirty_table_in(phys, 0);
    });
    m.clear(phys);
    m.work();
}
