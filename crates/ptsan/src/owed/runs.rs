//! The runs of entries that must agree when the stores to them are done.
use crate::arch::MAX_LEVELS;
use crate::report::Stored;
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

/// A run with the last store to an entry that belonged to it before or after.
pub(crate) struct Touched {
    pub(crate) run: Run,
    /// The number of operations that had begun by the last store to any of its entries.
    begun: u64,
    /// Event of the store.
    pub(crate) since: u64,
    /// The callers of the store, if they are remembered.
    pub(crate) store: Option<Stored>,
}

/// The runs to which stores were told since they were checked.
#[derive(Default)]
pub(crate) struct Runs {
    touched: Vec<Touched>,
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

    /// Notes a store to an entry of a run, and returns the run while there is room.
    pub(crate) fn touch(&mut self, run: Run, begun: u64) -> Option<&mut Touched> {
        // Stores to a run come one after another.
        let known = self.touched.iter().rposition(|known| known.run == run);
        let at = known.unwrap_or(self.touched.len());
        if at >= MOST {
            return None;
        }
        if known.is_none() {
            self.touched.push(Touched { run, begun, since: 0, store: None });
        }
        let touched = self.touched.get_mut(at)?;
        touched.begun = begun;
        Some(touched)
    }

    /// Takes the runs whose stores are done.
    pub(crate) fn take(&mut self, done: impl Fn(u64) -> bool) -> Vec<Touched> {
        if self.touched.is_empty() {
            return Vec::new();
        }
        self.touched.extract_if(.., |touched| done(touched.begun)).collect()
    }
}
