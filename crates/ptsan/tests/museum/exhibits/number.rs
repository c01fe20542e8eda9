//! Numbers of address spaces (PCID, ASID) that stand for more than one thing.
use super::Exhibit;
use super::format::Format;
use super::machine::{Machine, Setup, four};
use ptsan::{Flush, Kind, Rule};

pub const SHADOW_PCID: Exhibit = Exhibit {
    name: "xen-shadow-pcid",
    numbers: "XSA-294, CVE-2019-17348",
    project: "Xen",
    year: 2019,
    pattern: false,
    kind: Kind::FlushMissing,
    rules: &[Rule::NumberReused],
    check: "a number that stands for another root, on a CPU that used the old one",
    setup: Setup { asids: true, ..four(Format::X86) },
    model: shadow_pcid,
};

/// Builds a second tree with other pages at the same address, and returns its root and the entry.
fn second_tree(m: &mut Machine, va: u64) -> (u64, u64) {
    let root = m.table(m.top());
    let at = m.entry_below(root, va, 0);
    let phys = m.frame();
    m.write(at, m.format.page(phys));
    (root, at)
}

/// A virtual CPU gets another shadow table under the same PCID. Without PCIDs the load of the root
/// was the flush; with them it keeps everything, and the next access finds the old table.
fn shadow_pcid(m: &mut Machine, broken: bool) {
    let guest = m.space();
    m.everywhere(guest);
    m.work();
    let va = m.address();
    m.map(guest, va);
    m.touch_everywhere(guest, va);
    let (root, at) = second_tree(m, va);
    let (cpu, frame) = (m.two_cpus().0, m.frame());
    m.step(|m| {
        m.switch_to(cpu, root, guest);
        if !broken {
            m.flush(cpu, Flush::space(guest));
        }
        // The new shadow is brought up to date.
        m.write(at, m.format.page(frame));
        m.flush(cpu, Flush::page(guest, va));
        let _ = m.touch(cpu, va);
    });
}

pub const SHARED_ASID: Exhibit = Exhibit {
    name: "asterinas-shared-asid",
    numbers: "asterinas PR #3673",
    project: "Asterinas (RISC-V)",
    year: 2026,
    pattern: false,
    kind: Kind::FlushMissing,
    rules: &[Rule::NumberReused],
    check: "a number that stands for another root, at the first access after the switch",
    setup: Setup { asids: true, ..four(Format::RiscV) },
    model: shared_asid,
};

/// All spaces have the same ASID. A store to `satp` is no flush, so the pages of one process stay
/// valid in the next.
fn shared_asid(m: &mut Machine, broken: bool) {
    let shared = m.space();
    m.everywhere(shared);
    m.work();
    let va = m.address();
    m.map(shared, va);
    m.touch_everywhere(shared, va);
    let (root, _) = second_tree(m, va);
    let (cpu, _) = m.two_cpus();
    m.step(|m| {
        m.switch_to(cpu, root, shared);
        if !broken {
            m.flush(cpu, Flush::space(shared));
        }
        let _ = m.touch(cpu, va);
    });
}

pub const NOT_GLOBAL: Exhibit = Exhibit {
    name: "phoenix-not-global",
    numbers: "phoenix-rtos-kernel PR #829",
    project: "Phoenix-RTOS (ARMv7)",
    year: 2026,
    pattern: false,
    kind: Kind::FlushMissing,
    rules: &[Rule::UnmapNotFlushed],
    check: "the number that a flush by address names, and debts that are due at the return to a space",
    setup: Setup { asids: true, ..four(Format::Arm) },
    model: not_global,
};

/// The bit that limits an entry to its space.
const NG: u64 = 1 << 11;

/// A page of the kernel is mapped in all spaces, but not as global: a TLB has it under the number
/// of the process that ran. The unmap flushes it under the number of the process that runs.
fn not_global(m: &mut Machine, broken: bool) {
    let (first, second) = (m.space(), m.space());
    m.everywhere(first);
    m.work();
    // The kernel's part of the tree, and one table for it in both.
    let va = m.address() + (1 << 30);
    let at = m.entry(first, va, 0);
    let (link, shared) = (m.entry(second, va, m.top()), m.entry(first, va, m.top()));
    m.write(link, m.get(shared));
    let phys = m.frame();
    m.write(at, m.format.page(phys) & if broken { !0 } else { !NG });
    m.touch_everywhere(first, va);
    m.everywhere(second);
    m.work();
    let (back, _) = m.two_cpus();
    m.step(|m| {
        let unmapping = m.begin();
        m.exchange(at, 0);
        m.flush_everywhere(Flush::page(second, va));
        m.end(unmapping);
        m.switch(back, first);
        let _ = m.touch(back, va);
    });
}
