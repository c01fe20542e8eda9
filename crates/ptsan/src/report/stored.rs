//! The store that made a debt: who called its hook.
use super::trace::Trace;
use std::sync::Arc;

/// The callers of the hook of a store. All debts of the store share it.
#[derive(Clone, Debug)]
pub(crate) struct Stored(Arc<StoredCallers>);

#[derive(Debug)]
struct StoredCallers {
    trace: Trace,
    depth: usize,
}

impl Stored {
    /// `depth` is the address of something on the stack, or stands for callers that were given.
    pub(super) fn new(trace: Trace, depth: usize) -> Self {
        Self(Arc::new(StoredCallers { trace, depth }))
    }

    pub(super) fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// Returns whether it is the same store.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn depth(&self) -> usize {
        self.0.depth
    }
}
