//! Devices behind an IOMMU.
use super::Exhibit;
use super::format::Format;
use super::machine::{LARGE, Machine, PAGE, Setup, four};
use ptsan::{Flush, Kind, Rule};

pub const PASID_TABLE: Exhibit = Exhibit {
    name: "vtd-pasid-table",
    numbers: "CVE-2026-45862",
    project: "Linux (VT-d)",
    year: 2026,
    pattern: true,
    kind: Kind::LinkedBeforeCleared,
    rules: &[Rule::OldContent],
    check: "entries from before the allocation in a table that an entry links",
    setup: Setup { devices: 2, ..four(Format::X86) },
    model: pasid_table,
};

/// A table is cleared in the cache of the CPU and linked. The device does not look into that cache:
/// for it the table has old content until the zeros are written back.
fn pasid_table(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.attach_all(space);
    m.work();
    let va = m.address();
    let directory = m.entry(space, va, 1);
    let table = m.frame();
    for _ in 0..1 + m.below(8) {
        let at = table + m.below(512) * 8;
        m.poke(at, m.format.page(0x7000));
    }
    m.step(|m| {
        m.dirty_table_in(table, 0);
        // The zeros reach memory when the cache is flushed: `clear` is that moment.
        if broken {
            m.write(directory, m.format.table(table));
            m.clear(table);
        } else {
            m.clear(table);
            m.write(directory, m.format.table(table));
        }
    });
    m.touch_by_devices(va);
    m.work();
}

pub const COMPLETION_WAIT: Exhibit = Exhibit {
    name: "amd-iommu-completion-wait",
    numbers: "CVE-2026-68329",
    project: "Linux (AMD IOMMU)",
    year: 2026,
    pattern: false,
    kind: Kind::FlushMissing,
    rules: &[Rule::UnmapNotFlushed],
    check: "invalidations in the queue of a device: they pay when they were waited for",
    setup: Setup { devices: 1, ..four(Format::X86) },
    model: completion_wait,
};

/// Two threads queue invalidations. One queues the wait for both; the other sees that a wait is in
/// the queue, and returns as if the device had come to it.
fn completion_wait(m: &mut Machine, broken: bool) {
    let domain = m.space();
    m.attach_all(domain);
    m.work();
    let iova = m.address();
    let phys = m.map(domain, iova);
    let at = m.entry(domain, iova, 0);
    m.touch_by_devices(iova);
    m.step(|m| {
        let unmapping = m.begin();
        m.exchange(at, 0);
        m.queue(0, Flush::page(domain, iova));
        let mut need_sync = true;
        // The other thread queues its wait, and has not come to the end of it.
        need_sync &= false;
        if need_sync || !broken {
            m.wait_for(0);
        }
        m.end(unmapping);
        m.wait_for(0);
    });
    m.free_frame(phys);
    m.work();
}

pub const SVA_KERNEL_TABLE: Exhibit = Exhibit {
    name: "sva-kernel-table",
    numbers: "CVE-2025-71202",
    project: "Linux (x86, SVA)",
    year: 2026,
    pattern: false,
    kind: Kind::FreeBeforeFlush,
    rules: &[Rule::HeldInStructureCache, Rule::HeldByWalker],
    check: "tables in the walk cache of a device at table_freed",
    setup: Setup { devices: 1, ..four(Format::X86) },
    model: sva_kernel_table,
};

/// A device walks the tables of a process, which contain those of the kernel. `vfree` takes a table
/// of the kernel out, flushes all CPUs, and frees it. The device was not told.
fn sva_kernel_table(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.attach_all(space);
    m.work();
    let va = m.address();
    let phys = m.map(space, va);
    let (directory, leaf) = (m.entry(space, va, 1), m.entry(space, va, 0));
    m.touch_everywhere(space, va);
    m.touch_by_devices(va);
    m.step(|m| {
        m.exchange(leaf, 0);
        m.exchange(directory, 0);
        m.flush_everywhere(Flush::page(space, va));
        if !broken {
            m.flush_device(0, Flush::page(space, va));
        }
        m.free_table(leaf & !(PAGE - 1));
        m.flush_device(0, Flush::space(space));
    });
    m.free_frame(phys);
    m.work();
}

pub const CONTEXT_ENTRY: Exhibit = Exhibit {
    name: "vtd-context-entry",
    numbers: "CVE-2026-45944",
    project: "Linux (VT-d)",
    year: 2026,
    pattern: false,
    kind: Kind::TornEntry,
    rules: &[Rule::ChangedInPieces],
    check: "entries of several words that a device may read between two stores",
    setup: Setup { devices: 2, ..four(Format::X86) },
    model: context_entry,
};

/// An entry of two words is torn down word by word, while the bit says that it is present. The
/// device may read it in between.
fn context_entry(m: &mut Machine, broken: bool) {
    let domain = m.space();
    m.attach_all(domain);
    m.work();
    let (device, table) = (m.below(2) as usize, m.frame());
    m.clear(table);
    let (low, high) = (table + m.below(256) * 16, 8);
    m.device_entry(device, low);
    m.write_word(low + high, 2 | (1 + m.root(domain)) << 8);
    m.write_word(low, m.root(domain) | 1);
    m.work();
    m.step(|m| {
        if !broken {
            m.write_word(low, m.get(low) & !1);
            m.flush_device_entry(device, low);
        }
        m.write_word(low + high, 0);
        m.write_word(low, 0);
        m.flush_device_entry(device, low);
    });
    m.work();
}

pub const SHORT_GATHER: Exhibit = Exhibit {
    name: "iommupt-short-gather",
    numbers: "CVE-2026-31735",
    project: "Linux (iommupt)",
    year: 2026,
    pattern: true,
    kind: Kind::FlushMissing,
    rules: &[Rule::UnmapNotFlushed],
    check: "debts of the pages beyond the end of a range that was flushed",
    setup: Setup { devices: 2, ..four(Format::Arm) },
    model: short_gather,
};

/// The entries that hardware may cache as one.
const RUN: u64 = 16;
const CONTIGUOUS: u64 = 1 << 52;

/// An unmap that ends in the middle of a contiguous run takes the whole run away. The gather
/// flushes what was asked for.
fn short_gather(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.attach_all(space);
    m.work();
    let start = m.address() & !(RUN * PAGE - 1);
    let phys = m.large_frame() + m.below(LARGE / PAGE / RUN) * RUN * PAGE;
    let mut run = Vec::new();
    for n in 0..RUN {
        let at = m.entry(space, start + n * PAGE, 0);
        m.write(at, m.format.page(phys + n * PAGE) | CONTIGUOUS);
        run.push(at);
    }
    let asked = 1 + m.below(RUN - 1);
    m.touch_by_devices(start + (RUN - 1) * PAGE);
    m.step(|m| {
        let unmapping = m.begin();
        run.iter().for_each(|&at| {
            m.exchange(at, 0);
        });
        let pages = if broken { asked } else { RUN };
        m.flush_devices(Flush::range(space, start, start + pages * PAGE, PAGE));
        m.end(unmapping);
    });
    m.work();
}
