//! The sanitizer as an instrument: it is asked to translate every address that was faulted in.
use crate::workers::watch::Watch;
use ptarmigan::format::Format;
use ptarmigan::space::{Access, Done};
use ptarmigan_ptsan::{MmuTraits, SoftMmu};
use ptsan::Operation;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The sanitizer of a replay, and the faults that the replay itself finds with its help.
pub struct Sanitized<'h, F: Format, T> {
    mmu: SoftMmu<'h, F, T>,
    /// Pages that could not be used right after their fault.
    unserved: AtomicU64,
}

impl<'h, F: Format, T: MmuTraits> Sanitized<'h, F, T> {
    /// Takes a new sanitizer.
    pub fn new(mmu: SoftMmu<'h, F, T>) -> Self {
        Sanitized { mmu, unserved: AtomicU64::new(0) }
    }

    /// Returns the MMUs of the machine's CPUs, which also observe its policy.
    pub fn mmu(&self) -> &SoftMmu<'h, F, T> {
        &self.mmu
    }

    /// Returns how many pages could not be used right after their fault. These are findings, though
    /// not the sanitizer's.
    pub fn unserved(&self) -> u64 {
        self.unserved.load(Relaxed)
    }

    /// Returns the observer of one worker. With `several` workers, other CPUs may use old
    /// translations until an operation ends.
    pub fn watcher(&self, several: bool) -> Watcher<'_, 'h, F, T> {
        Watcher { sanitized: self, several, operation: None }
    }
}

/// The observer of one worker.
pub struct Watcher<'a, 'h, F: Format, T> {
    sanitized: &'a Sanitized<'h, F, T>,
    several: bool,
    operation: Option<Operation>,
}

impl<F: Format, T: MmuTraits> Watch for Watcher<'_, '_, F, T> {
    fn begins(&mut self) {
        if self.several {
            self.operation = Some(self.sanitized.mmu.with(|sanitizer, _| sanitizer.operation_begins()));
        }
    }

    fn served(&mut self, cpu: usize, va: u64, access: Access, _: Done) {
        let access = match access {
            Access::Read => ptsan::Access::READ,
            Access::Write => ptsan::Access::WRITE,
            Access::Exec => ptsan::Access::EXEC,
        };
        // A page that is unusable right after its fault is a defect of the library, which the
        // sanitizer cannot see. With other workers, the page may be moving to another frame, and
        // the program would fault again.
        let unserved = self.sanitized.mmu.with(|sanitizer, memory| {
            sanitizer.translate(memory, cpu, va, access).is_err() && sanitizer.operations() <= 1
        });
        if unserved {
            self.sanitized.unserved.fetch_add(1, Relaxed);
        }
    }

    fn done(&mut self, _at: usize) {
        if let Some(operation) = self.operation.take() {
            self.sanitized.mmu.with(|sanitizer, memory| sanitizer.operation_ends(memory, operation));
        }
    }
}
