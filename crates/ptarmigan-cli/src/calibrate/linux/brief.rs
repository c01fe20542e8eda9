//! This host's times as one process sees them, for a benchmark that has no minutes.
use super::case::{Call, Case, Grid, Setting};
use super::ceiling::Ceiling;
use super::fit::Fit;
use super::process::Order;
use super::sample::CaseTime;
use crate::calibrate::HostTime;
use ptarmigan_term::Failure;

const PASSES: usize = 60;
/// The working set of those cases that have one, in pages.
const WORKING_SET: usize = 512;

/// Measures flushes of a page, of the longest range, and of everything, without and with pages that
/// are read again.
pub(in crate::calibrate) fn measure() -> Result<Vec<HostTime>, Failure> {
    let grid = Grid { ceiling: Ceiling::read()?.pages, cpus: 1 };
    let samples = Order { grid, passes: PASSES, seed: 1 }.measure()?;
    let sizes = [("page", 1), ("range", grid.ceiling), ("full", grid.ceiling + 1)];
    let mut rows = Vec::new();
    for (working_set, suffix) in [(0, String::new()), (WORKING_SET, format!("-refill-{WORKING_SET}"))] {
        for (name, pages) in sizes {
            let size = if name == "range" { format!("-{pages}") } else { String::new() };
            let value = flush(&samples, Setting { cpus: 1, working_set }, pages);
            rows.push(HostTime { case: format!("{name}{size}{suffix}"), value, unit: "ns", pages });
        }
        let fit = Fit::of(&samples, Setting { cpus: 1, working_set }, grid);
        if let Some(fit) = fit {
            let case = format!("break-even{suffix}");
            let value = fit.pages().max(0.0);
            rows.push(HostTime { case, value, unit: "pages", pages: value as usize });
        }
    }
    Ok(rows)
}

/// Returns the time of the flush alone, and of finding the working set again.
fn flush(samples: &[CaseTime], setting: Setting, pages: usize) -> f64 {
    let time = |call| {
        let case = Case { setting, call, pages };
        samples.iter().find(|sample| sample.case == case).map_or(f64::NAN, |sample| sample.ns)
    };
    time(Call::Revoke) - time(Call::Allow)
}
