//! Memory that a machine fills in blocks or huge pages is dense, although it has few faults.
use crate::advise::{BASE, EXEC, advice, kinds, made_with, map, piece, reason, write};
use ptarmigan_trace::{HugePages, Kind, MapFlags, Prot};
use serde_json::Value;

const REGIONS: u64 = 40;
const PAGES: u64 = REGIONS * 512;

/// Returns the advice on a program that maps memory by `calls`, and writes one page of each `step`
/// pages, on a machine with huge pages and with a setting of blocks of 64 KiB.
fn advised(name: &str, huge: HugePages, blocks: &str, calls: &[Kind], step: u64) -> Value {
    let events = |writer: &mut ptarmigan_trace::Writer<Vec<u8>>| {
        writer.setting("hugepages-64kB/enabled", blocks).expect("a setting");
        let writes = (0..PAGES).step_by(step as usize).map(|page| write(BASE + page));
        let kinds = [EXEC].into_iter().chain(calls.iter().copied()).chain(writes);
        kinds.chain([Kind::Exit { last: true }]).map(|kind| (0, kind)).collect()
    };
    let trace = made_with(name, |header| header.huge = huge, 0, events);
    advice(&trace.0, &["--for", "program"])
}

#[test]
fn blocks_that_fill_tables_are_not_spread() {
    let memory = [map(BASE, PAGES)];
    let dense = advised("blocks-dense", HugePages::Never, "always", &memory, 16);
    assert_eq!(kinds(&dense), [""; 0], "{dense:#}");
    assert_eq!(
        reason(&dense, "sparse-layout"),
        "no program spreads few pages of its own mappings over many tables"
    );
    let why = reason(&dense, "huge-pages");
    let said = "40 aligned regions were touched, of 2 MiB each, and none is full by faults on single pages; \
                1,280 faults mapped several pages each";
    assert_eq!(why, said);
    // The same faults without blocks leave most of each table empty, as one block in each does.
    let sparse = advised("blocks-none", HugePages::Never, "never", &memory, 16);
    assert_eq!(kinds(&sparse), ["sparse-layout"], "{sparse:#}");
    let single = advised("blocks-single", HugePages::Never, "always", &memory, 512);
    let title = &piece(&single, "sparse-layout")["title"];
    assert_eq!(title, "keep pages together: 640 pages are spread over 40 tables: blocks-single");
}

#[test]
fn huge_pages_are_not_spread() {
    let asks = Kind::Madvise { start: BASE, pages: PAGES, advice: libc::MADV_HUGEPAGE as u16 };
    for (name, huge, calls, kind) in [
        ("huge-asked", HugePages::Advised, &[map(BASE, PAGES), asks][..], [""; 0].as_slice()),
        ("huge-always", HugePages::Always, &[map(BASE, PAGES)], &[]),
        ("huge-never", HugePages::Never, &[map(BASE, PAGES), asks], &["sparse-layout"]),
        ("huge-not-asked", HugePages::Advised, &[map(BASE, PAGES)], &["sparse-layout"]),
    ] {
        let report = advised(name, huge, "never", calls, 512);
        assert_eq!(kinds(&report), kind, "{name}: {report:#}");
    }
    // MAP_HUGETLB.
    let flags = MapFlags(MapFlags::ANON | MapFlags::HUGE_ONLY);
    let own = Kind::Mmap { start: BASE, pages: PAGES, prot: Prot(3), flags };
    let report = advised("huge-only", HugePages::Never, "never", &[own], 512);
    assert_eq!(kinds(&report), [""; 0], "{report:#}");
}
