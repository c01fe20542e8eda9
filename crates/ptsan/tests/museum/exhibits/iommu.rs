//! IOMMUs: CPUs stand for their walkers and IOTLBs.
use super::Exhibit;
use super::format::Format;
use super::machine::{LARGE, Machine, PAGE, four};
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
    setup: four(Format::X86),
    model: pasid_table,
};

/// A table is cleared in the cache of the CPU and linked. The device does not look into that cache:
/// for it the table has old content until the zeros are written back.
fn pasid_table(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
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
    let _ = m.touch(0, va);
    m.work();
}

pub const COMPLETION_WAIT: Exhibit = Exhibit {
    name: "amd-iommu-completion-wait",
    numbers: "CVE-2026-68329",
    project: "Linux (AMD IOMMU)",
    year: 2026,
    pattern: true,
    kind: Kind::FlushMissing,
    rules: &[Rule::UnmapNotFlushed],
    check: "debts of pages, due at operation_ends although the flush comes later",
    setup: four(Format::X86),
    model: completion_wait,
};

/// The commands that the device has not carried out yet.
#[derive(Default)]
struct Queue {
    commands: Vec<Flush>,
    /// A command was queued and no wait behind it.
    need_sync: bool,
}

impl Queue {
    fn push(&mut self, flush: Flush) {
        self.commands.push(flush);
        self.need_sync = true;
    }

    /// Queues a wait for all commands before it.
    fn push_wait(&mut self) {
        self.need_sync = false;
    }

    fn carry_out(&mut self, m: &mut Machine) {
        for flush in self.commands.drain(..) {
            m.flush_everywhere(flush);
        }
    }
}

/// Two threads queue invalidations. One queues the wait for both; the other sees that a wait is in
/// the queue, and returns as if the device had come to it.
fn completion_wait(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = m.address();
    let phys = m.map(space, va);
    let at = m.entry(space, va, 0);
    m.touch_everywhere(space, va);
    m.step(|m| {
        let mut queue = Queue::default();
        let unmapping = m.begin();
        m.exchange(at, 0);
        queue.push(Flush::page(space, va));
        // The other thread.
        queue.push_wait();
        if queue.need_sync || !broken {
            queue.carry_out(m);
        }
        m.end(unmapping);
        queue.carry_out(m);
    });
    m.free_frame(phys);
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
    setup: four(Format::Arm),
    model: short_gather,
};

/// The entries that hardware may cache as one.
const RUN: u64 = 16;
const CONTIGUOUS: u64 = 1 << 52;

/// An unmap that ends in the middle of a contiguous run takes the whole run away. The gather flushes
/// what was asked for.
fn short_gather(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
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
    m.touch_everywhere(space, start + (RUN - 1) * PAGE);
    m.step(|m| {
        let unmapping = m.begin();
        run.iter().for_each(|&at| {
            m.exchange(at, 0);
        });
        let pages = if broken { asked } else { RUN };
        m.flush_everywhere(Flush::range(space, start, start + pages * PAGE, PAGE));
        m.end(unmapping);
    });
    m.work();
}
