//! A node: its cached pages, and its limits.
use super::classes::CLASSES;
use super::depot::Depot;
use super::doorbell::Doorbell;
use crate::bootmem::BootArray;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The basis of a node's limits: frames that were set, or that are free.
#[derive(Clone, Copy)]
pub(super) struct Basis {
    pub low: u32,
    /// 0 where no tables are in high memory.
    pub high: u32,
}

impl Basis {
    /// Returns a number that changes with it, but for rare pairs of changes.
    #[inline]
    fn key(self) -> u32 {
        self.low ^ self.high.rotate_left(12)
    }
}

/// A node's depots, and its requests to its CPUs.
pub(super) struct Node {
    /// One for each class. Not in place, so that no set-up function has several of them on its
    /// stack.
    depots: BootArray<Depot>,
    pub doorbell: Doorbell,
    /// The [key](Basis::key) of the basis of the depots' limits. Written under the lock, after the
    /// limits.
    basis: AtomicU32,
    setting: SpinLock<()>,
}

impl Node {
    /// Makes a node whose depots have limits of 0.
    pub fn new(depots: BootArray<Depot>) -> Self {
        debug_assert_eq!(depots.len(), CLASSES);
        let (basis, setting) = (AtomicU32::new(0), SpinLock::new(()));
        Node { depots, doorbell: Doorbell::new(), basis, setting }
    }

    /// Returns the depot of a class.
    #[inline]
    pub fn depot(&self, class: usize) -> &Depot {
        self.depots.of(class)
    }

    /// Iterates over the depots of all classes.
    pub fn depots(&self) -> impl Iterator<Item = &Depot> {
        self.depots.iter()
    }

    /// Returns whether the depots' limits follow from `basis` already.
    #[inline]
    pub fn has_limits_of(&self, basis: Basis) -> bool {
        self.basis.load(Relaxed) == basis.key()
    }

    /// Sets the depots' limits, and rings the doorbell if one is over.
    ///
    /// One caller at a time sets them, by the state at its turn. Otherwise an old limit could
    /// overwrite a new one, while the basis is the new one's.
    pub fn set_limits(
        &self,
        basis: impl FnOnce() -> Basis,
        limits: impl FnOnce(Basis) -> [u32; CLASSES],
        other_nodes: bool,
    ) {
        let _turn = self.setting.lock();
        let basis = basis();
        for (depot, pages) in self.depots.iter().zip(limits(basis)) {
            depot.set_limit(pages, other_nodes);
            if depot.is_over() {
                self.doorbell.ring_over_limit();
            }
        }
        self.basis.store(basis.key(), Relaxed);
    }
}
