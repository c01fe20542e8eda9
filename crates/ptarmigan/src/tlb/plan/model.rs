//! Chooses the plan of a flush by the rule of the machine.
use super::costs::Costs;
use super::facts::Facts;
use super::shape::{Plan, Shape};
use super::slots::SlotSet;
use crate::params::{FlushModel, LINUX_CEILING};
use crate::tlb::runs::Runs;
use crate::tlb::scope::Scope;

/// The rule by which a machine chooses between plans.
///
/// ```
/// use ptarmigan::tlb::{CostModel, Costs, Runs};
///
/// let stale = Runs::one(0x10_0000, 0x14_0000, 12); // 64 pages
/// assert!(CostModel::LINUX.plan(&stale).is_full());
/// // A page costs 1 and everything 100, in any unit.
/// let priced = CostModel::Costs(Costs::new(1, 100));
/// assert_eq!(priced.plan(&stale).len(), 64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostModel {
    /// Linux's rule on x86. Stale pages count as one range, from the first to the last; a range of
    /// more than so many pages is a flush of everything.
    LinuxCeiling {
        /// Pages that are forgotten one by one.
        pages: u64,
    },
    /// The cheapest of all plans.
    Costs(Costs),
}

impl From<FlushModel> for CostModel {
    fn from(model: FlushModel) -> Self {
        match model {
            FlushModel::Ceiling(pages) => CostModel::LinuxCeiling { pages },
            FlushModel::AlwaysFull => CostModel::ALWAYS_FULL,
            FlushModel::AlwaysPage => CostModel::ALWAYS_PAGE,
        }
    }
}

impl CostModel {
    /// Linux's rule as it stands: up to 33 pages.
    pub const LINUX: CostModel = CostModel::LinuxCeiling { pages: LINUX_CEILING };

    /// Everything, always.
    pub const ALWAYS_FULL: CostModel = CostModel::LinuxCeiling { pages: 0 };

    /// Page by page, always.
    pub const ALWAYS_PAGE: CostModel =
        CostModel::Costs(Costs { run: 1, window: 1, ..Costs::new(1, u64::MAX) });

    /// Plans how the pages of `stale` are forgotten. An empty `stale` stands for everything.
    #[inline]
    pub fn plan(&self, stale: &Runs) -> Scope {
        self.plan_with(stale, &Facts::UNKNOWN)
    }

    /// Plans how the one page of 2^`shift` bytes at `page` is forgotten.
    #[inline]
    pub(crate) fn plan_page(&self, page: u64, shift: u32) -> Scope {
        match self {
            CostModel::LinuxCeiling { pages: 1.. } => Scope::Page { at: page, shift },
            _ => self.plan(&Runs::one(page, page.wrapping_add(1 << shift), shift)),
        }
    }

    /// As [`plan`](Self::plan), with further facts about the stale pages.
    #[inline]
    pub fn plan_with(&self, stale: &Runs, facts: &Facts) -> Scope {
        let mut scope = Scope::Full;
        self.plan_into(stale, facts, &mut scope);
        scope
    }

    /// As [`plan_with`](Self::plan_with), into a place that holds [`Scope::Full`].
    #[inline]
    pub(crate) fn plan_into(&self, stale: &Runs, facts: &Facts, scope: &mut Scope) {
        let Some((start, end)) = stale.hull() else { return };
        let hull = stale.hull_pages();
        match self {
            CostModel::LinuxCeiling { pages } => {
                // From the first address to the last one: no range says that.
                if hull > *pages || start == end {
                    return;
                }
            }
            CostModel::Costs(costs) => match cheapest(stale, costs, facts) {
                Plan::Full => return,
                // One run may be all there is.
                Plan::Runs | Plan::Pages if stale.len() > 1 => {
                    *scope = Scope::Runs(*stale);
                    return;
                }
                _ if start == end => return,
                _ => {}
            },
        }
        let (stride, mixed) = (stale.shift(), stale.is_mixed());
        *scope = match hull {
            1 if !mixed => Scope::Page { at: start, shift: stride },
            _ => Scope::Range { start, end, stride, mixed },
        };
    }

    /// Returns whether one page is forgotten by its address, whatever else is known.
    #[inline]
    pub(crate) fn names_one_page(&self) -> bool {
        matches!(self, CostModel::LinuxCeiling { pages } if *pages > 0)
    }

    /// Plans how the pages of `stale` are forgotten. A set that
    /// [stands for everything](SlotSet::is_everything) is forgotten with everything.
    pub fn plan_slots(&self, stale: &SlotSet, facts: &Facts) -> Plan {
        let shape = stale.shape();
        match self {
            _ if stale.is_everything() => Plan::Full,
            CostModel::LinuxCeiling { pages } if shape.hull > *pages => Plan::Full,
            CostModel::LinuxCeiling { .. } if shape.hull == 1 => Plan::Pages,
            CostModel::LinuxCeiling { .. } => Plan::Window,
            CostModel::Costs(costs) => shape.cheapest(costs, facts),
        }
    }
}

/// Kept apart: prices are no part of the stack frame of a flush by Linux's rule.
#[cold]
#[inline(never)]
fn cheapest(stale: &Runs, costs: &Costs, facts: &Facts) -> Plan {
    Shape::from(stale).cheapest(costs, facts)
}
