//! Observers of a worker.
use super::look::When;
use crate::replay::input::schedule::Op;
use ptarmigan::format::Format;
use ptarmigan::machine::{Machine, On};
use ptarmigan::space::{Access, Space};

/// Observes the operations of one worker.
pub trait Watch {
    /// Returns whether the observer looks at the space of `op` at that moment.
    #[inline]
    fn looks(_op: &Op, _when: When) -> bool {
        false
    }

    /// Looks at the space of `op`: before the operation, and after it if the space is still there.
    /// Spaces that several workers share are not shown.
    #[inline]
    fn look<F: Format, M: Machine>(&mut self, _on: On<'_, M>, _op: &Op, _when: When, _space: &Space<F>) {}

    /// An operation that may change tables begins. [`done`](Self::done) marks its end.
    #[inline]
    fn begins(&mut self) {}

    /// A fault on `cpu` has been served.
    fn served(&mut self, cpu: usize, va: u64, access: Access);

    /// The operation at index `at` of the program is done.
    #[inline]
    fn done(&mut self, _at: usize) {}
}
