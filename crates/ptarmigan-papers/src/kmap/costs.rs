//! The cost model of a window of real slots, measured in the run that uses it.
//!
//! A page that the page table holds costs more to forget than one that it does not, as a page does
//! that a hash table holds. So the costs of hashed pages are those of present ones here.
use super::case::{Spread, StaleCase};
use super::window::RealWindow;
use ptarmigan::tlb::{CostModel, Costs, Plan, SlotSet};
use ptarmigan_bench::clock::Clock;
use ptarmigan_bench::stats::median;

/// Rounds over all points. Contenders for the processor come and go, so points take turns.
const ROUNDS: usize = 41;

/// Measures the time of `plan` on each case, in nanoseconds: the lower quartile of the rounds.
fn times(window: &RealWindow, clock: Clock, points: &[(StaleCase, Plan)]) -> Vec<f64> {
    let mut all = vec![Vec::new(); points.len()];
    // The first half warms the host up.
    for round in 0..2 * ROUNDS {
        for ((case, plan), times) in points.iter().zip(&mut all) {
            let time = case.time(window, clock, Some(*plan), &CostModel::LINUX);
            if round >= ROUNDS {
                times.push(time);
            }
            window.forget_all();
        }
    }
    all.into_iter()
        .map(|mut times| {
            times.sort_by(f64::total_cmp);
            times.truncate(times.len().div_ceil(2));
            median(times)
        })
        .collect()
}

/// Measures the costs of this host, in picoseconds.
pub(super) fn measure(window: &RealWindow, clock: Clock, random: &[usize]) -> Costs {
    let all = SlotSet::SLOTS;
    let case = |spread, live, size| StaleCase::new(window, spread, live, size, random);
    // Stale slots at both ends; between them, free or live slots.
    let ends = |live| {
        let order: Vec<usize> = [0, all - 1].into_iter().chain(1..all - 1).collect();
        StaleCase::new(window, Spread::Random, live, 2, &order)
    };
    // Runs of three. This host forgets the pages of a short run one by one, and everything for a
    // longer one, which no price by the page tells: the run's own price is that of this length.
    let threes: Vec<usize> = (0..all / 8).flat_map(|run| (8 * run)..(8 * run + 3)).collect();
    let points = [
        (case(Spread::Alternate, false, 256), Plan::Pages),
        (case(Spread::Contiguous, false, all), Plan::Window),
        (case(Spread::Contiguous, false, 128), Plan::Window),
        (ends(false), Plan::Window),
        (ends(true), Plan::Window),
        (ends(true), Plan::Pages),
        (StaleCase::new(window, Spread::Random, false, threes.len(), &threes), Plan::Runs),
    ];
    let t = times(window, clock, &points);
    let [pages, whole, part, ends_free, ends_live, ends_pages, runs] =
        [t[0], t[1], t[2], t[3], t[4], t[5], t[6]];
    let by_name = pages / 256.0;
    // Going over a slot that is present.
    let present = (whole - part) / (all - 128) as f64;
    // A page is a window of one. The difference of two long times would be all noise.
    let begin = (by_name - present).max(0.0);
    // Passing a slot that is not present, and the extra cost of a present one.
    let over = ((ends_free - 2.0 * by_name) / (all - 2) as f64).clamp(0.0, present);
    let more = present - over;
    // Live slots are taken and come back. Their use alone is in the time by pages.
    let used = (ends_pages - 2.0 * by_name).max(0.0);
    let refill = ((ends_live - ends_free - used) / (all - 2) as f64 - more).max(0.0);
    let run = (runs / (threes.len() / 3) as f64 - 3.0 * present).max(begin);
    let ps = |ns: f64| (ns.max(0.0) * 1000.0).round() as u64;
    Costs {
        page: ps(by_name - more),
        page_hashed: ps(by_name),
        step: 0,
        run: ps(run),
        ranged_page: ps(over),
        window: ps(begin),
        refill: ps(refill),
        full: u64::MAX,
        ..Costs::new(0, u64::MAX)
    }
}
