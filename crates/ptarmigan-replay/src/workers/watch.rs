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

/// An observer, and maybe another one of the same worker.
pub struct Both<'f, 's, W>(pub &'f mut W, pub Option<&'s mut (dyn Watch + Send)>);

impl<W: Watch> Watch for Both<'_, '_, W> {
    fn starts(&mut self) {
        self.0.starts();
        self.1.iter_mut().for_each(|other| other.starts());
    }

    fn looks(&self, op: &Op, when: When) -> bool {
        self.0.looks(op, when) || self.1.as_ref().is_some_and(|other| other.looks(op, when))
    }

    fn look(&mut self, op: &Op, when: When, space: &dyn Look) {
        if self.0.looks(op, when) {
            self.0.look(op, when, space);
        }
        if let Some(other) = self.1.as_mut().filter(|other| other.looks(op, when)) {
            other.look(op, when, space);
        }
    }

    fn begins(&mut self) {
        self.0.begins();
        self.1.iter_mut().for_each(|other| other.begins());
    }

    fn served(&mut self, cpu: usize, va: u64, access: Access, done: Done) {
        self.0.served(cpu, va, access, done);
        self.1.iter_mut().for_each(|other| other.served(cpu, va, access, done));
    }

    fn block(&mut self, block: VirtRange) {
        self.0.block(block);
        self.1.iter_mut().for_each(|other| other.block(block));
    }

    fn done(&mut self, at: usize) {
        self.0.done(at);
        self.1.iter_mut().for_each(|other| other.done(at));
    }
}
