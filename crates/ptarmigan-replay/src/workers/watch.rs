//! Observers of a worker.
use super::look::{Look, When};
use crate::input::schedule::Op;
use ptarmigan::addr::VirtRange;
use ptarmigan::space::{Access, Done};

/// Observes the operations of one worker.
///
/// Workers call it through a pointer, and workers without an observer do not: the engine is large,
/// and compiled for each machine already.
pub trait Watch {
    /// The worker starts.
    fn starts(&mut self) {}

    /// Returns whether the observer looks at a space of `op` at that moment.
    fn looks(&self, _op: &Op, _when: When) -> bool {
        false
    }

    /// Looks at the space of `op`: before the operation, at the space that it made, and after it if
    /// the space is still there. Spaces that several workers share are not shown.
    fn look(&mut self, _op: &Op, _when: When, _space: &dyn Look) {}

    /// An operation that may change tables begins. [`done`](Self::done) marks its end.
    fn begins(&mut self) {}

    /// A fault on `cpu` has been served.
    fn served(&mut self, _cpu: usize, _va: u64, _access: Access, _done: Done) {}

    /// That fault has mapped all of a block of pages.
    fn block(&mut self, _block: VirtRange) {}

    /// The operation at index `at` of the program is done.
    fn done(&mut self, _at: usize) {}
}

/// The observers of a job's workers, in their order. Workers beyond the last have none.
pub type Watches<'w> = Vec<&'w mut (dyn Watch + Send)>;

/// Returns the observers as a job takes them.
pub fn watches<W: Watch + Send>(watches: &mut [W]) -> Watches<'_> {
    watches.iter_mut().map(|watch| watch as &mut (dyn Watch + Send)).collect()
}
