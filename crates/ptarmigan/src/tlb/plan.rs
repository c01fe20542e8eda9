//! How stale pages are forgotten: one by one, run by run, as one range, or with everything else.
//!
//! A plan covers at least the stale pages (I12); what it covers beyond them is refilled at a cost.
//! Which plan is cheapest depends on the hardware, so costs are data.
use super::runs::Runs;
use super::scope::Scope;
use crate::params::FlushModel;

/// What invalidations cost on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostModel {
    /// Linux's rule on x86. Stale pages count as one range, from the first to the last; a range of
    /// more than so many pages is a flush of everything.
    LinuxCeiling {
        /// Pages that are forgotten one by one.
        pages: u64,
    },
    /// The cheapest of all plans, by costs in any unit.
    Linear {
        /// Forgetting one page.
        page: u32,
        /// Beginning a run of pages: what an instruction for a whole range costs beside what it
        /// costs for each page.
        run: u32,
        /// Forgetting everything, and refilling what is used again.
        full: u32,
    },
}

impl From<FlushModel> for CostModel {
    fn from(model: FlushModel) -> Self {
        match model {
            FlushModel::Ceiling(pages) => CostModel::LinuxCeiling { pages },
            FlushModel::AlwaysFull => CostModel::LinuxCeiling { pages: 0 },
            FlushModel::AlwaysPage => CostModel::Linear { page: 1, run: 0, full: u32::MAX },
        }
    }
}

impl CostModel {
    /// Linux's rule as it stands: up to 33 pages.
    pub const LINUX: CostModel = CostModel::LinuxCeiling { pages: 33 };

    /// Plans how the pages of `stale` are forgotten. What is not known to be little, an empty
    /// `stale`, is everything.
    #[inline]
    pub fn plan(&self, stale: &Runs) -> Scope {
        let mut scope = Scope::Full;
        self.plan_into(stale, &mut scope);
        scope
    }

    /// As [`plan`](Self::plan), into a place that holds [`Scope::Full`].
    #[inline]
    pub(crate) fn plan_into(&self, stale: &Runs, scope: &mut Scope) {
        let Some((start, end)) = stale.hull() else { return };
        let hull = stale.hull_pages();
        // From the first address to the last one: no range says that.
        let is_all = start == end;
        match *self {
            CostModel::LinuxCeiling { pages } => {
                if hull > pages {
                    return;
                }
            }
            CostModel::Linear { page, run, full } => {
                let cost = |runs: u64, pages: u64| {
                    let [page, run] = [page, run].map(u64::from);
                    pages.saturating_mul(page).saturating_add(runs * run)
                };
                let full = u64::from(full);
                let one = if is_all { full } else { cost(1, hull) };
                let several = if stale.len() == 1 { one } else { cost(stale.len() as u64, stale.pages()) };
                if full < one.min(several) {
                    return;
                }
                if one > several {
                    *scope = Scope::Runs(*stale);
                    return;
                }
            }
        }
        if !is_all {
            let stride = stale.shift();
            *scope = if hull == 1 { Scope::Page(start) } else { Scope::Range { start, end, stride } };
        }
    }
}
