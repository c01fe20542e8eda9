//! A line through times by size.
use ptarmigan_bench::stats::median;

/// A line: its value at 0 pages, and its slope for each page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CostLine {
    pub start: f64,
    pub page: f64,
}

impl CostLine {
    /// Fits a line to (pages, nanoseconds): the median of the slopes between all pairs, and the
    /// median of the residuals (Theil and Sen). A few wild points do not move it.
    pub(super) fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let pairs = points.iter().enumerate().flat_map(|(i, a)| points[i + 1..].iter().map(move |b| (a, b)));
        let slopes = pairs.filter(|(a, b)| a.0 != b.0).map(|(a, b)| (b.1 - a.1) / (b.0 - a.0));
        let page = median(slopes);
        let start = median(points.iter().map(|(pages, ns)| ns - page * pages));
        (page.is_finite() && start.is_finite()).then_some(CostLine { start, page })
    }

    /// Returns where the other line, which rises less, begins to be lower: the number of pages,
    /// below 0 if it is lower from the beginning. `None` if it does not rise less.
    pub(super) fn meets(self, other: CostLine) -> Option<f64> {
        let rise = self.page - other.page;
        (rise > 0.0).then(|| (other.start - self.start) / rise)
    }
}
