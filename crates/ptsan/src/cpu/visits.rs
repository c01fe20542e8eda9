//! The roots below which a CPU may have walked, and when.
use crate::shadow::FrameRef;

/// The number of roots above which those that are gone are dropped.
const PRUNE_AT: usize = 32;
/// The most roots that are remembered.
const MOST: usize = 1 << 12;

/// A root that a CPU has or had loaded, since the last flush of entries that it may have cached
/// below it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    pub(crate) root: FrameRef,
    pub(crate) space: u64,
    /// Event at which the CPU left it; `u64::MAX` while it is loaded.
    pub(crate) until: u64,
    /// Whether the CPU may hold translations of the space.
    own: bool,
    /// Whether the root had an entry while it was loaded.
    pub(crate) walked: bool,
}

/// The roots that a CPU has or had loaded.
#[derive(Default)]
pub(crate) struct Visits {
    list: Vec<Visit>,
}

impl Visits {
    /// Begins a visit. `exists` says which roots are still tables.
    pub(crate) fn enter(&mut self, root: FrameRef, space: u64, exists: impl Fn(FrameRef) -> bool) {
        if self.list.len() >= PRUNE_AT {
            self.list.retain(|v| v.own || exists(v.root));
            if self.list.len() >= MOST {
                self.list.remove(0);
            }
        }
        match self.list.iter_mut().find(|v| v.root == root && v.space == space) {
            Some(again) => (again.until, again.own) = (u64::MAX, true),
            None => self.list.push(Visit { root, space, until: u64::MAX, own: true, walked: false }),
        }
    }

    /// Ends the visit of the root that is loaded. Without address-space numbers (`asids`) only
    /// global translations outlive it.
    pub(crate) fn leave(&mut self, event: u64, asids: bool) {
        for visit in self.list.iter_mut().filter(|v| v.until == u64::MAX) {
            visit.until = event;
            visit.own &= asids;
        }
    }

    /// Lists the events at which roots were left.
    pub(crate) fn departures(&self) -> impl Iterator<Item = u64> + '_ {
        self.list.iter().map(|v| v.until).filter(|until| *until != u64::MAX)
    }

    /// Tells that the root that is loaded has an entry.
    pub(crate) fn has_entry(&mut self) {
        self.list.iter_mut().filter(|v| v.until == u64::MAX).for_each(|v| v.walked = true);
    }

    /// Everything of a space was flushed at event `at` or later, except global translations.
    pub(crate) fn flushed(&mut self, space: u64, at: u64) {
        for visit in self.list.iter_mut().filter(|v| v.space == space) {
            visit.own &= visit.until > at;
        }
    }

    /// Everything was flushed at event `at` or later.
    pub(crate) fn flushed_all(&mut self, at: u64) {
        self.list.retain(|v| v.until > at);
    }

    /// Forgets a space for good.
    pub(crate) fn forget(&mut self, space: u64) {
        self.list.retain(|v| v.space != space || v.until == u64::MAX);
    }

    /// Returns the spaces for which the CPU may hold an entry below `root` that was stored at event
    /// `since`.
    pub(crate) fn spaces(&self, root: FrameRef, since: u64) -> impl Iterator<Item = u64> + '_ {
        self.list.iter().filter(move |v| v.own && v.root == root && v.until > since).map(|v| v.space)
    }

    /// Returns whether the CPU may hold a global translation below `root` that was stored at event
    /// `since`.
    pub(crate) fn may_hold_global(&self, root: FrameRef, since: u64) -> bool {
        self.list.iter().any(|v| v.root == root && v.until > since)
    }

    /// Returns the visit of another root under the same number, if the CPU may still hold
    /// translations of it.
    pub(crate) fn other_root(&self, root: FrameRef, space: u64) -> Option<Visit> {
        self.list.iter().find(|v| v.space == space && v.root != root && v.own && v.walked).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::FrameTable;

    fn roots() -> [FrameRef; 2] {
        let mut frames = FrameTable::default();
        [0x1000, 0x2000].map(|phys| frames.insert(phys, 0x1000, None, 1))
    }

    fn spaces(v: &Visits, root: FrameRef, since: u64) -> Vec<u64> {
        v.spaces(root, since).collect()
    }

    #[test]
    fn an_entry_may_be_held_if_it_was_there_during_the_visit() {
        let [a, b] = roots();
        for asids in [false, true] {
            let mut v = Visits::default();
            v.enter(a, 1, |_| true);
            assert_eq!(spaces(&v, a, 5), [1]);
            v.leave(10, asids);
            v.enter(b, 2, |_| true);
            assert_eq!(spaces(&v, a, 5).is_empty(), !asids);
            assert!(spaces(&v, a, 15).is_empty(), "stored after it left");
            assert!(v.may_hold_global(a, 5) && !v.may_hold_global(a, 15));
            v.flushed(1, 20);
            assert!(spaces(&v, a, 5).is_empty() && v.may_hold_global(a, 5));
            v.flushed(2, 20);
            assert_eq!(spaces(&v, b, 5), [2], "it may walk again at once");
            v.flushed_all(20);
            assert!(!v.may_hold_global(a, 5) && v.may_hold_global(b, 5));
        }
    }

    #[test]
    fn a_reused_number_is_remembered_until_its_flush() {
        let [a, b] = roots();
        let mut v = Visits::default();
        v.enter(a, 1, |_| true);
        v.leave(10, true);
        assert!(v.other_root(b, 1).is_none(), "nothing was mapped below it");
        v.enter(a, 1, |_| true);
        v.has_entry();
        v.leave(20, true);
        assert!(v.other_root(a, 1).is_none() && v.other_root(b, 2).is_none());
        assert_eq!(v.other_root(b, 1).map(|v| v.root), Some(a));
        v.flushed(1, 20);
        assert!(v.other_root(b, 1).is_none());
    }
}
