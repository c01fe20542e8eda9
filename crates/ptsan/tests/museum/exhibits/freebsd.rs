//! The pmap of FreeBSD for amd64.
use super::Exhibit;
use super::format::Format;
use super::machine::{LARGE, Machine, PAGE, Setup, four};
use ptsan::{Flush, Kind, Rule};

pub const PCID_GENERATION: Exhibit = Exhibit {
    name: "freebsd-pcid-generation",
    numbers: "FreeBSD-EN-22:04.pcid, a165b4591e48",
    project: "FreeBSD",
    year: 2022,
    pattern: false,
    kind: Kind::StaleUse,
    rules: &[Rule::Unmapped],
    check: "accesses under way, looked at again when the operation ends",
    setup: Setup { asids: true, ..four(Format::X86) },
    model: pcid_generation,
};

/// CPUs that run in the space get an interrupt. For the others their generation is cleared, so that
/// they flush when they come back. It is cleared after the interrupts: a CPU that comes back in
/// between is in neither set.
fn pcid_generation(m: &mut Machine, broken: bool) {
    let (space, other) = (m.space(), m.space());
    m.everywhere(space);
    m.work();
    let va = m.address();
    let phys = m.map(space, va);
    let at = m.entry(space, va, 0);
    m.touch_everywhere(space, va);
    let (back, _) = m.two_cpus();
    m.switch(back, other);
    m.work();
    let mut valid = vec![true; m.cpus()];
    m.step(|m| {
        let unmapping = m.begin();
        m.exchange(at, 0);
        if !broken {
            valid[back] = false;
        }
        for cpu in (0..m.cpus()).filter(|&cpu| cpu != back) {
            m.flush(cpu, Flush::page(space, va));
        }
        m.switch(back, space);
        if !valid[back] {
            m.flush(back, Flush::space(space));
        }
        let _ = m.touch(back, va);
        m.end(unmapping);
    });
    m.flush(back, Flush::space(space));
    m.free_frame(phys);
    m.work();
}

pub const PROMOTION: Exhibit = Exhibit {
    name: "freebsd-promotion",
    numbers: "FreeBSD r312954",
    project: "FreeBSD",
    year: 2017,
    pattern: false,
    kind: Kind::StaleUse,
    rules: &[Rule::Unmapped],
    check: "small translations beside a large one: a flush of one address drops one of them",
    setup: four(Format::X86),
    model: promotion,
};

/// 512 pages become one large page, and TLBs keep the small translations, which say the same. When
/// the large page goes, one `INVLPG` drops it, and the small translation of one address.
fn promotion(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let start = m.address() & !(LARGE - 1);
    let large = m.large_frame();
    let directory = m.entry(space, start, 1);
    let table = m.table(0);
    for n in 0..512 {
        m.poke(table + n * 8, m.format.page(large + n * PAGE));
    }
    m.write(directory, m.format.table(table));
    let small = start + (1 + m.below(511)) * PAGE;
    m.touch_everywhere(space, small);
    // The table stays in reserve.
    m.exchange(directory, m.format.large(large));
    m.work();
    let (user, _) = m.two_cpus();
    m.step(|m| {
        m.exchange(directory, 0);
        let whole = Flush::range(space, start, start + LARGE, PAGE);
        m.flush_everywhere(if broken { Flush::page(space, start) } else { whole });
        let _ = m.touch(user, small);
    });
    m.work();
}

pub const INVLPGB_STRIDE: Exhibit = Exhibit {
    name: "freebsd-invlpgb-stride",
    numbers: "FreeBSD-EN-26:10.amd64",
    project: "FreeBSD",
    year: 2026,
    pattern: false,
    kind: Kind::DataFreedBeforeFlush,
    rules: &[Rule::DataNotFlushed],
    check: "the stride of a flush by range",
    setup: four(Format::X86),
    model: invlpgb_stride,
};

/// A range of the kernel is flushed in steps of 2 MiB, as if the step said how much each flush
/// drops. The hardware drops the page at each address, of whatever size it is.
fn invlpgb_stride(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let start = m.address() & !(LARGE - 1);
    let mut pages = Vec::new();
    for block in 0..1 + m.below(3) {
        let va = start + block * LARGE + (1 + m.below(511)) * PAGE;
        pages.push((m.entry(space, va, 0), m.map(space, va)));
        m.touch_everywhere(space, va);
    }
    m.step(|m| {
        let unmapping = m.begin();
        for &(at, _) in &pages {
            m.exchange(at, 0);
        }
        let end = start + pages.len() as u64 * LARGE;
        m.flush_everywhere(Flush::range(space, start, end, if broken { LARGE } else { PAGE }));
        pages.iter().for_each(|&(_, phys)| m.free_frame(phys));
        m.end(unmapping);
    });
    m.work();
}
