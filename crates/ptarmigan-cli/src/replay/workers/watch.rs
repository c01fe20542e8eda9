//! Observers of a worker.
use ptarmigan::space::Access;

/// Observes the operations of one worker. [`Unwatched`] costs nothing.
pub trait Watch {
    /// An operation that may change tables begins. [`done`](Self::done) marks its end.
    #[inline(always)]
    fn begins(&mut self) {}

    /// A fault on `cpu` has been served.
    fn served(&mut self, cpu: usize, va: u64, access: Access);

    /// The operation at index `at` of the program is done.
    #[inline(always)]
    fn done(&mut self, _at: usize) {}
}

/// Observes nothing.
#[derive(Clone, Copy)]
pub struct Unwatched;

impl Watch for Unwatched {
    #[inline(always)]
    fn served(&mut self, _: usize, _: u64, _: Access) {}
}
