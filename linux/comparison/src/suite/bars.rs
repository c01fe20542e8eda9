//! The ratios that cases have to reach.

use super::ratio::{Pair, ratio};
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
    pub pair: Pair,
    pub ratio: f64,
    pub bar: f64,
}

/// Returns the bar of a case. Suites of others, large pages and
/// other targets have 1: no slower than Linux.
pub fn bar(suite: &str, case: &str, pair: Pair) -> f64 {
    if suite != "ours" || pair != Pair::Never {
        return 1.0;
    }
    BARS.iter().find(|(start, _)| case.starts_with(start)).map_or(1.0, |(_, bar)| *bar)
}

/// Whether there is a case that both kernels have run.
pub fn has_pair(rows: &[SuiteRow]) -> bool {
    cases(rows).iter().any(|case| Pair::ALL.iter().any(|pair| ratio(rows, case, *pair).is_some()))
}

/// Returns the cases that miss their bars, the furthest first.
pub fn missed<'a>(rows: &'a [SuiteRow], suite: &str) -> Vec<Missed<'a>> {
    let each = cases(rows).into_iter().flat_map(|case| Pair::ALL.map(|pair| (case, pair)));
    let with_bars = each.filter_map(|(case, pair)| {
        let (ratio, bar) = (ratio(rows, case, pair)?, bar(suite, case, pair));
        (ratio < bar).then_some(Missed { case, pair, ratio, bar })
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
        let names = |suite| -> Vec<(&str, Pair, f64)> {
            missed(&rows, suite).into_iter().map(|m| (m.case, m.pair, m.bar)).collect()
        };
        assert_eq!(names("ours"), [("mprotect-calls", Pair::Always, 1.0), ("fork-exit", Pair::Never, 4.0)]);
        assert!(has_pair(&rows) && !has_pair(&rows[..1]));
        assert_eq!(names("lmbench-like"), [("mprotect-calls", Pair::Always, 1.0)]);
    }

    #[test]
    fn the_longer_beginning_counts() {
        assert_eq!(bar("ours", "write-fault-new-table", Pair::Never), 4.0);
        assert_eq!(bar("ours", "write-fault", Pair::Never), 3.3);
        assert_eq!(bar("ours", "fork-both-write-4m", Pair::Never), 1.0);
        assert_eq!(bar("ours", "getppid", Pair::Never), 1.0);
        assert_eq!(bar("ours", "fork", Pair::Always), 1.0);
    }
}
