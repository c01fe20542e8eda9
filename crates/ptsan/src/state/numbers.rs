//! The numbers of spaces (ASID, PCID, VMID) that roots were given.
use crate::hash::FastMap;

/// Which number belongs to which root.
#[derive(Default)]
pub(crate) struct Numbers {
    of_root: FastMap<u64, u64>,
    root_of: FastMap<u64, u64>,
}

impl Numbers {
    /// Gives a root a number, in place of the one that it had. Returns the root that the number
    /// belongs to, if it is another one; then nothing changes.
    pub(crate) fn assign(&mut self, root: u64, number: u64) -> Option<u64> {
        if let Some(&other) = self.root_of.get(&number).filter(|other| **other != root) {
            return Some(other);
        }
        if let Some(old) = self.of_root.insert(root, number) {
            self.root_of.remove(&old);
        }
        self.root_of.insert(number, root);
        None
    }

    /// Takes the number of a root back.
    pub(crate) fn release(&mut self, root: u64) {
        if let Some(number) = self.of_root.remove(&root) {
            self.root_of.remove(&number);
        }
    }

    /// Takes all numbers back but those of the roots to keep.
    pub(crate) fn keep(&mut self, keep: impl Fn(u64) -> bool) {
        self.of_root.retain(|root, _| keep(*root));
        self.root_of.retain(|_, root| keep(*root));
    }

    /// Returns the number that a root was given.
    pub(crate) fn of(&self, root: u64) -> Option<u64> {
        self.of_root.get(&root).copied()
    }

    /// Returns the root that was given a number.
    pub(crate) fn root_of(&self, number: u64) -> Option<u64> {
        self.root_of.get(&number).copied()
    }
}
