//! Defines the cases that are timed: a call on so many pages, beside a working set, on one CPU or
//! two.
use serde::{Deserialize, Serialize};

/// A system call that changes page-table entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Call {
    /// `mprotect` that takes all access away. It flushes.
    Revoke,
    /// `mprotect` that allows reads of pages without any access. It does the same work on entries,
    /// but flushes no page, as the TLB holds no entries without access.
    Allow,
    /// `mremap` to another address. It flushes.
    Move,
}

impl Call {
    const ALL: [Call; 3] = [Call::Revoke, Call::Allow, Call::Move];
}

/// Where calls are timed: beside how many pages in use, and on how many CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Setting {
    /// CPUs on which the process runs. The second one only runs a busy loop.
    pub cpus: u32,
    /// Pages that are read again after the call, in random order. They are part of the time.
    pub working_set: usize,
}

/// One case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Case {
    pub setting: Setting,
    pub call: Call,
    /// Pages that the call changes.
    pub pages: usize,
}

/// The working sets, in pages.
pub(super) const WORKING_SETS: [usize; 3] = [0, 512, 1500];

/// Cases of one process, for a kernel that flushes up to `ceiling` pages by name, and everything
/// above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Grid {
    pub ceiling: usize,
    pub cpus: u32,
}

impl Grid {
    /// The lowest ceiling that leaves enough sizes for a line.
    pub(super) const LOWEST: usize = 8;
    /// The highest ceiling: both ends of a move lie in one leaf table.
    pub(super) const HIGHEST: usize = 64;
    /// Sizes on each side of the ceiling.
    const SIZES: usize = 9;

    /// Returns the settings.
    pub(super) fn settings(self) -> impl Iterator<Item = Setting> {
        WORKING_SETS.into_iter().map(move |working_set| Setting { cpus: self.cpus, working_set })
    }

    /// Returns the numbers of pages: as many up to the ceiling as above it, evenly spaced.
    pub(super) fn sizes(self) -> impl Iterator<Item = usize> {
        let spaced = |first: usize, last: usize| {
            (0..Self::SIZES).map(move |i| first + (last - first) * i / (Self::SIZES - 1))
        };
        spaced(1, self.ceiling).chain(spaced(self.ceiling + 1, self.most_pages()))
    }

    /// Returns the most pages of a case. Home has one more, so that each call splits its area.
    pub(super) fn most_pages(self) -> usize {
        4 * self.ceiling
    }

    /// Returns all cases.
    pub(super) fn cases(self) -> impl Iterator<Item = Case> {
        self.settings().flat_map(move |setting| {
            Call::ALL
                .into_iter()
                .flat_map(move |call| self.sizes().map(move |pages| Case { setting, call, pages }))
        })
    }
}
