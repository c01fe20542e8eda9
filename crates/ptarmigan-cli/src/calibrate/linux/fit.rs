//! Fits one process's samples of one setting.
use super::case::{Call, Grid, Setting};
use super::line::CostLine;
use super::sample::CaseTime;
use ptarmigan_bench::stats::median;

/// Costs of flushes in one process, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit {
    /// Pages above which everything is cheaper, by `mprotect` and by `mremap`. Below 0 if
    /// everything is cheaper than the beginning of a flush by name.
    pub break_even: [f64; 2],
    /// Cost of a flush by name before the first page, beyond the work on entries.
    pub start: f64,
    /// Cost of each page.
    pub page: f64,
}

impl Fit {
    /// Fits the samples of a setting. `None` if the times do not rise with the number of pages as
    /// long as these are flushed by name.
    ///
    /// # How
    ///
    /// 1. Times of `Revoke` less those of `Allow` are those of the flush, as both do the same work
    ///    on entries. Times of `Move` have the work in them.
    /// 2. Up to the kernel's ceiling there is one line, and above it another one. Work that is left
    ///    is part of both.
    /// 3. The lines meet at the break-even.
    pub(super) fn of(samples: &[CaseTime], setting: Setting, grid: Grid) -> Option<Self> {
        let time = |call, pages| {
            let wanted =
                |s: &&CaseTime| s.case.setting == setting && s.case.call == call && s.case.pages == pages;
            samples.iter().find(wanted).map(|s| s.ns)
        };
        let points = |ns: &dyn Fn(usize) -> Option<f64>| -> Option<(CostLine, CostLine)> {
            let of = |range: &dyn Fn(usize) -> bool| {
                let sizes = grid.sizes().filter(|pages| range(*pages));
                let points: Option<Vec<_>> = sizes.map(|pages| Some((pages as f64, ns(pages)?))).collect();
                CostLine::fit(&points?)
            };
            Some((of(&|pages| pages <= grid.ceiling)?, of(&|pages| pages > grid.ceiling)?))
        };
        let flush = |pages| Some(time(Call::Revoke, pages)? - time(Call::Allow, pages)?);
        let (named, full) = points(&flush)?;
        let (moved, moved_full) = points(&|pages| time(Call::Move, pages))?;
        Some(Fit {
            break_even: [named.meets(full)?, moved.meets(moved_full)?],
            start: named.start,
            page: median([named.page - full.page, moved.page - moved_full.page]),
        })
    }

    /// Returns the estimate of both calls together.
    pub(super) fn pages(&self) -> f64 {
        median(self.break_even)
    }
}
