//! Advice to a kernel that runs the program: the recording is replayed with other settings.
mod flush;
mod lists;
mod userpte;

use super::advice::Verdict;
use super::measure::Measure;
use ptarmigan::tlb::Costs;
use ptarmigan_replay::SoloTrace;
use ptarmigan_term::Failure;

/// Looks for advice to a kernel. `costs` are the prices of flushes on its machine, if they are
/// known. `high` says that it has high memory, and so `userpte=`.
///
/// # Errors
/// If a replay cannot be set up, or memory runs out.
pub fn advise(
    recorded: &SoloTrace,
    measure: &Measure,
    costs: Option<Costs>,
    high: bool,
) -> Result<Vec<Verdict>, Failure> {
    let mut verdicts = vec![lists::advise(recorded, measure)?, flush::advise(recorded, measure, costs)?];
    if high {
        verdicts.push(userpte::advise(recorded, measure)?);
    }
    Ok(verdicts)
}
