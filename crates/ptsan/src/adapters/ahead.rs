//! Walkers that walk by themselves at every hook.
use super::locked::locked;
use crate::{Memory, Sanitizer};
use std::sync::{Arc, Mutex};

/// The CPUs and addresses of the walks.
#[derive(Clone, Default)]
pub(super) struct Ahead(Arc<Mutex<Vec<(usize, u64)>>>);

impl Ahead {
    pub(super) fn add(&self, cpu: usize, va: u64) {
        locked(&self.0).push((cpu, va));
    }

    pub(super) fn clear(&self) {
        locked(&self.0).clear();
    }

    pub(super) fn walk(&self, san: &mut Sanitizer, memory: &(impl Memory + ?Sized)) {
        for &(cpu, va) in &*locked(&self.0) {
            if san.cpus.get(cpu).is_some_and(|c| c.loaded.is_some()) {
                san.probe_walk(memory, cpu, va);
            }
        }
    }
}
