//! Compares the rules for TLB flushes: the recording is replayed under each, and its flushes are
//! priced with the costs of the kernel's machine.
use super::super::advice::{Advice, Details, Rejected, To, Variant, Verdict};
use super::super::figures::{Figures, LEAST_SHARE, Saved, percent};
use super::super::measure::{Measure, Side};
use ptarmigan::tlb::{CostModel, Costs, FlushCounts, Work};
use ptarmigan_replay::{CountedMachine, SoloTrace};
use ptarmigan_term::Failure;
use ptarmigan_term::{Count, Time};

const KIND: &str = "flush-model";

/// Returns the cost of flushes, in nanoseconds. Other CPUs are asked equally often under each rule,
/// so that cost is left out. A flush of several pages counts as one run.
fn price(costs: &Costs, counts: &FlushCounts, runs: bool) -> f64 {
    let number = |n: usize| n as u64;
    let (ranges, fulls) = (number(counts.range), number(counts.full));
    let work = Work {
        pages: number(counts.page),
        ranged: number(counts.pages.saturating_sub(counts.page)),
        runs: if runs { ranges } else { 0 },
        windows: if runs { 0 } else { ranges },
        fulls,
        entries: fulls * costs.entries,
        refills: fulls * costs.resident,
        ..Work::default()
    };
    costs.price(&work) as f64 / 1000.0
}

/// Compares the rules.
pub fn advise(recorded: &SoloTrace, measure: &Measure, costs: Option<Costs>) -> Result<Verdict, Failure> {
    let not = |measured, reason: String| {
        Ok(Verdict::Not(Rejected { kind: KIND, to: To::Kernel, measured, reason }))
    };
    let Some(costs) = costs else {
        let reason = "what flushes cost on the kernel's machine: give --model FILE, as `ptarmigan calibrate \
                      -o FILE` writes it";
        return not(false, reason.to_owned());
    };
    measure.say("replaying with each way to flush");
    let rules = [
        ("tlb.model=linux, a ceiling of 33 pages", CostModel::LINUX),
        ("tlb.model=always-full", CostModel::ALWAYS_FULL),
        ("tlb.model=always-page", CostModel::ALWAYS_PAGE),
        ("the planner with these costs", CostModel::Costs(costs)),
    ];
    let mut variants = Vec::new();
    let mut sides = Vec::new();
    for (name, rule) in rules {
        let on = CountedMachine { costs: rule, ..measure.usual };
        let run = measure.once(Side { trace: recorded, on })?;
        let ns = price(&costs, &run.flushes, matches!(rule, CostModel::Costs(_)));
        let figures = Figures::of(&[run]);
        variants.push(Variant { flush_ns: Some(ns), ..Variant::new(name, &figures) });
        sides.push((name, figures, ns, run.flushes));
    }
    let linux = sides.swap_remove(0);
    let Some(best) = sides.into_iter().min_by(|a, b| a.2.total_cmp(&b.2)) else {
        return not(false, "no rule was tried".to_owned());
    };
    let (saved_ns, of_flushes) = (linux.2 - best.2, (linux.2 - best.2) / linux.2.max(1.0));
    let value = saved_ns / (linux.1.work_ns + linux.2).max(1.0);
    if of_flushes < LEAST_SHARE || value < LEAST_SHARE / 10.0 {
        let reason = format!(
            "no other rule is cheaper than Linux's 33 pages by much: {} saves {} of what flushes cost",
            best.0,
            percent(of_flushes.max(0.0))
        );
        return not(true, reason);
    }
    let kinds = |c: &FlushCounts| {
        let [page, range, full] = [c.page, c.range, c.full].map(|n| Count(n as u64));
        format!("{page} of one page, {range} of several, {full} full")
    };
    let saved = Saved::between(&linux.1, &best.1);
    Ok(Verdict::Advised(Box::new(Advice {
        kind: KIND,
        to: To::Kernel,
        title: format!("flush by another rule: {}", best.0),
        figure: format!(
            "By the costs given, flushes take {} instead of {} ({} of what flushes cost, {} of \
             that and the replay's time together). Flushes: {}; with Linux's rule {}.",
            Time::from_nanos(best.2),
            Time::from_nanos(linux.2),
            percent(of_flushes),
            percent(value),
            kinds(&best.3),
            kinds(&linux.3),
        ),
        how: "the boot parameter as above, or TlbConfig::costs.".to_owned(),
        not_measured: "the flushes themselves: they are counted in the replay and priced. Asking other CPUs \
                       costs the same under each rule and is left out."
            .to_owned(),
        value,
        without: linux.1,
        with: best.1,
        saved,
        details: Details::default(),
        linux: None,
        variants,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_are_priced_by_their_counts() {
        let costs = Costs { run: 500, window: 7, ranged_page: 10, ..Costs::new(100, 2_000_000) };
        let counts = FlushCounts { page: 3, range: 2, full: 1, pages: 3 + 8, ..FlushCounts::default() };
        let by_hand = |beginning: u64| (3 * 100 + 8 * 10 + 2 * beginning + 2_000_000) as f64 / 1000.0;
        assert_eq!(price(&costs, &counts, true), by_hand(500));
        assert_eq!(price(&costs, &counts, false), by_hand(7));
    }
}
