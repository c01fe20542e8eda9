//! The two trees of AArch64 in one machine. Each has a sanitizer: calls are told to both, and those
//! with an address to the one whose half it is in.
use crate::machine::{Checker, Machine};
use ptsan::{Finding, Kind, Memory, Sanitizer, Shared};

/// The kinds of findings that say that a call is wrong, in either tree.
const OF_CALLS: [Kind; 4] = [Kind::Misuse, Kind::DoubleFree, Kind::ForeignFree, Kind::DoubleAllocate];

impl Machine {
    /// Adds the sanitizer of the upper tree.
    pub(crate) fn with_upper(mut self, upper: Shared) -> Self {
        self.upper = Some(upper);
        self
    }

    /// Returns whether the machine has two trees.
    pub(crate) const fn has_upper(&self) -> bool {
        self.upper.is_some()
    }

    /// Calls the sanitizer of the upper tree, or returns `None` without one.
    pub(crate) fn check_upper<R>(&self, hook: impl FnOnce(&mut Sanitizer, &dyn Memory) -> R) -> Option<R> {
        match (&self.upper, &self.checker) {
            (Some(upper), Checker::Told(_, source)) => Some(Self::inside(|| hook(&mut upper.lock(), source))),
            _ => None,
        }
    }

    /// Calls the sanitizer of the tree that translates an address.
    pub(crate) fn check_at<R>(&self, va: u64, hook: impl FnOnce(&mut Sanitizer, &dyn Memory) -> R) -> R {
        match (&self.upper, &self.checker) {
            (Some(upper), Checker::Told(_, source)) if va >> 63 == 1 => {
                Self::inside(|| hook(&mut upper.lock(), source))
            }
            _ => self.check(hook),
        }
    }

    /// Tells both sanitizers. A call that is wrong in itself is one finding: the second one is not
    /// told.
    pub(crate) fn tell(&self, hook: impl Fn(&mut Sanitizer, &dyn Memory)) {
        if !self.has_upper() {
            return self.check(hook);
        }
        let is_right = self.check(|s, memory| {
            let wrong = |s: &Sanitizer| OF_CALLS.map(|kind| s.count(kind));
            let before = wrong(s);
            hook(s, memory);
            wrong(s) == before
        });
        if is_right {
            self.check_upper(hook);
        }
    }

    /// Returns the sum of a count of both.
    pub(crate) fn sum(&self, count: impl Fn(&Sanitizer) -> u64) -> u64 {
        self.check(|s, _| count(s)) + self.check_upper(|s, _| count(s)).unwrap_or(0)
    }

    /// Returns a finding: those of the upper tree come behind the others. With it, whether it is
    /// one of these, and its index there.
    pub(crate) fn finding(&self, index: usize) -> Option<(Finding, (bool, usize))> {
        let (found, lower) = self.check(|s, _| (s.findings().get(index).cloned(), s.findings().len()));
        if let Some(found) = found {
            return Some((found, (false, index)));
        }
        let index = index.checked_sub(lower)?;
        let found = self.check_upper(|s, _| s.findings().get(index).cloned()).flatten()?;
        Some((found, (true, index)))
    }

    /// Prints something of both: the text of the upper one comes behind, if it has any findings.
    pub(crate) fn print(&self, print: impl Fn(&Sanitizer) -> String) -> String {
        let mut text = self.check(|s, _| print(s));
        let upper = self.check_upper(|s, _| (s.total() > 0 || s.allowed() > 0).then(|| print(s)));
        if let Some(upper) = upper.flatten() {
            text.push('\n');
            text.push_str(&upper);
        }
        text
    }
}
