//! Stale sets on a window of real slots.
use super::window::RealWindow;
use ptarmigan::tlb::{CostModel, Facts, Plan, SlotSet};
use ptarmigan_bench::clock::Clock;
use std::fmt;
use std::hint::black_box;

/// How stale slots lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// One after another.
    Contiguous,
    /// Every other one, and those between them once there is no other.
    Alternate,
    /// Anywhere.
    Random,
}

/// The rules that are measured: all plans but that of forgetting everything, which a process cannot
/// ask for.
pub(super) const RULES: [Plan; 3] = [Plan::Pages, Plan::Runs, Plan::Window];

pub(super) fn name(plan: Plan) -> &'static str {
    match plan {
        Plan::Pages => "pages",
        Plan::Runs => "runs",
        Plan::Window => "window",
        Plan::Full => "full",
    }
}

/// A stale set, and the state of the other slots.
pub(super) struct StaleCase {
    pub spread: Spread,
    /// The other slots are in use, not free.
    pub live: bool,
    pub set: SlotSet,
    stale: Vec<usize>,
    others: Vec<usize>,
}

impl StaleCase {
    /// Makes a case of `size` stale slots; `random` is the order in which slots of
    /// [`Spread::Random`] become stale.
    pub fn new(window: &RealWindow, spread: Spread, live: bool, size: usize, random: &[usize]) -> Self {
        let half = SlotSet::SLOTS / 2;
        let alternate = |n: usize| if n < half { 2 * n } else { 2 * (n - half) + 1 };
        let mut set = window.set();
        for (n, drawn) in random.iter().enumerate().take(size.min(SlotSet::SLOTS)) {
            set.insert(match spread {
                Spread::Contiguous => n,
                Spread::Alternate => alternate(n),
                Spread::Random => *drawn,
            });
        }
        let (stale, others) = (0..SlotSet::SLOTS).partition(|slot| set.contains(*slot));
        StaleCase { spread, live, set, stale, others: if live { others } else { Vec::new() } }
    }

    /// Returns the number of stale slots.
    pub fn size(&self) -> usize {
        self.stale.len()
    }

    /// Returns the facts that a sweep knows beyond the stale set: the slots that are in use.
    pub fn facts(&self) -> Facts {
        Facts { live: Some(self.others.len() as u64), ..Facts::UNKNOWN }
    }

    /// Forgets the stale slots by the rule `plan`, or by the choice of `model`, and uses all live
    /// slots once. Returns the time of both, the choice included, in nanoseconds.
    #[inline(never)]
    pub fn time(&self, window: &RealWindow, clock: Clock, plan: Option<Plan>, model: &CostModel) -> f64 {
        self.stale.iter().chain(&self.others).for_each(|slot| window.touch(*slot));
        let facts = self.facts();
        let before = clock.now();
        let plan = plan.unwrap_or_else(|| model.plan_slots(black_box(&self.set), &facts));
        self.set.each_scope(plan, |scope| window.forget(scope));
        self.others.iter().for_each(|slot| window.touch(*slot));
        clock.between(before, clock.now())
    }
}

impl fmt::Display for StaleCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = match self.spread {
            Spread::Contiguous => "contiguous",
            Spread::Alternate => "alternate",
            Spread::Random => "random",
        };
        write!(f, "{spread}-{}-{}", if self.live { "live" } else { "free" }, self.size())
    }
}
