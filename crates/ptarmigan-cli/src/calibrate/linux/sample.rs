//! Times of all cases in one process: cases take turns, and a low percentile of each counts.
use serde::{Deserialize, Serialize};

use super::case::{Case, Grid};
use super::random::Random;

/// Something that flushes and takes the time of it: this host, or in tests a machine whose costs
/// are known.
pub(super) trait TimedFlush {
    /// Why no time can be taken.
    type Error;

    /// Carries a case out and returns its nanoseconds.
    fn time(&mut self, case: Case) -> Result<f64, Self::Error>;
}

/// The time of a case in one process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct CaseTime {
    pub case: Case,
    pub ns: f64,
}

/// Interrupts and other tenants only add time, so the lower end of the times is the cost of the
/// calls.
const PERCENTILE: usize = 10;

/// Takes the time of all cases, `passes` times each. Each pass goes through them in another order.
pub(super) fn sample<T: TimedFlush>(
    host: &mut T,
    grid: Grid,
    passes: usize,
    seed: u64,
) -> Result<Vec<CaseTime>, T::Error> {
    let mut random = Random(seed);
    let cases: Vec<Case> = grid.cases().collect();
    let mut times = vec![Vec::with_capacity(passes); cases.len()];
    let mut order: Vec<usize> = (0..cases.len()).collect();
    for _ in 0..passes {
        random.shuffle(&mut order);
        for &i in &order {
            times[i].push(host.time(cases[i])?);
        }
    }
    let low = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() * PERCENTILE / 100).copied().unwrap_or(f64::NAN)
    };
    Ok(cases.into_iter().zip(times).map(|(case, times)| CaseTime { case, ns: low(times) }).collect())
}
