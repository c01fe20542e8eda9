//! Frames that are given away while an entry still maps them.
use super::Exhibit;
use super::format::Format;
use super::machine::{LARGE, Machine, PAGE, four};
use ptsan::{Flush, Kind, Rule};

pub const SUPERPAGE: Exhibit = Exhibit {
    name: "pkvm-superpage-unmap",
    numbers: "pKVM-IA #104, #106",
    project: "pKVM on Intel",
    year: 2026,
    pattern: true,
    kind: Kind::DataReusedBeforeFlush,
    rules: &[Rule::DataStillMapped],
    check: "entries that map a frame at frame_reused, large pages too",
    setup: four(Format::X86),
    model: superpage,
};

/// A host asks to unmap one page inside a large page. The walk goes on below the large page: it
/// takes the host's data for a table, clears an entry that the host has put there, and gives the
/// page that it names to a guest. The large page still maps it.
fn superpage(m: &mut Machine, broken: bool) {
    let host = m.space();
    m.everywhere(host);
    m.work();
    let start = m.address() & !(LARGE - 1);
    let directory = m.entry(host, start, 1);
    m.write(directory, m.format.large(LARGE));
    let page = m.below(512);
    let target = LARGE + (1 + m.below(511)) * PAGE;
    m.poke(LARGE + page * 8, m.format.page(target));
    m.touch_everywhere(host, start + page * PAGE);
    m.step(|m| {
        let entry = m.get(directory);
        let is_table = entry & 0x80 == 0;
        if is_table || broken {
            let table = entry & !0xfff;
            let unmapped = m.exchange(table + page * 8, 0);
            m.flush_everywhere(Flush::page(host, start + page * PAGE));
            m.reuse_frame(unmapped & !0xfff);
        }
    });
    m.work();
}

pub const DANGLING: Exhibit = Exhibit {
    name: "xnu-dangling-entry",
    numbers: "CVE-2023-23536, CVE-2023-32434",
    project: "XNU",
    year: 2023,
    pattern: true,
    kind: Kind::DataFreedBeforeFlush,
    rules: &[Rule::DataStillMapped],
    check: "entries that map a frame at frame_freed",
    setup: four(Format::X86),
    model: dangling,
};

/// The pages of an object are freed by one computation of its size, and its entries are removed by
/// another, which loses the last page: an entry without an owner maps a free frame.
fn dangling(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let start = m.address();
    let n = 2 + m.below(4);
    let mut pages = Vec::new();
    for va in (0..n).map(|page| start + page * PAGE) {
        pages.push((m.entry(space, va, 0), m.map(space, va)));
        m.touch_everywhere(space, va);
    }
    let size = (n - 1) * PAGE + 1 + m.below(PAGE - 1);
    m.step(|m| {
        let mapped = if broken { size / PAGE } else { size.div_ceil(PAGE) };
        for &(at, _) in pages.iter().take(mapped as usize) {
            m.exchange(at, 0);
        }
        m.flush_everywhere(Flush::range(space, start, start + n * PAGE, PAGE));
        pages.iter().for_each(|&(_, phys)| m.free_frame(phys));
    });
}
