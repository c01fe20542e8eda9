//! Plans by cost: whatever is planned covers the stale pages, and no other plan is cheaper.
use proptest::prelude::*;
use ptarmigan::tlb::{CostModel, Costs, Facts, Plan, Runs, Scope, Shape, SlotSet, Work};
use std::collections::BTreeSet;

const SHIFT: u32 = 12;
const PAGE: u64 = 1 << SHIFT;
const BASE: u64 = 0xff80_0000;

/// The measurements of the mail of 2001 on a POWER3.
const POWER3: Costs = Costs {
    page_hashed: 998_500,
    step: 56_000,
    full_entry: (3_280_000_000 - 1_080_000_000) / 262_144,
    entries: 262_144,
    ..Costs::new(110_000, 0)
};

/// Prices from 0 to much, some of them more than can be added up.
fn price() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0u64), 8 => 1u64..100, 4 => 100u64..100_000, 1 => Just(u64::MAX)]
}

fn costs() -> impl Strategy<Value = Costs> {
    (proptest::array::uniform11(price()), 0u64..3000, 0u64..3000).prop_map(|(p, entries, resident)| Costs {
        page: p[0],
        page_hashed: p[1],
        step: p[2],
        run: p[3],
        ranged_page: p[4],
        window: p[5],
        full: p[6],
        full_entry: p[7],
        refill: p[8],
        ask: p[9],
        ask_cpu: p[10],
        entries,
        resident,
    })
}

fn model() -> impl Strategy<Value = CostModel> {
    prop_oneof![
        1 => (0u64..1200).prop_map(|pages| CostModel::LinuxCeiling { pages }),
        1 => Just(CostModel::ALWAYS_PAGE),
        1 => Just(CostModel::ALWAYS_FULL),
        1 => Just(CostModel::Costs(POWER3)),
        4 => costs().prop_map(CostModel::Costs),
    ]
}

fn facts() -> impl Strategy<Value = Facts> {
    let known = || proptest::option::of(0u64..2000);
    (known(), known(), known(), known(), 0u64..8).prop_map(|(hashed, live, resident, entries, asked)| Facts {
        hashed,
        live,
        resident,
        entries,
        asked,
    })
}

/// Slots: few or many, together or apart.
fn slots() -> impl Strategy<Value = BTreeSet<usize>> {
    proptest::collection::vec((0usize..1024, 1usize..80, 1usize..4), 1..12).prop_map(|parts| {
        parts
            .into_iter()
            .flat_map(|(first, n, step)| (0..n).map(move |i| first + i * step))
            .filter(|slot| *slot < 1024)
            .collect()
    })
}

fn set(slots: &BTreeSet<usize>) -> SlotSet {
    let mut set = SlotSet::new(BASE, SHIFT);
    slots.iter().for_each(|slot| set.insert(*slot));
    set
}

fn scopes(set: &SlotSet, plan: Plan) -> Vec<Scope> {
    let mut scopes = Vec::new();
    set.each_scope(plan, |scope| scopes.push(*scope));
    scopes
}

/// The price of a plan, written down as a sum: with 128 bits, which cannot overflow.
fn sum(costs: &Costs, shape: &Shape, facts: &Facts, plan: Plan) -> u128 {
    let n = u128::from;
    let (pages, others) = (shape.pages, shape.hull - shape.pages);
    let hashed = facts.hashed.map_or(pages, |h| h.min(pages));
    let live = facts.live.map_or(others, |l| l.min(others));
    let more = n(costs.page_hashed.max(costs.page) - costs.page);
    let ask = if facts.asked == 0 { 0 } else { n(costs.ask) + n(facts.asked) * n(costs.ask_cpu) };
    ask + match plan {
        Plan::Pages => n(pages) * n(costs.page) + n(hashed) * more + n(pages - 1) * n(costs.step),
        Plan::Runs => {
            n(shape.runs) * n(costs.run)
                + n(pages) * n(costs.ranged_page)
                + n(hashed) * more
                + n(pages - 1) * n(costs.step)
        }
        Plan::Window => {
            n(costs.window)
                + n(shape.hull) * n(costs.ranged_page)
                + n(hashed + live) * more
                + n(shape.hull - 1) * n(costs.step)
                + n(live) * n(costs.refill)
        }
        Plan::Full => {
            let through = n(pages) * n(costs.ranged_page) + n(hashed) * more + n(pages - 1) * n(costs.step);
            (if costs.full_entry > 0 { through } else { 0 })
                + n(costs.full)
                + n(facts.entries.unwrap_or(costs.entries)) * n(costs.full_entry)
                + n(facts.resident.unwrap_or(costs.resident)) * n(costs.refill)
        }
    }
}

fn cheapest(costs: &Costs, shape: &Shape, facts: &Facts) -> u128 {
    let possible = |plan: &Plan| *plan != Plan::Window || shape.has_window;
    Plan::ALL.into_iter().filter(possible).map(|plan| sum(costs, shape, facts, plan)).min().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn a_set_of_slots_is_what_was_inserted(slots in slots()) {
        let set = set(&slots);
        prop_assert_eq!((0..1024).filter(|slot| set.contains(*slot)).collect::<BTreeSet<_>>(), slots.clone());
        let runs: Vec<_> = set.runs().collect();
        prop_assert!(runs.windows(2).all(|w| w[0].1 < w[1].0), "apart: {runs:?}");
        prop_assert_eq!(runs.iter().flat_map(|(s, e)| *s..*e).collect::<BTreeSet<_>>(), slots.clone());
        let shape = set.shape();
        prop_assert_eq!((shape.pages, shape.runs), (slots.len() as u64, runs.len() as u64));
        prop_assert_eq!(shape.hull, (slots.last().unwrap() - slots.first().unwrap() + 1) as u64);
    }

    #[test]
    fn plans_cover_the_slots_and_by_page_or_run_nothing_else(slots in slots(), model in model(), facts in facts()) {
        let set = set(&slots);
        let chosen = model.plan_slots(&set, &facts);
        for plan in Plan::ALL.into_iter().chain([chosen]) {
            let scopes = scopes(&set, plan);
            if matches!(plan, Plan::Pages | Plan::Runs) {
                let told: Vec<u64> = scopes.iter().flat_map(|s| s.pages().unwrap()).collect();
                let each: Vec<u64> = slots.iter().map(|slot| set.address(*slot)).collect();
                prop_assert_eq!(told, each, "once each, and no other");
            }
            // Of each scope, as hardware that does not go page by page takes it.
            let covers = |slot: usize| scopes.iter().any(|scope| scope.covers(set.address(slot)));
            let some = slots.iter().step_by(1 + slots.len() / 50).chain(slots.last());
            prop_assert!(some.clone().all(|slot| covers(*slot)), "{plan:?} of {slots:?}: {scopes:?}");
            let most = match plan {
                Plan::Pages => slots.len(),
                Plan::Runs => set.runs().count().div_ceil(Runs::MOST),
                Plan::Window | Plan::Full => 1,
            };
            prop_assert_eq!(scopes.len(), most);
        }
    }

    #[test]
    fn the_plan_for_slots_is_the_cheapest(slots in slots(), costs in costs(), facts in facts()) {
        let set = set(&slots);
        let shape = set.shape();
        let plan = CostModel::Costs(costs).plan_slots(&set, &facts);
        let cap = |sum: u128| sum.min(u128::from(u64::MAX));
        prop_assert_eq!(cap(sum(&costs, &shape, &facts, plan)), cap(cheapest(&costs, &shape, &facts)), "{:?}", plan);
    }

    #[test]
    fn the_plan_for_runs_covers_them_and_is_the_cheapest(
        parts in proptest::collection::vec((prop_oneof![8 => 0u64..4000, 1 => (1u64 << 52) - 40..(1 << 52)], 1u64..90), 1..20),
        model in model(),
        facts in facts(),
    ) {
        let mut stale = Runs::new(SHIFT);
        for (first, n) in &parts {
            let end = (first + n).min(1 << 52);
            stale.insert(first * PAGE, end.wrapping_mul(PAGE));
        }
        let scope = model.plan_with(&stale, &facts);
        for (first, n) in &parts {
            prop_assert!((*first..(first + n).min(1 << 52)).all(|page| scope.covers(page * PAGE)), "{scope:?}");
        }
        if let CostModel::Costs(costs) = model {
            let shape = Shape::from(&stale);
            let of = |plan| sum(&costs, &shape, &facts, plan);
            let paid = match scope {
                Scope::Full => of(Plan::Full),
                Scope::Runs(_) => of(Plan::Runs).min(of(Plan::Pages)),
                // One run may be told by any of them.
                Scope::Range { .. } | Scope::Page { .. } if stale.len() == 1 => {
                    of(Plan::Runs).min(of(Plan::Pages)).min(of(Plan::Window))
                }
                Scope::Range { .. } | Scope::Page { .. } => of(Plan::Window),
            };
            let cap = |sum: u128| sum.min(u128::from(u64::MAX));
            prop_assert_eq!(cap(paid), cap(cheapest(&costs, &shape, &facts)), "{:?}", scope);
        }
    }
}

#[test]
fn one_stale_slot_is_one_page_operation_unless_always_full() {
    let one = set(&BTreeSet::from([700]));
    let calibrated = Costs { run: 1, refill: 40_000, resident: 512, ..Costs::new(180_000, 500_000) };
    for model in
        [CostModel::LINUX, CostModel::ALWAYS_PAGE, CostModel::Costs(POWER3), CostModel::Costs(calibrated)]
    {
        let plan = model.plan_slots(&one, &Facts::default());
        assert_eq!(scopes(&one, plan), [Scope::Page { at: BASE + 700 * PAGE, shift: 12 }], "{model:?}");
    }
    let plan = CostModel::ALWAYS_FULL.plan_slots(&one, &Facts::default());
    assert_eq!(scopes(&one, plan), [Scope::Full]);
}

#[test]
fn on_the_2001_machine_hashed_slots_are_never_flushed_in_full() {
    let model = CostModel::Costs(POWER3);
    for n in [1, 2, 34, 512, 1023, 1024] {
        let slots = set(&(0..n).collect());
        assert_ne!(model.plan_slots(&slots, &Facts::default()), Plan::Full, "{n}");
    }
    let all = set(&(0..1024).collect());
    let window = Scope::Range { start: BASE, end: BASE + 1024 * PAGE, stride: SHIFT, mixed: false };
    assert_eq!(scopes(&all, model.plan_slots(&all, &Facts::default())), [window]);
    let work = all.shape().work(Plan::Runs, &POWER3, &Facts::default());
    let microseconds = POWER3.price(&work) / 1_000_000;
    assert!((1070..=1090).contains(&microseconds), "{microseconds} us");
}

#[test]
fn a_full_flush_that_is_a_range_is_never_cheaper_than_a_range() {
    let model = CostModel::Costs(POWER3);
    for n in [1, 2, 1024, 3110, 3111, 20_000, 262_144, 1 << 24] {
        for hashed in [None, Some(0), Some(n / 2)] {
            let facts = Facts { hashed, ..Facts::default() };
            let stale = Runs::one(1 << 40, (1 << 40) + n * PAGE, SHIFT);
            assert!(!model.plan_with(&stale, &facts).is_full(), "{n} pages, {hashed:?} of them hashed");
        }
    }
    // The mail's flush of everything did the work of its range, and went through the rest.
    let all = set(&(0..1024).collect()).shape();
    let [range, full] = [Plan::Runs, Plan::Full]
        .map(|plan| POWER3.price(&all.work(plan, &POWER3, &Facts::default())) as f64 / 1e6);
    assert!((full - 3280.0).abs() < 1.0, "{full} us");
    assert!((full - range - 2200.0).abs() < 1.0, "{range} us, {full} us");
}

#[test]
fn live_slots_in_between_keep_a_window_from_being_taken() {
    // A call for each run, a window for one: alternate slots are cheaper as a window, if nobody
    // uses the others.
    let costs =
        Costs { run: 2000, window: 2000, ranged_page: 800, refill: 3000, ..Costs::new(2300, 9_000_000) };
    let alternate = set(&(0..512).map(|i| 2 * i).collect());
    let plan = |live| {
        CostModel::Costs(costs).plan_slots(&alternate, &Facts { live: Some(live), ..Facts::default() })
    };
    assert_eq!(plan(0), Plan::Window);
    assert_eq!(plan(511), Plan::Pages);
    let unknown = CostModel::Costs(costs).plan_slots(&alternate, &Facts::default());
    assert_eq!(unknown, Plan::Pages, "nobody knows that they are free");
}

#[test]
fn what_is_refilled_moves_the_break_even() {
    let costs = Costs { refill: 11_000, ..Costs::new(180_000, 700_000) };
    let first = |resident| {
        let facts = Facts { resident: Some(resident), ..Facts::default() };
        let full =
            |n: u64| CostModel::Costs(costs).plan_with(&Runs::one(0, n * PAGE, SHIFT), &facts).is_full();
        (1..1000).find(|n| full(*n)).unwrap()
    };
    assert_eq!([first(0), first(512), first(1500)], [4, 36, 96]);
}

#[test]
fn asking_is_part_of_every_price_and_decides_nothing() {
    let costs = Costs { ask: 2_000_000, ask_cpu: 300_000, ..POWER3 };
    let slots = set(&(0..100).collect());
    let alone = Facts::default();
    let asked = Facts { asked: 3, ..alone };
    for plan in Plan::ALL {
        let price = |facts| costs.price(&slots.shape().work(plan, &costs, facts));
        assert_eq!(price(&asked) - price(&alone), 2_900_000, "{plan:?}");
    }
    let plan = |facts| CostModel::Costs(costs).plan_slots(&slots, facts);
    assert_eq!(plan(&alone), plan(&asked));
}

#[test]
fn a_slot_that_cannot_be_named_makes_everything_stale() {
    for (base, slot) in [(BASE, 1024), (BASE, usize::MAX), (0u64.wrapping_sub(4 * PAGE), 4)] {
        let mut set = SlotSet::new(base, SHIFT);
        set.insert(slot);
        assert!(set.is_everything() && !set.is_empty() && set.contains(3), "{slot}");
        for model in [CostModel::LINUX, CostModel::ALWAYS_PAGE, CostModel::Costs(POWER3)] {
            let plan = model.plan_slots(&set, &Facts::default());
            assert_eq!(scopes(&set, plan), [Scope::Full]);
        }
    }
    let mut last = SlotSet::new(0u64.wrapping_sub(4 * PAGE) + 5, SHIFT);
    for slot in [2, 3] {
        last.insert(slot);
    }
    let end = Scope::Range { start: 0u64.wrapping_sub(2 * PAGE), end: 0, stride: SHIFT, mixed: false };
    assert_eq!(scopes(&last, Plan::Runs), [end]);
    assert!(end.covers(u64::MAX));
}

#[test]
fn of_nothing_nothing_is_forgotten() {
    let none = SlotSet::new(BASE, 0);
    assert!(none.is_empty() && none.shift() == 1);
    for plan in Plan::ALL {
        assert_eq!(scopes(&none, plan), []);
    }
    assert_eq!(POWER3.price(&Work::default()), 0);
}

#[test]
fn a_scope_is_empty_if_it_has_no_pages_and_is_not_full() {
    let ranges = |end| Scope::Range { start: BASE, end, stride: SHIFT, mixed: false };
    for (scope, len) in [
        (Scope::Page { at: BASE, shift: SHIFT }, 1),
        (ranges(BASE + 3 * PAGE), 3),
        (ranges(BASE), 0),
        (Scope::Runs(Runs::one(BASE, BASE + 2 * PAGE, SHIFT)), 2),
        (Scope::Runs(Runs::new(SHIFT)), 0),
    ] {
        assert_eq!((scope.len(), scope.is_empty(), scope.is_full()), (len, len == 0, false), "{scope:?}");
    }
    assert_eq!((Scope::Full.len(), Scope::Full.is_empty(), Scope::Full.is_full()), (0, false, true));
}
