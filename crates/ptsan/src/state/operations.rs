//! Operations that take a while: until one has ended, other CPUs may use their translations.
//!
//! Between the store that unmaps a page and the last acknowledgement of the flush, an access on
//! another CPU may use the old translation. That is a defect only if the CPU can still do so after
//! the operation has returned. Such an access is therefore suspected, and checked again when every
//! operation that was under way has ended.
use crate::arch::Access;

/// An operation under way, from [`crate::Sanitizer::operation_begins`] to
/// [`crate::Sanitizer::operation_ends`].
/// ```
/// use ptsan::{Arch, Config, Kind, Sanitizer};
///
/// let memory = vec![0u8; 4096];
/// let mut san = Sanitizer::new(Config::new(Arch::x86_64()));
/// let unmap = san.operation_begins();
/// // The code under test stores, flushes, and frees.
/// san.operation_ends(&memory, unmap);
/// san.assert_clean();
/// san.operation_ends(&memory, unmap);
/// assert_eq!(san.count(Kind::Misuse), 1, "it has ended");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation(u64);

/// The most suspected accesses. Further ones are dropped, so that memory stays bounded.
const MOST: usize = 1 << 12;

/// An access answered by a translation that memory no longer gave.
pub(crate) struct Suspect {
    /// The operations under way at the access that have not ended.
    waits_for: Vec<Operation>,
    pub(crate) cpu: usize,
    pub(crate) space: u64,
    pub(crate) va: u64,
    pub(crate) access: Access,
    /// The event of the access.
    pub(crate) event: u64,
}

/// The operations under way, and the suspected accesses.
#[derive(Default)]
pub(crate) struct Operations {
    open: Vec<Operation>,
    suspects: Vec<Suspect>,
    next: u64,
}

impl Operations {
    /// Begins an operation.
    pub(crate) fn begin(&mut self) -> Operation {
        self.next += 1;
        let new = Operation(self.next);
        self.open.push(new);
        new
    }

    /// Returns how many operations have begun so far.
    pub(crate) fn begun(&self) -> u64 {
        self.next
    }

    /// Returns whether every operation has ended that was among the first `begun`.
    pub(crate) fn ended(&self, begun: u64) -> bool {
        self.open.iter().all(|open| open.0 > begun)
    }

    /// Returns how many operations are under way.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Suspects an access if an operation is under way, and returns whether one is.
    pub(crate) fn suspect(&mut self, cpu: usize, space: u64, va: u64, access: Access, event: u64) -> bool {
        if self.open.is_empty() {
            return false;
        }
        let room = self.suspects.len() < MOST;
        let known = |s: &&mut Suspect| s.cpu == cpu && s.space == space && s.va >> 12 == va >> 12;
        if let Some(known) = self.suspects.iter_mut().find(known) {
            // A repeated access also waits for the operations that are under way by now.
            known.waits_for.clone_from(&self.open);
        } else if room {
            let waits_for = self.open.clone();
            self.suspects.push(Suspect { waits_for, cpu, space, va, access, event });
        }
        true
    }

    /// Ends an operation and returns the suspects that wait for no other. Returns `None` if it was
    /// not under way.
    pub(crate) fn end(&mut self, ended: Operation) -> Option<Vec<Suspect>> {
        let at = self.open.iter().position(|o| *o == ended)?;
        self.open.swap_remove(at);
        if self.suspects.is_empty() {
            return Some(Vec::new());
        }
        for suspect in &mut self.suspects {
            suspect.waits_for.retain(|o| *o != ended);
        }
        Some(self.suspects.extract_if(.., |s| s.waits_for.is_empty()).collect())
    }
}
