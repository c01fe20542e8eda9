//! The estimate over several processes.
use serde::Serialize;

use super::case::{Grid, Setting};
use super::fit::Fit;
use super::sample::CaseTime;
use ptarmigan_bench::stats::median;

/// Processes below which there is no range.
pub(super) const LEAST: usize = 9;
/// The most by which two estimates may differ: the larger of a page and so much of them.
const APART: f64 = 0.15;

/// The number of pages above which everything is cheaper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct BreakEven {
    #[serde(flatten)]
    pub setting: Setting,
    /// The median over the processes; 0 if everything is cheaper from the first page on.
    pub pages: f64,
    /// Where the median is with 95 % confidence.
    pub low: f64,
    pub high: f64,
    /// The median as fitted, by `mprotect`, by `mremap` and by both: below 0 where the beginning of
    /// a flush by name is dearer than everything.
    pub fitted: f64,
    pub mprotect: f64,
    pub mremap: f64,
    /// More than the kernel ever flushes by name: the line by name is extended.
    pub extrapolated: bool,
}

impl BreakEven {
    /// Returns whether another calibration may well come to another result.
    pub(super) fn is_noisy(&self) -> bool {
        (self.high - self.low) / 2.0 > f64::max(1.0, APART * self.pages)
    }
}

/// The estimate of all processes for one setting.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    pub break_even: BreakEven,
    /// The cost of a flush by name before the first page, in nanoseconds.
    pub start: f64,
    /// The cost of each page, in nanoseconds.
    pub page: f64,
}

/// Too few processes have times that costs follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooFew {
    pub setting: Setting,
    pub usable: usize,
}

impl Estimate {
    /// Estimates a setting from the samples of each process.
    ///
    /// # Errors
    ///
    /// If fewer than [`LEAST`] processes can be used.
    pub(super) fn of(processes: &[Vec<CaseTime>], setting: Setting, grid: Grid) -> Result<Self, TooFew> {
        let fits: Vec<Fit> = processes.iter().filter_map(|samples| Fit::of(samples, setting, grid)).collect();
        if fits.len() < LEAST {
            return Err(TooFew { setting, usable: fits.len() });
        }
        let over = |value: &dyn Fn(&Fit) -> f64| median(fits.iter().map(value));
        let fitted = over(&Fit::pages);
        let (low, high) = range(fits.iter().map(Fit::pages).collect());
        let break_even = BreakEven {
            setting,
            pages: fitted.max(0.0),
            low: low.max(0.0),
            high: high.max(0.0),
            fitted,
            mprotect: over(&|fit| fit.break_even[0]),
            mremap: over(&|fit| fit.break_even[1]),
            extrapolated: fitted > grid.ceiling as f64,
        };
        Ok(Estimate { break_even, start: over(&|fit| fit.start), page: over(&|fit| fit.page) })
    }
}

/// Returns the range in which the median of the population is with a confidence of 95 %: from one
/// value to another as far from the other end. It makes no assumption about the distribution of
/// values.
fn range(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    // Each value is on either side of the median like a coin. `outside` is the chance that at most
    // `cut` of them are on one side, or on the other.
    let (mut chance, mut outside, mut cut) = (0.5f64.powi(n as i32), 0.0, 0);
    while cut < n / 2 {
        outside += 2.0 * chance;
        if outside > 0.05 {
            break;
        }
        cut += 1;
        chance *= (n - cut + 1) as f64 / cut as f64;
    }
    let cut = cut.saturating_sub(1);
    (values[cut], values[n - 1 - cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_the_median_leaves_out_what_chance_allows() {
        let values = |n: i32| (1..=n).map(f64::from).collect::<Vec<_>>();
        // Binomial tables: the second of nine, the fourth of fifteen.
        assert_eq!(range(values(9)), (2.0, 8.0));
        assert_eq!(range(values(15)), (4.0, 12.0));
        assert_eq!(range(values(25)), (8.0, 18.0));
    }
}
