//! The hooks of operations that take a while.
use crate::memory::Memory;
use crate::report::Place;
use crate::state::{Operation, Sanitizer};

impl Sanitizer {
    /// Begins an operation that changes tables, on any CPU. Until it [ends](Self::operation_ends),
    /// an access through an old translation is not reported at once.
    ///
    /// Only needed where several CPUs work at the same time. Code that runs one operation after the
    /// other and accesses memory in between is checked exactly without it.
    /// ```
    /// use ptsan::{Arch, Config, Operation, Sanitizer};
    ///
    /// let (mut san, memory) = (Sanitizer::new(Config::new(Arch::x86_64())), vec![0u8; 1 << 16]);
    /// let unmap: Operation = san.operation_begins();
    /// // CPU 0 stores; CPU 1 may use the old translation; both flush.
    /// san.operation_ends(&memory, unmap);
    /// assert_eq!(san.operations(), 0);
    /// ```
    pub fn operation_begins(&mut self) -> Operation {
        self.hook(|s| s.operations.begin())
    }

    /// Ends the operation: pages that it unmapped must have been flushed by now on every CPU that
    /// held them.
    ///
    /// Reports translations that CPUs used meanwhile and still hold
    /// ([`Kind::StaleUse`](crate::Kind::StaleUse)).
    pub fn operation_ends(&mut self, memory: &(impl Memory + ?Sized), operation: Operation) {
        self.hook(|s| match s.operations.end(operation) {
            Some(suspects) => {
                for suspect in suspects {
                    s.look_again(memory, &suspect);
                }
                s.flushes_due(memory);
            }
            None => s.bad_argument(
                Place::default(),
                "operation_ends needs an operation that this sanitizer began and that has not ended",
            ),
        });
    }

    /// Returns the number of operations under way.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.operations.len()
    }
}
