//! Maps threads to the CPUs for which they stand.
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// The CPUs of threads.
#[derive(Default)]
pub(crate) struct Threads(Mutex<HashMap<ThreadId, usize>>);

impl Threads {
    /// Returns the CPU that stands for this thread: the one given to [`Threads::run_on`], else the
    /// lowest that no thread has.
    pub(crate) fn here(&self) -> usize {
        let mut cpus = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&cpu) = cpus.get(&thread::current().id()) {
            return cpu;
        }
        let free = (0..=cpus.len()).find(|c| !cpus.values().any(|taken| taken == c)).unwrap_or_default();
        cpus.insert(thread::current().id(), free);
        free
    }

    /// Makes this thread stand for the CPU from now on. Returns the one that it stood for, if it
    /// had one.
    pub(crate) fn run_on(&self, cpu: usize) -> Option<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(thread::current().id(), cpu)
    }

    /// Makes this thread stand for no CPU.
    pub(crate) fn leave(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&thread::current().id());
    }
}
