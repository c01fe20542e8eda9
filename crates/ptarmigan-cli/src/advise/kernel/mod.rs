//! Advice to a kernel that runs the program: the recording is replayed with other settings.
mod flush;
mod lists;
mod userpte;

use super::advice::Verdict;
use super::measure::Measure;
use crate::error::Failure;
use crate::replay::CountedTrace;
use ptarmigan::tlb::Costs;

/// Looks for advice to a kernel. `costs` are what flushes cost on its machine, if that is known.
///
/// # Errors
/// If a replay cannot be set up, or memory runs out.
pub fn advise(
    recorded: &CountedTrace,
    measure: &Measure,
    costs: Option<Costs>,
) -> Result<Vec<Verdict>, Failure> {
    Ok(vec![
        lists::advise(recorded, measure)?,
        flush::advise(recorded, measure, costs)?,
        userpte::advise(recorded, measure)?,
    ])
}
