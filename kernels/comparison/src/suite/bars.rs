//! The ratios that cases have to reach.

use super::ratio::{Pages, ratio};
use super::row::{SuiteRow, cases};

/// Beginnings of names of cases of the suite `ours`, and how many times fewer instructions the
/// library has to take without large pages. The first that fits counts.
const BARS: [(&str, f64); 13] = [
    ("fork-both-write", 1.0),
    ("fork", 4.0),
    ("vfork", 4.0),
    ("exit", 4.0),
    ("read-fault-new-table", 4.0),
    ("write-fault-new-table", 4.0),
    ("unmap-", 4.0),
    ("read-fault-same-table", 3.8),
    ("write-fault", 3.3),
    ("mprotect-", 1.0),
    ("mremap-", 1.0),
    ("remap-", 1.0),
    ("", 1.0),
];

/// A case that is slower than it should be.
#[derive(Debug, PartialEq)]
pub struct Missed<'a> {
    pub case: &'a str,
    pub pages: Pages,
    pub ratio: f64,
    pub bar: f64,
}

/// Returns the bar of a case. Suites of others, and large pages, have 1: no slower than Linux.
pub fn bar(suite: &str, case: &str, pages: Pages) -> f64 {
    if suite != "ours" || pages == Pages::Always {
        return 1.0;
    }
    BARS.iter().find(|(start, _)| case.starts_with(start)).map_or(1.0, |(_, bar)| *bar)
}

/// Whether there is a case that both kernels have run.
pub fn has_pair(rows: &[SuiteRow]) -> bool {
    cases(rows).iter().any(|case| Pages::BOTH.iter().any(|pages| ratio(rows, case, *pages).is_some()))
}

/// Returns the cases that miss their bars, the furthest first.
pub fn missed<'a>(rows: &'a [SuiteRow], suite: &str) -> Vec<Missed<'a>> {
    let each = cases(rows).into_iter().flat_map(|case| Pages::BOTH.map(|pages| (case, pages)));
    let with_bars = each.filter_map(|(case, pages)| {
        let (ratio, bar) = (ratio(rows, case, pages)?, bar(suite, case, pages));
        (ratio < bar).then_some(Missed { case, pages, ratio, bar })
    });
    let mut all: Vec<Missed<'_>> = with_bars.collect();
    all.sort_by(|a, b| (a.ratio / a.bar).total_cmp(&(b.ratio / b.bar)));
    all
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn a_case_below_its_bar_is_named() {
        let rows = [
            row("fork-exit", "linux-x86_64", 39.0),
            row("fork-exit", "ptarmigan-x86_64", 10.0),
            row("mprotect-calls", "linux-x86_64", 10.0),
            row("mprotect-calls", "ptarmigan-x86_64", 10.0),
            row("mprotect-calls", "linux-x86_64-always", 10.0),
            row("mprotect-calls", "ptarmigan-x86_64-always", 20.0),
        ];
        let names = |suite| -> Vec<(&str, Pages, f64)> {
            missed(&rows, suite).into_iter().map(|m| (m.case, m.pages, m.bar)).collect()
        };
        assert_eq!(names("ours"), [("mprotect-calls", Pages::Always, 1.0), ("fork-exit", Pages::Never, 4.0)]);
        assert!(has_pair(&rows) && !has_pair(&rows[..1]));
        assert_eq!(names("lmbench-like"), [("mprotect-calls", Pages::Always, 1.0)]);
    }

    #[test]
    fn the_longer_beginning_counts() {
        assert_eq!(bar("ours", "write-fault-new-table", Pages::Never), 4.0);
        assert_eq!(bar("ours", "write-fault", Pages::Never), 3.3);
        assert_eq!(bar("ours", "fork-both-write-4m", Pages::Never), 1.0);
        assert_eq!(bar("ours", "getppid", Pages::Never), 1.0);
        assert_eq!(bar("ours", "fork", Pages::Always), 1.0);
    }
}
