//! Compares the verdicts of two kernels, test by test.
use super::suite::{Prepared, Suite};
use std::collections::{BTreeMap, BTreeSet};

/// Sums of a suite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Tests, with the ones that do not compile.
    pub tests: usize,
    /// Tests of which Linux says pass or fail.
    pub count: usize,
    /// Tests that pass on Linux.
    pub passed: usize,
    /// Tests with the same verdict on both kernels.
    pub equal: usize,
}

impl Sums {
    /// Returns the cells of a table.
    pub fn cells(&self) -> [usize; 5] {
        [self.tests, self.count, self.passed, self.equal, self.count - self.equal]
    }

    /// Adds other sums.
    pub fn add(&mut self, other: &Sums) {
        self.tests += other.tests;
        self.count += other.count;
        self.passed += other.passed;
        self.equal += other.equal;
    }
}

/// A known difference, or a test that does not count.
struct Known<'a> {
    linux: &'a str,
    here: &'a str,
    reason: &'a str,
}

/// The result of a comparison.
#[derive(Debug, Default, PartialEq)]
pub struct Comparison {
    /// Lines that are printed.
    pub lines: Vec<String>,
    /// The sums.
    pub sums: Sums,
    /// Whether the differences are the known ones.
    pub is_known: bool,
}

/// Compares verdicts. `list` has the known differences with their reasons.
pub fn compare(
    suite: &Suite,
    prepared: &Prepared,
    list: &[&str],
    linux: &[(String, String)],
    here: &[(String, String)],
) -> Comparison {
    let known: BTreeMap<&str, Known<'_>> = list
        .iter()
        .filter_map(|line| {
            let mut parts = line.splitn(4, '|').map(str::trim);
            let test = parts.next()?;
            Some((test, Known { linux: parts.next()?, here: parts.next()?, reason: parts.next()? }))
        })
        .collect();
    let of_linux: BTreeMap<&str, &str> = linux.iter().map(|(test, verdict)| (&**test, &**verdict)).collect();
    let listed = format!("programs/verdicts/{}.list", suite.name);
    let (mut lines, mut found, mut is_known) = (Vec::new(), BTreeSet::new(), true);
    for (test, reason) in &prepared.left {
        lines.push(format!("left out: {test}: {reason}"));
    }
    let mut groups: Vec<(&str, Sums)> = Vec::new();
    for (test, ours) in here {
        let theirs = of_linux.get(&**test).copied().unwrap_or("");
        let row = known.get(&**test);
        if theirs != "pass" && theirs != "fail" {
            let reason = row.map_or("", |row| row.reason);
            let colon = if reason.is_empty() { "" } else { ": " };
            lines.push(format!("does not count: {test}: Linux {theirs}, here {ours}{colon}{reason}"));
            found.insert(&**test);
            // A test that is late on a busy machine must not drop out of the sums in silence.
            if row.is_none_or(|row| row.linux != theirs) {
                lines.push(format!("no longer counts: {test}: Linux {theirs}, which is not in {listed}"));
                is_known = false;
            }
            continue;
        }
        let group = test.split('/').next().unwrap_or(test);
        if groups.iter().all(|(name, _)| *name != group) {
            groups.push((group, Sums::default()));
        }
        let Some((_, sums)) = groups.iter_mut().find(|(name, _)| *name == group) else { continue };
        sums.count += 1;
        sums.passed += usize::from(theirs == "pass");
        if theirs == ours {
            sums.equal += 1;
            continue;
        }
        let text = format!("differs: {test}: Linux {theirs}, here {ours}");
        if let Some(row) = row.filter(|row| row.linux == theirs && row.here == ours) {
            lines.push(format!("{text}: {}", row.reason));
            found.insert(&**test);
        } else {
            lines.push(format!("{text}: not in {listed}"));
            is_known = false;
        }
    }
    for (test, Known { linux, here, .. }) in known.iter().filter(|(test, _)| !found.contains(*test)) {
        lines.push(format!("listed, and not seen: {test}: Linux {linux}, here {here}"));
        is_known = false;
    }
    let mut sums = Sums { tests: here.len() + prepared.uncompiled.len(), ..Sums::default() };
    for (name, Sums { count, passed, equal, .. }) in groups.iter().filter(|_| groups.len() > 1) {
        lines.push(format!("{name:<11} {count:>3} count, Linux passes {passed:>3}, equal {equal:>3}"));
    }
    groups.iter().for_each(|(_, of_group)| sums.add(of_group));
    let [tests, count, passed, equal, differ] = sums.cells();
    lines.push(format!(
        "{}: {tests} tests, {} do not compile; {count} count, of which Linux passes {passed}; {equal} equal, {differ} differ",
        suite.title,
        prepared.uncompiled.len()
    ));
    Comparison { lines, sums, is_known }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|&(test, verdict)| (test.to_owned(), verdict.to_owned())).collect()
    }

    fn compared(list: &[&str], linux: &[(&str, &str)], here: &[(&str, &str)]) -> Comparison {
        let suite = super::super::suite::read().unwrap().remove(0);
        let left = pairs(&[("a/9", "slow")]);
        compare(&suite, &Prepared { left, ..Prepared::default() }, list, &pairs(linux), &pairs(here))
    }

    #[test]
    fn known_differences_are_told_from_new_ones() {
        let list =
            ["a/1 | pass | fail | no files", "a/2 | pass | fail | no files", "b/1 | late | late | slow"];
        let linux = [("a/1", "pass"), ("a/2", "pass"), ("b/1", "late"), ("b/2", "fail")];
        let here = [("a/1", "fail"), ("a/2", "fail"), ("b/1", "late"), ("b/2", "fail")];
        let all = compared(&list, &linux, &here);
        assert!(all.is_known);
        assert_eq!(all.sums, Sums { tests: 4, count: 3, passed: 2, equal: 1 });
        assert!(all.lines.contains(&"b             1 count, Linux passes   0, equal   1".to_owned()));
        let last =
            "POSIX tests: 4 tests, 0 do not compile; 3 count, of which Linux passes 2; 1 equal, 2 differ";
        assert_eq!(all.lines.last().unwrap(), last);
    }

    #[test]
    fn new_gone_and_uncounted_differences_are_named() {
        let wrong = |list: &[&str], linux: &str, here: &str, part: &str| {
            let all = compared(list, &[("a/1", linux)], &[("a/1", here)]);
            assert!(!all.is_known && all.lines.iter().any(|line| line.starts_with(part)), "{:?}", all.lines);
        };
        wrong(&[], "pass", "fail", "differs: a/1: Linux pass, here fail: not in");
        wrong(&["a/1 | pass | skip | x"], "pass", "fail", "differs: a/1: Linux pass, here fail: not in");
        wrong(&["a/1 | pass | fail | x"], "pass", "pass", "listed, and not seen: a/1: Linux pass, here fail");
        wrong(&[], "late", "late", "no longer counts: a/1: Linux late");
    }
}
