//! Compares sweeps by each plan: the times on this host, and the prices of cost models.
use super::case::{RULES, name};
use super::plans::TimedCase;
use super::report::{Part, row};
use ptarmigan::tlb::{Costs, Plan};
use ptarmigan_term::Time;

/// Sizes that are shown; the nearest ones that were timed.
const SIZES: [usize; 5] = [1, 17, 114, 512, 1024];

/// A cost model with its name.
pub(super) struct Priced<'a> {
    pub name: &'a str,
    pub costs: Costs,
}

/// Shows some of the timed cases, with their prices. The bases of prices differ: the time on this
/// host is that of the whole sweep, its live slots used once; the price is that of the plan alone.
pub(super) fn part(cases: &[TimedCase], here: &Costs, priced: &[Priced<'_>]) -> Part {
    let mut rows = Vec::new();
    for timed in cases.iter().filter(|timed| SIZES.contains(&timed.case.size())) {
        let case = &timed.case;
        let at = format!("sweep/{case}");
        for rule in RULES {
            rows.push(row(at.clone(), format!("{}-real", name(rule)), timed.of(rule) / 1e3, "us"));
        }
        let price = |costs: &Costs, plan: Plan| {
            // `u64::MAX` marks a plan that is unavailable.
            let price = costs.price(&case.set.shape().work(plan, costs, &case.facts()));
            (price < u64::MAX).then_some(price as f64 / 1e6)
        };
        for Priced { name: model, costs } in [Priced { name: "here", costs: *here }].iter().chain(priced) {
            for plan in Plan::ALL {
                if let Some(us) = price(costs, plan) {
                    rows.push(row(at.clone(), format!("{}-{model}", name(plan)), us, "us"));
                }
            }
        }
    }
    let time = |ps: u64| Time::from_nanos(ps as f64 / 1e3);
    let notes = vec![
        format!(
            "costs of this host, of this run: page {}, run {}, window {}, over a slot {},",
            time(here.page_hashed),
            time(here.run),
            time(here.window),
            time(here.ranged_page)
        ),
        format!(
            "a present one {} more, a live one {} to come back",
            time(here.page_hashed - here.page.min(here.page_hashed)),
            time(here.refill)
        ),
    ];
    Part { title: "Sweeps by plan: real slots of this host, and prices".to_owned(), rows, notes }
}
