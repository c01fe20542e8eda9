//! Pages and tables that move: the old place is flushed too late.
use super::Exhibit;
use super::format::Format;
use super::machine::{LARGE, Machine, PAGE, four};
use ptsan::{Flush, Kind, Rule};

pub const LATE_FLUSH: Exhibit = Exhibit {
    name: "mremap-late-flush",
    numbers: "CVE-2018-18281, eb66ae030829",
    project: "Linux",
    year: 2018,
    pattern: false,
    kind: Kind::DataFreedBeforeFlush,
    rules: &[Rule::DataNotFlushed],
    check: "debts of pages, due at frame_freed although the operation that owes them is under way",
    setup: four(Format::X86),
    model: late_flush,
};

/// Both page-table locks are dropped before the old address is flushed. In between, another CPU
/// truncates the file: it finds the page at its new address, flushes that, and frees the page.
fn late_flush(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let (old, new) = m.two_addresses();
    let phys = m.map(space, old);
    let (from, to) = (m.entry(space, old, 0), m.entry(space, new, 0));
    m.touch_everywhere(space, old);
    m.step(|m| {
        let moving = m.begin();
        let page = m.exchange(from, 0);
        m.write(to, page);
        if !broken {
            m.flush_everywhere(Flush::page(space, old));
        }
        let truncating = m.begin();
        m.exchange(to, 0);
        m.flush_everywhere(Flush::page(space, new));
        m.free_frame(phys);
        m.end(truncating);
        if broken {
            m.flush_everywhere(Flush::page(space, old));
        }
        m.end(moving);
    });
    m.work();
}

pub const MOVED_TABLE: Exhibit = Exhibit {
    name: "mremap-moved-table",
    numbers: "CVE-2022-41222, 97113eb39fa7",
    project: "Linux",
    year: 2021,
    pattern: false,
    kind: Kind::StaleUse,
    rules: &[Rule::Unmapped],
    check: "accesses compared with memory: a translation that is gone",
    setup: four(Format::X86),
    model: moved_table,
};

/// A whole table is moved by one entry of its directory. The reverse map shows the page at its new
/// address before the old one is flushed; who takes the page away flushes the new address.
fn moved_table(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let (old, new) = m.two_addresses();
    let phys = m.map(space, old);
    let new = new & !(LARGE - 1) | old & (LARGE - 1);
    let (from, to) = (m.entry(space, old, 1), m.entry(space, new, 1));
    let (leaf, start) = (m.entry(space, old, 0), old & !(LARGE - 1));
    m.touch_everywhere(space, old);
    let (_, user) = m.two_cpus();
    m.step(|m| {
        let whole = Flush::range(space, start, start + LARGE, PAGE);
        let table = m.exchange(from, 0);
        if !broken {
            m.flush_everywhere(whole);
        }
        m.write(to, table);
        m.exchange(leaf, 0);
        m.flush_everywhere(Flush::page(space, new));
        let _ = m.touch(user, old);
        if broken {
            m.flush_everywhere(whole);
        }
        m.free_frame(phys);
    });
    m.work();
}
