//! Stale runs and plans: whatever is inserted is covered, and by no more than has to be.
use proptest::prelude::*;
use ptarmigan::params::Params;
use ptarmigan::quicklist::ListsConfig;
use ptarmigan::tlb::{CostModel, Costs, Runs, Scope, TlbConfig};
use std::collections::BTreeSet;

const SHIFT: u32 = 12;
const PAGE: u64 = 1 << SHIFT;

/// Costs of a page, of beginning a run or a window, and of everything.
fn costs(page: u32, run: u32, full: u32) -> CostModel {
    let [page, run, full] = [page, run, full].map(u64::from);
    // No machine without page operations: by their name, pages cost as much as runs of one.
    CostModel::Costs(Costs {
        page: page + run,
        page_hashed: page + run,
        ranged_page: page,
        run,
        window: run,
        ..Costs::new(page, full)
    })
}

/// Runs of consecutive pages in a set.
fn runs_of(pages: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some(run) if run.1 == page => run.1 += 1,
            _ => runs.push((page, page + 1)),
        }
    }
    runs
}

/// Page numbers, here and there at the end of the address space.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..120, 1 => (1u64 << 52) - 40..(1 << 52)]
}

fn changes(most: usize) -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((page(), 1u64..6), 1..most)
}

fn insert(stale: &mut Runs, first: u64, n: u64) -> std::ops::Range<u64> {
    let end = (first + n).min(1 << 52);
    stale.insert(first * PAGE, end.wrapping_mul(PAGE));
    first..end
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn runs_cover_what_was_inserted_exactly_up_to_eight(changes in changes(40)) {
        let (mut stale, mut pages, mut exact) = (Runs::new(SHIFT), BTreeSet::new(), true);
        for (first, n) in changes {
            pages.extend(insert(&mut stale, first, n));
            exact &= runs_of(&pages).len() <= 8;
            let runs: Vec<_> = stale.iter().map(|(s, e)| (s / PAGE, (e.wrapping_sub(1) / PAGE) + 1)).collect();
            prop_assert!(runs.windows(2).all(|w| w[0].1 < w[1].0), "ascending and apart: {runs:?}");
            prop_assert_eq!(stale.len(), runs.len());
            prop_assert!(runs.len() <= 8);
            prop_assert!(pages.iter().all(|p| stale.contains(p * PAGE)), "{pages:?} in {runs:?}");
            prop_assert_eq!(stale.pages(), runs.iter().map(|r| r.1 - r.0).sum::<u64>());
            if exact {
                prop_assert_eq!(&runs, &runs_of(&pages));
            }
            let hull = (runs[0].0, runs[runs.len() - 1].1);
            prop_assert_eq!(hull, (*pages.first().unwrap(), pages.last().unwrap() + 1));
            prop_assert_eq!(stale.hull_pages(), hull.1 - hull.0);
        }
    }

    #[test]
    fn whatever_is_planned_covers_the_stale_pages(
        changes in changes(20),
        ceiling in 0u64..200,
        page in 0u32..50,
        run in 0u32..200,
        full in 0u32..2000,
    ) {
        let (mut stale, mut pages) = (Runs::new(SHIFT), BTreeSet::new());
        for (first, n) in changes {
            pages.extend(insert(&mut stale, first, n));
        }
        for model in [CostModel::LinuxCeiling { pages: ceiling }, costs(page, run, full)] {
            let scope = model.plan(&stale);
            prop_assert!(pages.iter().all(|p| scope.covers(p * PAGE)), "{scope:?} of {stale:?}");
            // The requests to hardware page by page are the same.
            if let Some(told) = scope.pages().filter(|_| scope.len() < 10_000) {
                let told: BTreeSet<u64> = told.map(|va| va / PAGE).collect();
                prop_assert!(told.is_superset(&pages), "{scope:?} of {stale:?}");
                prop_assert_eq!(told.len() as u64, scope.len());
                prop_assert!(told.iter().all(|p| scope.covers(p * PAGE)));
            }
        }
    }

    #[test]
    fn no_other_plan_is_cheaper(changes in changes(20), page in 1u32..50, run in 0u32..200, full in 1u32..2000) {
        let mut stale = Runs::new(SHIFT);
        for (first, n) in changes {
            insert(&mut stale, first, n);
        }
        let model = costs(page, run, full);
        let cost = |runs: u64, pages: u64| pages * u64::from(page) + runs * u64::from(run);
        let of = |scope: &Scope| match scope.runs() {
            Some(runs) => cost(runs.count() as u64, scope.len()),
            None => u64::from(full),
        };
        // No range reaches from the first address to the last one.
        let one = match stale.hull() {
            Some((0, 0)) => u64::MAX,
            _ => cost(1, stale.hull_pages()),
        };
        let least = [u64::from(full), one, cost(stale.len() as u64, stale.pages())];
        prop_assert_eq!(of(&model.plan(&stale)), least.into_iter().min().unwrap());
    }
}

#[test]
fn a_ninth_run_joins_the_two_that_are_nearest() {
    let mut stale = Runs::new(SHIFT);
    for at in [0, 10, 20, 30, 40, 47, 60, 70, 80] {
        insert(&mut stale, at, 1);
    }
    let runs: Vec<_> = stale.iter().map(|(s, e)| (s / PAGE, e / PAGE)).collect();
    assert_eq!(runs, [(0, 1), (10, 11), (20, 21), (30, 31), (40, 48), (60, 61), (70, 71), (80, 81)]);
}

#[test]
fn parts_of_pages_are_pages_and_nothing_is_nothing() {
    let mut stale = Runs::new(SHIFT);
    for (start, end) in [(5, 5), (9, 3), (PAGE, 0x10)] {
        stale.insert(start, end);
        assert!(stale.is_empty(), "{start}..{end}");
    }
    assert_eq!(CostModel::LINUX.plan(&stale), Scope::Full, "nobody said where");
    stale.insert(PAGE + 5, PAGE + 6);
    assert_eq!(CostModel::LINUX.plan(&stale), Scope::Page { at: PAGE, shift: 12 });
    stale.insert(2 * PAGE - 1, 2 * PAGE + 1);
    assert_eq!(stale.iter().collect::<Vec<_>>(), [(PAGE, 3 * PAGE)]);
    // The last page there is.
    let last = Runs::one(0u64.wrapping_sub(PAGE), 0, SHIFT);
    assert_eq!((last.pages(), last.hull()), (1, Some((0u64.wrapping_sub(PAGE), 0))));
    let all = Scope::Range { start: PAGE, end: 0, stride: SHIFT, mixed: false };
    assert!(all.covers(u64::MAX) && !all.covers(5));
}

#[test]
fn flush_models_of_boot_parameters_plan_what_they_say() {
    let config = |text| TlbConfig::new(1).with_params(&Params::parse(text).unwrap()).costs;
    let mut stale = Runs::one(0, 9 * PAGE, SHIFT);
    stale.insert(1 << 40, (1 << 40) + PAGE);
    assert_eq!(config("quicklist=off").plan(&stale), Scope::Full, "Linux's stays");
    assert_eq!(config("tlb.model=always-page").plan(&stale), Scope::Runs(stale));
    let one = Runs::one(0, 9 * PAGE, SHIFT);
    for (text, full) in [
        ("", false),
        ("tlb.model=linux,ceiling=9", false),
        ("tlb.model=linux,ceiling=8", true),
        ("tlb.model=always-full", true),
    ] {
        assert_eq!(config(text).plan(&one).is_full(), full, "{text}");
    }
    let lists = ListsConfig::new(1).with_params(&Params::parse("quicklist=on,magazine=3").unwrap());
    assert_eq!(lists.magazine, 3);
    assert_eq!(lists.with_params(&Params::default()).magazine, 3);
}

#[test]
fn linux_counts_from_the_first_page_to_the_last() {
    for (n, full) in [(33, false), (34, true)] {
        let scope = CostModel::LINUX.plan(&Runs::one(0, n * PAGE, SHIFT));
        assert_eq!(scope.is_full(), full, "{n}");
    }
    let mut apart = Runs::one(0, PAGE, SHIFT);
    apart.insert(32 * PAGE, 33 * PAGE);
    assert_eq!(
        CostModel::LINUX.plan(&apart),
        Scope::Range { start: 0, end: 33 * PAGE, stride: SHIFT, mixed: false }
    );
    apart.insert(33 * PAGE, 34 * PAGE);
    assert_eq!(CostModel::LINUX.plan(&apart), Scope::Full);
    assert_eq!(costs(10, 1, 1000).plan(&apart), Scope::Runs(apart));
}

#[test]
fn from_the_first_address_to_the_last_is_everything() {
    let mut stale = Runs::new(SHIFT);
    insert(&mut stale, 0, 1);
    insert(&mut stale, (1 << 52) - 5, 5);
    let free = costs(0, 0, 0);
    assert!(free.plan(&stale).covers(0), "{:?}", free.plan(&stale));
    assert!(free.plan(&stale).covers(u64::MAX - 4096));
}

#[test]
fn the_first_page_and_the_last_are_two_runs_or_everything() {
    let last = 0u64.wrapping_sub(PAGE);
    let mut stale = Runs::one(0, PAGE, SHIFT);
    stale.insert(last, 0);
    let plan = |page, run, full| costs(page, run, full).plan(&stale);
    assert_eq!(plan(1, 0, 7), Scope::Runs(stale));
    assert_eq!(plan(1, 0, 1), Scope::Full);
    assert_eq!(plan(0, 1, 1), Scope::Full, "one range would be free, but there is none");
    assert_eq!(CostModel::LinuxCeiling { pages: u64::MAX }.plan(&stale), Scope::Full);
    assert!(plan(1, 0, 7).covers(0) && plan(1, 0, 7).covers(u64::MAX) && !plan(1, 0, 7).covers(PAGE));
    assert_eq!(plan(1, 0, 7).pages().unwrap().collect::<Vec<_>>(), [0, last]);
    let all = Runs::one(0, last, SHIFT);
    assert_eq!(costs(0, 0, 1).plan(&all).len(), (1 << 52) - 1);
}
