//! The runs of entries that must agree when the stores to them are done.
use crate::arch::MAX_LEVELS;
use crate::shadow::FrameRef;

/// The most runs that are remembered. Further ones are not checked.
const MOST: usize = 1 << 12;

/// Neighbouring entries of a table that hardware may cache as one translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) table: FrameRef,
    pub(crate) level: u8,
    /// Index of the first entry.
    pub(crate) first: u64,
    /// The number of entries is two to this power.
    pub(crate) log2: u8,
}

/// The runs to which stores were told since they were checked.
#[derive(Default)]
pub(crate) struct Runs {
    /// Each with the number of operations that had begun by the last store.
    touched: Vec<(Run, u64)>,
    /// The longest run of each level so far.
    longest: [u8; MAX_LEVELS],
}

impl Runs {
    /// Returns the longest run of a level so far, if the entry that was stored belongs to one of
    /// `log2`.
    #[inline]
    pub(crate) fn longest(&mut self, level: u8, log2: u8) -> u8 {
        let longest = &mut self.longest[usize::from(level)];
        *longest = log2.max(*longest);
        *longest
    }

    /// Notes a store to an entry of a run.
    pub(crate) fn touch(&mut self, run: Run, begun: u64) {
        // Stores to a run come one after another.
        if let Some((_, at)) = self.touched.iter_mut().rev().find(|(known, _)| *known == run) {
            *at = begun;
        } else if self.touched.len() < MOST {
            self.touched.push((run, begun));
        }
    }

    /// Takes the runs whose stores are done.
    pub(crate) fn take(&mut self, done: impl Fn(u64) -> bool) -> Vec<Run> {
        if self.touched.is_empty() {
            return Vec::new();
        }
        self.touched.extract_if(.., |(_, begun)| done(*begun)).map(|(run, _)| run).collect()
    }
}
