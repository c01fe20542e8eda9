//! The order of a store, a flush and what follows, in code with public corrections.
use super::Exhibit;
use super::format::{ENCRYPTED, Format};
use super::machine::{Machine, PAGE, four};
use ptsan::{Access, Flush, Kind, Rule};

pub const BREAK_BEFORE_MAKE: Exhibit = Exhibit {
    name: "illumos-break-before-make",
    numbers: "illumos-gate PR #220 (richlowe)",
    project: "illumos (AArch64)",
    year: 2026,
    pattern: false,
    kind: Kind::BreakBeforeMake,
    rules: &[Rule::ChangedOutput],
    check: "a valid entry of AArch64 that is replaced by one for another frame",
    setup: four(Format::Arm),
    model: break_before_make,
};

/// A valid entry is exchanged for one with another frame, and flushed after that. On AArch64 an
/// invalid entry and the flush have to come in between.
fn break_before_make(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let (old, new) = (m.map(space, va), m.frame());
    // The content differs.
    m.poke(old, 1);
    m.poke(new, 2);
    let at = m.entry(space, va, 0);
    m.touch_everywhere(space, va);
    m.step(|m| {
        let page = m.format.page(new);
        if broken {
            m.exchange(at, page);
            m.flush_everywhere(Flush::page(space, va));
        } else {
            m.exchange(at, 0);
            m.flush_everywhere(Flush::page(space, va));
            m.write(at, page);
        }
        m.free_frame(old);
    });
    m.work();
}

pub const COPY_ON_WRITE: Exhibit = Exhibit {
    name: "asterinas-copy-on-write",
    numbers: "asterinas PR #862",
    project: "Asterinas",
    year: 2024,
    pattern: false,
    kind: Kind::StaleUse,
    rules: &[Rule::Remapped],
    check: "accesses compared with memory: a translation to another frame",
    setup: four(Format::X86),
    model: copy_on_write,
};

/// The kernel writes to a page that is shared: it maps a copy and writes there. The program reads
/// the old page through its TLB.
fn copy_on_write(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let at = m.entry(space, va, 0);
    let (shared, copy) = (m.frame(), m.frame());
    m.write(at, m.format.page(shared) & !2);
    m.touch_everywhere(space, va);
    let (user, _) = m.two_cpus();
    m.step(|m| {
        m.exchange(at, m.format.page(copy));
        if !broken {
            m.flush_everywhere(Flush::page(space, va));
        }
        let _ = m.touch(user, va);
    });
    m.work();
}

pub const WRITE_PROTECT: Exhibit = Exhibit {
    name: "userfaultfd-write-protect",
    numbers: "6ce64428d620",
    project: "Linux",
    year: 2021,
    pattern: false,
    kind: Kind::StaleUse,
    rules: &[Rule::PermissionRemoved],
    check: "accesses compared with memory: a permission that is gone",
    setup: four(Format::X86),
    model: write_protect,
};

/// A range is write-protected, and flushed at its end. A fault in between copies one of its pages,
/// maps the copy, and flushes. Another CPU writes to the old page after it was copied.
fn write_protect(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let (phys, copy) = (m.map(space, va), m.frame());
    let at = m.entry(space, va, 0);
    m.touch_everywhere(space, va);
    let (writer, _) = m.two_cpus();
    m.step(|m| {
        m.exchange(at, m.format.page(phys) & !2);
        // The fault: its copy has to be that of a page which nobody writes to.
        if !broken {
            m.flush_everywhere(Flush::page(space, va));
        }
        for word in (0..PAGE).step_by(8) {
            m.poke(copy + word, m.get(phys + word));
        }
        let _ = m.touch_as(writer, va, Access::WRITE);
        m.exchange(at, m.format.page(copy));
        m.flush_everywhere(Flush::page(space, va));
    });
    m.free_frame(phys);
    m.work();
}

pub const FREE_FIRST: Exhibit = Exhibit {
    name: "litebox-free-first",
    numbers: "litebox PR #848",
    project: "LiteBox",
    year: 2026,
    pattern: false,
    kind: Kind::DataFreedBeforeFlush,
    rules: &[Rule::DataNotFlushed],
    check: "debts of pages, due at frame_freed although a flush of them follows",
    setup: four(Format::X86),
    model: free_first,
};

/// A range is unmapped: each frame is freed as its entry is cleared, and at the end all CPUs flush.
fn free_first(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let start = m.address();
    let n = 1 + m.below(6);
    let mut pages = Vec::new();
    for va in (0..n).map(|page| start + page * PAGE) {
        pages.push((m.entry(space, va, 0), m.map(space, va)));
        m.touch_everywhere(space, va);
    }
    m.step(|m| {
        let mut later = Vec::new();
        for (at, phys) in pages {
            m.exchange(at, 0);
            if broken {
                m.free_frame(phys);
            } else {
                later.push(phys);
            }
        }
        m.flush_everywhere(Flush::range(space, start, start + n * PAGE, PAGE));
        later.into_iter().for_each(|phys| m.free_frame(phys));
    });
    m.work();
}

pub const SHARED_AGAIN: Exhibit = Exhibit {
    name: "svsm-ghcb-drop",
    numbers: "svsm PR #1188",
    project: "COCONUT-SVSM",
    year: 2026,
    pattern: false,
    kind: Kind::FlushMissing,
    rules: &[Rule::TypeNotFlushed],
    check: "attributes of a page that a store changes: encrypted memory is a memory type",
    setup: four(Format::Encrypted),
    model: shared_again,
};

/// A page that was shared with the hypervisor becomes private again and goes back to the allocator.
/// Without a flush a CPU still writes to it as to a shared page: unencrypted.
fn shared_again(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let at = m.entry(space, va, 0);
    let phys = m.frame();
    m.write(at, m.format.page(phys) & !ENCRYPTED);
    m.touch_everywhere(space, va);
    m.step(|m| {
        let dropping = m.begin();
        m.exchange(at, m.format.page(phys));
        if !broken {
            m.flush_everywhere(Flush::page(space, va));
        }
        m.end(dropping);
    });
    m.work();
}
