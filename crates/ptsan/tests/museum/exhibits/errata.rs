//! Processors that forget less than their architecture says.
use super::Exhibit;
use super::format::Format;
use super::machine::{Machine, Setup, four};
use ptsan::{Errata, Flush, Kind, Rule};

pub const REPEAT_TLBI: Exhibit = Exhibit {
    name: "arm64-repeat-tlbi",
    numbers: "CVE-2025-10263, CVE-2026-53354, cfd391e74134",
    project: "Linux (arm64)",
    year: 2026,
    pattern: false,
    kind: Kind::DataFreedBeforeFlush,
    rules: &[Rule::DataNotFlushed],
    check: "Errata::dsb_misses_stores: a barrier that does not wait for stores of other CPUs",
    setup: Setup { barriers: true, errata: misses_stores, ..four(Format::Arm) },
    model: repeat_tlbi,
};

fn misses_stores() -> Errata {
    Errata { dsb_misses_stores: true, ..Errata::default() }
}

/// `TLBI; DSB` removes the translation and returns before the stores are visible that another CPU
/// has made through it. They may land in a page that was freed.
fn repeat_tlbi(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let phys = m.map(space, va);
    let at = m.entry(space, va, 0);
    m.order();
    m.touch_everywhere(space, va);
    m.step(|m| {
        m.exchange(at, 0);
        m.order();
        m.flush_everywhere(Flush::page(space, va));
        m.order();
        if !broken {
            // Of any address.
            m.flush_everywhere(Flush::page(space, 0));
            m.order();
        }
        m.free_frame(phys);
    });
    m.work();
}

pub const SPARED_GLOBALS: Exhibit = Exhibit {
    name: "intel-invlpg-globals",
    numbers: "ce0b15d11ad8",
    project: "Linux (x86)",
    year: 2023,
    pattern: false,
    kind: Kind::DataFreedBeforeFlush,
    rules: &[Rule::DataNotFlushed],
    check: "Errata::invlpg_spares_globals: an invalidation by address that leaves global pages",
    setup: Setup { asids: true, errata: spares_globals, ..four(Format::X86) },
    model: spared_globals,
};

fn spares_globals() -> Errata {
    Errata { invlpg_spares_globals: true, ..Errata::default() }
}

const GLOBAL: u64 = 1 << 8;

/// The kernel unmaps a global page and sends `INVLPG` to all CPUs. Some processors keep global
/// pages then, if PCIDs are on.
fn spared_globals(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let (at, phys) = (m.entry(space, va, 0), m.frame());
    m.write(at, m.format.page(phys) | GLOBAL);
    m.touch_everywhere(space, va);
    m.step(|m| {
        m.exchange(at, 0);
        m.flush_everywhere(if broken { Flush::page_in_every_space(va) } else { Flush::all() });
        m.free_frame(phys);
    });
    m.work();
}
