//! Plans the flush of stale pages: one by one, run by run, as one range, or with everything else.
//!
//! A [plan](Plan) covers at least the stale pages (I12). Which plan is cheapest depends on the
//! hardware, so [costs](Costs) are data.
//!
//! # From a stale set to a plan
//!
//! 1. The stale set comes as [`Runs`](super::Runs) (gathers, kernel ranges) or as a [`SlotSet`]
//!    (sweeps of a kmap pool). Of both, the planner looks at the [shape](Shape) alone.
//! 2. [`Facts`] hold the caller's further knowledge. A fact that is not known counts as the worst
//!    that it can be, unless the [costs](Costs) have a value for it.
//! 3. Each plan has its [work](Work). The price is work times costs, and the cheapest plan is
//!    taken. Of plans with equal prices, the one that forgets less is.
mod costs;
mod facts;
mod model;
mod shape;
mod slots;

pub use costs::{Costs, Work};
pub use facts::Facts;
pub use model::CostModel;
pub use shape::{Plan, Shape};
pub use slots::SlotSet;
