//! A machine whose costs are known, for tests.
use super::case::{Call, Case, Grid};
use super::random::Random;
use super::sample::TimedFlush;

/// A machine that takes its time from a list of prices, in nanoseconds, and has other tenants.
pub(super) struct FakeFlush {
    pub grid: Grid,
    pub page: f64,
    pub full: f64,
    /// Cost of finding a page again. It is 0 after a flush by name.
    pub refill: f64,
    /// The most that a tenant adds in nine of ten cases.
    pub noise: f64,
    pub random: Random,
}

impl FakeFlush {
    /// Cost of a flush by name before the first page.
    pub(super) const START: f64 = 150.0;

    /// Makes a machine on which everything is cheaper above `pages` pages of 175 ns.
    pub(super) fn planted(pages: f64, grid: Grid, seed: u64) -> Self {
        let (page, random) = (175.0, Random(seed));
        let full = Self::START + pages * page;
        FakeFlush { grid, page, full, refill: 10.0, noise: 300.0, random }
    }

    fn chance(&mut self) -> f64 {
        (self.random.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl TimedFlush for FakeFlush {
    type Error = std::convert::Infallible;

    fn time(&mut self, case: Case) -> Result<f64, Self::Error> {
        let Case { setting, call, pages } = case;
        let n = pages as f64;
        let (work, flushes) = match call {
            Call::Revoke => (1000.0 + 70.0 * n, true),
            Call::Allow => (1000.0 + 70.0 * n, false),
            Call::Move => (5000.0 + 7.0 * n, true),
        };
        let flush = match flushes {
            false => 0.0,
            true if pages <= self.grid.ceiling => Self::START + self.page * n,
            true => self.full + self.refill * setting.working_set as f64,
        };
        let ask = if setting.cpus > 1 && flushes { 2600.0 } else { 0.0 };
        // Most of the time little, now and then a time slice.
        let noise = self.noise * self.chance() + if self.chance() > 0.9 { 4e6 * self.chance() } else { 0.0 };
        Ok(work + flush + ask + 2.0 * setting.working_set as f64 + noise)
    }
}
