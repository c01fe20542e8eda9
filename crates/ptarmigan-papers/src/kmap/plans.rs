//! The planner against each rule, on real slots.
use super::case::{RULES, Spread, StaleCase, name};
use super::report::{KmapRow, row};
use super::window::RealWindow;
use ptarmigan::tlb::{CostModel, Costs, Plan, SlotSet};
use ptarmigan_bench::clock::Clock;
use ptarmigan_bench::stats::median;
use ptarmigan_term::bar;

/// Sizes of stale sets, from 1 to 1,024.
const SIZES: usize = 64;
/// The rules, the planner, and the planner once more: the difference between two equal arms is
/// noise.
const ARMS: usize = RULES.len() + 2;
const PLANNER: usize = RULES.len();
const TWIN: usize = PLANNER + 1;

/// A case with its times by arm and round.
pub(super) struct TimedCase {
    pub case: StaleCase,
    times: [Vec<f64>; ARMS],
}

/// Returns the slots in an order that is anything, and the same each time.
pub(super) fn shuffled() -> Vec<usize> {
    let mut order: Vec<usize> = (0..SlotSet::SLOTS).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..order.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(at, (random >> 33) as usize % (at + 1));
    }
    order
}

/// Times all cases in `rounds` rounds, in each of which every arm has its turn in each case.
pub(super) fn time(
    window: &RealWindow,
    clock: Clock,
    random: &[usize],
    costs: Costs,
    rounds: u32,
) -> Vec<TimedCase> {
    let model = CostModel::Costs(costs);
    let mut cases = Vec::new();
    for spread in [Spread::Contiguous, Spread::Alternate, Spread::Random] {
        for live in [false, true] {
            for n in 0..SIZES {
                let size = 1 + n * (SlotSet::SLOTS - 1) / (SIZES - 1);
                let case = StaleCase::new(window, spread, live, size, random);
                cases.push(TimedCase { case, times: Default::default() });
            }
        }
    }
    let bar = bar::bar(u64::from(rounds), "plans on real slots");
    for round in 0..rounds as usize {
        for (at, TimedCase { case, times }) in cases.iter_mut().enumerate() {
            for turn in 0..ARMS {
                let arm = (turn + round + at) % ARMS;
                times[arm].push(case.time(window, clock, RULES.get(arm).copied(), &model));
            }
            window.forget_all();
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    cases
}

impl TimedCase {
    /// Returns the time of a rule, in nanoseconds.
    pub fn of(&self, rule: Plan) -> f64 {
        RULES
            .iter()
            .position(|plan| *plan == rule)
            .map_or(f64::NAN, |arm| median(self.times[arm].iter().copied()))
    }

    fn rounds(&self, arm: usize, odd: bool) -> impl Iterator<Item = f64> + '_ {
        self.times[arm].iter().skip(usize::from(odd)).step_by(2).copied()
    }

    /// Returns the rule that is best on odd rounds.
    fn best(&self) -> usize {
        let time = |arm: &usize| median(self.rounds(*arm, true));
        (0..RULES.len()).min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(0)
    }

    /// Returns the median ratio of two arms on even rounds.
    fn ratio(&self, of: usize, to: usize) -> f64 {
        median(self.rounds(of, false).zip(self.rounds(to, false)).map(|(of, to)| of / to))
    }
}

/// The targets of the planner, and the results.
pub(super) struct Verdict {
    pub rows: Vec<KmapRow>,
    pub notes: Vec<String>,
}

/// Compares the planner with the best rule of each case.
pub(super) fn judge(cases: &[TimedCase]) -> Verdict {
    let ratios: Vec<f64> = cases.iter().map(|case| case.ratio(PLANNER, case.best())).collect();
    let twins: Vec<f64> = cases.iter().map(|case| case.ratio(TWIN, PLANNER)).collect();
    let geomean = |of: &[f64]| (of.iter().map(|ratio| ratio.ln()).sum::<f64>() / of.len() as f64).exp();
    let above = |of: &[f64]| of.iter().filter(|ratio| **ratio > 1.10).count();
    let (worse, noise) = (above(&ratios), above(&twins));
    let mut rows = vec![
        row("planner-to-best", "planner", geomean(&ratios), "ratio"),
        row("planner-to-best", "twin", geomean(&twins), "ratio"),
        row("above-1.10", "planner", worse as f64, "cases"),
        row("above-1.10", "twin", noise as f64, "cases"),
    ];
    let mut notes = vec![
        format!(
            "{} cases; geometric mean of planner to best rule {:.3} (bar: 1.05){}",
            cases.len(),
            geomean(&ratios),
            verdict(geomean(&ratios) <= 1.05)
        ),
        format!(
            "above 1.10: {worse}; of two equal arms {noise}, so {} will do{}",
            noise + 3,
            verdict(worse <= noise + 3)
        ),
    ];
    let mut worst: Vec<(f64, &TimedCase)> = ratios.iter().copied().zip(cases).collect();
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (ratio, case) in worst.iter().take(3) {
        notes.push(format!("planner's worst: {} {ratio:.2} x {}", case.case, name(RULES[case.best()])));
    }
    for (arm, rule) in RULES.iter().enumerate() {
        let ratio = |case: &TimedCase| case.ratio(arm, PLANNER);
        let worst = cases.iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        if let Some(case) = worst {
            let ratio = ratio(case);
            rows.push(row(format!("worst/{}", case.case), name(*rule), ratio, "x planner"));
            notes.push(format!(
                "{} takes {ratio:.1} x the planner's time at {} (bar: 1.5 somewhere){}",
                name(*rule),
                case.case,
                verdict(ratio >= 1.5)
            ));
        }
    }
    Verdict { rows, notes }
}

/// Whether a bar is met.
pub(super) fn verdict(met: bool) -> &'static str {
    if met { "" } else { ": MISSED" }
}
