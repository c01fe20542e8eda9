//! The tables of every machine are those that the numbers of its pages ask for.
use super::{history, shipped};
use crate::input::schedule::{CpuMap, Schedule};
use crate::input::trace::{PackedKind, Trace};
use crate::instruments::sanitize::Sanitized;
use crate::platform::{Direct, Hashed, Platform, RecordedX86, Walked};
use crate::setup::Setup;
use crate::workers::job::Job;
use crate::workers::watch::watches;
use ptarmigan::addr::VirtRange;
use ptarmigan::format::{
    Aarch64, Aarch64K16, Aarch64K64, Format, I386, Ia64, LoongArch64, Sparc64, Sv32, Sv39, Sv48, Sv57,
    X86_64La57, X86Pae,
};
use ptarmigan::machine::On;
use ptarmigan::page::Level;
use ptarmigan::params::UserPte;
use ptarmigan::quicklist::{Layered, Policy};
use ptarmigan::space::Space;
use ptarmigan_hosted::Delivery;
use ptarmigan_ptsan::{Broadcasting, Fencing, Interrupting, MmuTraits, Refilled, Watchable};
use ptarmigan_trace::Kind;
use ptsan::{Adversary, Config};
use std::cell::RefCell;
use std::collections::BTreeSet;

const MEMORY: u64 = 256 << 20;

/// A space at the end of a replay.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LeftSpace {
    /// The addresses of its pages.
    pages: Vec<u64>,
    /// Its areas, as addresses.
    areas: Vec<(u64, u64)>,
    /// Tables by level, without the root.
    tables: Vec<usize>,
}

/// Replays a trace, and returns the spaces that are left.
fn left<P: Platform>(platform: &P, trace: &Trace) -> Vec<LeftSpace> {
    let schedule = Schedule::new(trace, CpuMap::new(trace.cpus, trace.cpus), true);
    let setup = Setup::new(platform, Job::new(trace, &schedule), MEMORY);
    let fresh = setup.fresh().expect("a host");
    let lists = fresh.quicklists().expect("lists");
    let mmus = platform.mmus(trace.cpus, None).expect("MMUs");
    let machine = fresh.machine(&lists as &dyn Policy, P::mmu(&mmus), Delivery::AtOnce).expect("a machine");
    let left = RefCell::new(Vec::new());
    let look = |on: On<'_, _>, space: &Space<P::Format>| {
        let all = VirtRange::up_to(P::Format::USER_END);
        let (mut pages, mut areas) = (Vec::new(), Vec::new());
        space.tree().walk(on, all, |va, _, _| pages.push(va.0)).expect("of this machine");
        space.areas().each(on, all, |area| areas.push((area.start, area.end))).expect("of this machine");
        let tables = (0..P::Format::LAYOUT.root().0).map(|level| space.tree().count(Level(level)) as usize);
        left.borrow_mut().push(LeftSpace { pages, areas, tables: tables.collect() });
    };
    fresh.run_and_look(&machine, Vec::new(), None, &look).expect("it ends, and all frames are back");
    left.into_inner()
}

/// The tables that pages need: by level, one for each part of the address space in which there is
/// a page.
fn model<F: Format>(pages: &[u64]) -> Vec<usize> {
    let tables =
        |level| pages.iter().map(|va| va >> F::shift(Level(level + 1))).collect::<BTreeSet<_>>().len();
    let mut all: Vec<_> = (0..F::LAYOUT.root().0).map(tables).collect();
    if let (true, Some(last)) = (F::ROOT_IN_REGISTERS, all.last_mut()) {
        // A root in registers has all of its tables from the beginning.
        *last = F::USER_ROOT_ENTRIES;
    }
    all
}

/// Returns the trace up to an event, as the machine is given it.
fn prepared<P: Platform>(platform: &P, trace: &Trace, events: usize) -> (Trace, Trace) {
    let mut recorded = trace.clone();
    platform.room().map(|room| recorded.relayout(room)).transpose().expect("it fits");
    recorded.leave_counts_out();
    recorded.steps.truncate(events);
    let mut rounded = recorded.clone();
    rounded.round(P::Format::PAGE_SHIFT);
    (recorded, rounded)
}

/// Rounds the addresses of pages down to pages of `F`.
fn round<F: Format>(pages: &[u64]) -> Vec<u64> {
    let all: BTreeSet<u64> = pages.iter().map(|va| va >> F::PAGE_SHIFT << F::PAGE_SHIFT).collect();
    all.into_iter().collect()
}

/// Replays the fixture up to each event that ends a space. The pages must be those that the same
/// events map on x86-64, and the tables those that these pages need.
fn check<P: Platform>(platform: &P) {
    let trace = shipped("fixture");
    let (all, _) = prepared(platform, &trace, usize::MAX);
    let ends = |n: &usize| match all.steps[*n].what {
        PackedKind::Rare(rare) => matches!(all.rare[rare as usize], Kind::Exit { .. } | Kind::Exec { .. }),
        _ => false,
    };
    let mut checked = 0;
    for end in (0..all.steps.len()).filter(ends) {
        let (recorded, rounded) = prepared(platform, &trace, end);
        let wanted = left(&RecordedX86::RECORDED, &recorded);
        let found = left(platform, &rounded);
        let pages = |spaces: &[LeftSpace]| -> BTreeSet<_> {
            spaces.iter().map(|space| round::<P::Format>(&space.pages)).collect()
        };
        assert_eq!(pages(&found), pages(&wanted), "{} at event {end}", P::Format::NAME);
        for space in found {
            let name = P::Format::NAME;
            assert_eq!(space.tables, model::<P::Format>(&space.pages), "{name} at event {end}");
            checked += space.tables[0];
        }
    }
    assert!(checked > 40, "{}: {checked} tables", P::Format::NAME);
}

macro_rules! each_machine {
    ($($test:ident $machine:expr;)*) => { $(
        #[test]
        fn $test() {
            check(&$machine);
        }
    )* };
}

each_machine! {
    tables_of_x86_64 RecordedX86::RECORDED;
    tables_of_i386 Walked::<I386, _>::small(UserPte::NoHigh);
    tables_of_i386_pae Walked::<X86Pae, _>::small(UserPte::NoHigh);
    tables_of_ppc32 Hashed::new(&crate::ReplayArgs { memory: MEMORY, ..Default::default() }).expect("it fits");
    tables_of_x86_64_5 Direct::<X86_64La57, Interrupting>::with(MEMORY).expect("it fits");
    tables_of_sv32 Direct::<Sv32, Fencing>::with(MEMORY).expect("it fits");
    tables_of_sv39 Direct::<Sv39, Fencing>::with(MEMORY).expect("it fits");
    tables_of_sv48 Direct::<Sv48, Fencing>::with(MEMORY).expect("it fits");
    tables_of_sv57 Direct::<Sv57, Fencing>::with(MEMORY).expect("it fits");
    tables_of_aarch64_4k Direct::<Aarch64, Broadcasting>::with(MEMORY).expect("it fits");
    tables_of_aarch64_16k Direct::<Aarch64K16, Broadcasting>::with(MEMORY).expect("it fits");
    tables_of_aarch64_64k Direct::<Aarch64K64, Broadcasting>::with(MEMORY).expect("it fits");
    tables_of_loongarch64 Direct::<LoongArch64, Refilled>::with(MEMORY).expect("it fits");
    tables_of_ia64 Direct::<Ia64, Refilled>::with(MEMORY).expect("it fits");
    tables_of_sparc64 Direct::<Sparc64, Refilled>::with(MEMORY).expect("it fits");
}

/// The pages that areas reach.
fn reached<F: Format>(space: &LeftSpace) -> Vec<u64> {
    let pages = |&(start, end): &(u64, u64)| start >> F::PAGE_SHIFT..end.div_ceil(1 << F::PAGE_SHIFT);
    let all: BTreeSet<u64> = space.areas.iter().flat_map(pages).collect();
    all.into_iter().collect()
}

/// Replays random histories: a page has an area if a recorded page in it has one.
fn check_areas<P: Platform>(platform: &P) {
    for seed in 1..=60 {
        let mut trace = history(seed);
        for kind in &mut trace.rare {
            // To a place within a page that differs from the old one, and larger or smaller.
            if let Kind::Mremap { from, to, new_pages, .. } = kind {
                (*to, *new_pages) = (*to + *from % 5, *new_pages + *from % 4 - (*new_pages).min(2));
            }
        }
        let (recorded, rounded) = prepared(platform, &trace, usize::MAX);
        let reached = |spaces: Vec<LeftSpace>| {
            let mut all: Vec<_> = spaces.iter().map(reached::<P::Format>).collect();
            all.sort();
            all
        };
        let wanted = reached(left(&RecordedX86::RECORDED, &recorded));
        let found = reached(left(platform, &rounded));
        let counts = |spaces: &[Vec<u64>]| spaces.iter().map(Vec::len).collect::<Vec<_>>();
        let name = P::Format::NAME;
        assert_eq!(counts(&found), counts(&wanted), "{name}, seed {seed}");
        assert!(found == wanted, "{name}, seed {seed}: as many pages, but not the same ones");
    }
}

#[test]
fn areas_of_random_histories_are_rounded_and_none_is_lost() {
    check_areas(&Direct::<Aarch64K16, Broadcasting>::with(4 << 30).expect("it fits"));
    check_areas(&Direct::<Aarch64K64, Broadcasting>::with(4 << 30).expect("it fits"));
}

/// Replays the fixture under a sanitizer whose CPUs walk tables at any time, as MMUs of the format
/// may, whatever the machine's traits say. Returns its
/// findings, and the pages that could not be used right after their fault.
fn findings<P: Platform>(platform: &P) -> u64 {
    (1..=5).map(|seed| findings_with(platform, seed)).sum()
}

fn findings_with<P: Platform>(platform: &P, seed: u64) -> u64 {
    let (_, trace) = prepared(platform, &shipped("fixture"), usize::MAX);
    let schedule = Schedule::new(&trace, CpuMap::new(trace.cpus, trace.cpus), true);
    let setup = Setup::new(platform, Job::new(&trace, &schedule), MEMORY);
    let fresh = setup.fresh().expect("a host");
    let config = Config {
        cpus: trace.cpus,
        eager_walkers: true,
        adversary: Some(Adversary { seed, rate: 500 }),
        barriers: P::Traits::BROADCASTS,
        keeps_invalid: false,
        ..Config::new(P::Format::arch())
    };
    let sanitized = Sanitized::new(platform.sanitizer(fresh.host(), config).expect("a sanitizer"));
    let mmus = platform.mmus(trace.cpus, Some(sanitized.mmu())).expect("MMUs");
    {
        let layered = Layered::new(sanitized.mmu(), fresh.quicklists().expect("lists")).map_err(|e| e.error);
        let layered = layered.expect("layers");
        let machine =
            fresh.machine(&layered as &dyn Policy, P::mmu(&mmus), Delivery::AtOnce).expect("a machine");
        let mut watcher = [sanitized.watcher(false)];
        fresh.run(&machine, watches(&mut watcher), None).expect("it ends, and all frames are back");
    }
    platform.ended(sanitized.mmu());
    sanitized.unserved()
        + sanitized.mmu().with(|sanitizer, _| {
            sanitizer.finish();
            sanitizer.total()
        })
}

#[test]
fn a_machine_that_is_taken_for_another_one_is_found() {
    let none = [
        findings(&Direct::<Sv39, Fencing>::with(MEMORY).expect("it fits")),
        findings(&Direct::<Aarch64K16, Broadcasting>::with(MEMORY).expect("it fits")),
        findings(&Direct::<LoongArch64, Refilled>::with(MEMORY).expect("it fits")),
    ];
    assert_eq!(none, [0; 3]);
    // Both keep entries that denied, which CPUs of x86 do not.
    let found = [
        findings(&Direct::<Aarch64K16, Interrupting>::with(MEMORY).expect("it fits")),
        findings(&Direct::<LoongArch64, Interrupting>::with(MEMORY).expect("it fits")),
    ];
    assert!(found.iter().all(|n| *n > 0), "{found:?}");
}
