//! Computes the work of each plan for a stale set.
use super::costs::{Costs, Work};
use super::facts::Facts;
use crate::tlb::runs::Runs;

/// How a stale set is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Run by run.
    Runs,
    /// Page by page.
    Pages,
    /// As one range, from the first stale page to the last.
    Window,
    /// With everything else.
    Full,
}

impl Plan {
    /// All plans, those first that are taken when prices are equal.
    pub const ALL: [Plan; 4] = [Plan::Runs, Plan::Pages, Plan::Window, Plan::Full];
}

/// Computes the properties of a stale set that decide which plan is best: how many pages it has,
/// and how they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Stale pages.
    pub pages: u64,
    /// Runs of consecutive stale pages.
    pub runs: u64,
    /// Pages from the first stale one to the last.
    pub hull: u64,
    /// There is a range from the first stale page to the last. It is absent over the whole address
    /// space.
    pub has_window: bool,
}

impl Shape {
    /// Returns the work that `plan` is.
    pub fn work(&self, plan: Plan, costs: &Costs, facts: &Facts) -> Work {
        let Shape { pages, runs, hull, .. } = *self;
        let others = hull.saturating_sub(pages);
        let hashed = facts.hashed.unwrap_or(pages).min(pages);
        let live = facts.live.unwrap_or(others).min(others);
        let work = Work { asked: facts.asked, rounds: u64::from(facts.asked != 0), ..Work::default() };
        match plan {
            Plan::Pages => Work { pages, hashed, steps: pages.saturating_sub(1), ..work },
            Plan::Runs => Work { runs, ranged: pages, hashed, steps: pages.saturating_sub(1), ..work },
            Plan::Window => Work {
                windows: 1,
                ranged: hull,
                hashed: hashed + live,
                steps: hull.saturating_sub(1),
                refills: live,
                ..work
            },
            Plan::Full => {
                let everything = Work {
                    fulls: 1,
                    entries: facts.entries.unwrap_or(costs.entries),
                    refills: facts.resident.unwrap_or(costs.resident),
                    ..work
                };
                if costs.full_entry == 0 {
                    return everything;
                }
                // Going through entries is the range over all of them: stale pages are forgotten as
                // those of a run are.
                Work { ranged: pages, hashed, steps: pages.saturating_sub(1), ..everything }
            }
        }
    }

    /// Returns the cheapest plan. Of plans with equal prices it is the one that forgets less, then
    /// the one of fewer operations.
    pub fn cheapest(&self, costs: &Costs, facts: &Facts) -> Plan {
        let price = |plan| costs.price(&self.work(plan, costs, facts));
        // One page is one operation, not a run of one.
        let first = if self.pages == 1 { Plan::Pages } else { Plan::Runs };
        let mut best = (first, price(first));
        for plan in Plan::ALL {
            if plan == Plan::Window && !self.has_window {
                continue;
            }
            let price = price(plan);
            if price < best.1 {
                best = (plan, price);
            }
        }
        best.0
    }
}

impl From<&Runs> for Shape {
    fn from(runs: &Runs) -> Self {
        Shape {
            pages: runs.pages(),
            runs: runs.len() as u64,
            hull: runs.hull_pages(),
            has_window: runs.hull().is_some_and(|(start, end)| start != end),
        }
    }
}
