//! Processors that forget less than their architecture says.
use ptsan::{Arch, Barrier, Config, Errata, Flush, Kind, Session};

type Run = Session<Vec<u8>>;

/// Whether a page at the start of memory, mapped by one entry of the root, was given back too
/// early, and the report.
fn given_back_early(config: Config, page: u64, flushes: impl Fn(&mut Run)) -> (bool, String) {
    let mut s = Session::with(Config { asids: true, ..config }, vec![0u8; 1 << 16]);
    s.alloc(0x1000);
    s.put(0x1000, page);
    s.load(0x1000);
    s.put(0x1000, 0);
    flushes(&mut s);
    s.frame_freed(0x9000);
    (s.sanitizer.count(Kind::DataFreedBeforeFlush) == 1, s.sanitizer.to_string())
}

/// Runs the same flushes without an erratum, which must be enough, and with it, which must not.
fn only_with(errata: Errata, config: Config, page: u64, name: &str, flushes: impl Fn(&mut Run)) {
    let (early, report) = given_back_early(config.clone(), page, &flushes);
    assert!(!early, "{report}");
    let (early, report) = given_back_early(Config { errata, ..config }, page, &flushes);
    assert!(early && report.replace("\n    ", " ").contains(name), "{report}");
}

fn never_with(errata: Errata, config: Config, page: u64, flushes: impl Fn(&mut Run)) {
    let (early, report) = given_back_early(Config { errata, ..config }, page, flushes);
    assert!(!early, "{report}");
}

fn flush(s: &mut Run, flush: Flush) {
    let Session { sanitizer, memory, .. } = s;
    sanitizer.flush(memory, 0, flush);
}

#[test]
fn invalidation_by_address_spares_global_pages_with_pcids() {
    let errata = Errata { invlpg_spares_globals: true, ..Errata::default() };
    let (x86, page) = (Config::new(Arch::x86_2level()), 0x183);
    only_with(errata, x86.clone(), page, "Errata::invlpg_spares_globals", |s| {
        flush(s, Flush::page(0x1000, 0))
    });
    only_with(errata, x86.clone(), page, "", |s| s.flush(0));
    let range = Flush::range(0x1000, 0, 0x40_0000, 0x1000);
    let (early, report) = given_back_early(Config { errata, ..x86.clone() }, page, |s| flush(s, range));
    assert!(early, "{report}");
    never_with(errata, x86.clone(), page, |s| flush(s, Flush::all()));
    // Pages that are not global go.
    never_with(errata, x86, 0x083, |s| flush(s, Flush::page(0x1000, 0)));
}

#[test]
fn a_fence_by_address_or_number_drops_nothing() {
    let errata = Errata { sfence_drops_only_all: true, ..Errata::default() };
    let (riscv, page) = (Config::new(Arch::riscv_sv39()), 0xcf);
    for selective in [Flush::page(0x1000, 0), Flush::space(0x1000), Flush::page_in_every_space(0)] {
        let name = "Errata::sfence_drops_only_all";
        only_with(errata, riscv.clone(), page, name, |s| flush(s, selective));
    }
    never_with(errata, riscv, page, |s| flush(s, Flush::all()));
    // It is no erratum of others.
    never_with(errata, Config::new(Arch::x86_2level()), 0x083, |s| flush(s, Flush::page(0x1000, 0)));
}

#[test]
fn a_barrier_misses_stores_until_the_invalidation_is_repeated() {
    let errata = Errata { dsb_misses_stores: true, ..Errata::default() };
    let arm = Config { barriers: true, ..Config::new(Arch::aarch64_4k(39)) };
    let (page, dsb) = (0x441, |s: &mut Run| s.barrier(Barrier::Data));
    let once = |s: &mut Run| {
        dsb(s);
        flush(s, Flush::page(0x1000, 0));
        dsb(s);
    };
    only_with(errata, arm.clone(), page, "Errata::dsb_misses_stores", once);
    only_with(errata, arm.clone(), page, "Errata::dsb_misses_stores", |s| {
        once(s);
        dsb(s); // a barrier alone does not help,
    });
    only_with(errata, arm.clone(), page, "Errata::dsb_misses_stores", |s| {
        once(s);
        flush(s, Flush::page(0x1000, 0x8000_0000)); // nor another invalidation that nobody waits for
    });
    never_with(errata, arm, page, |s| {
        once(s);
        flush(s, Flush::page(0x1000, 0x8000_0000)); // of any address
        dsb(s);
    });
}
