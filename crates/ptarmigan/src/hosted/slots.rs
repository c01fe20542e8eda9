//! Logical CPUs that threads own.
use crate::cpu::{CpuId, NodeId, Pinned};
use core::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A logical CPU. Whoever owns the slot is that CPU; it cannot leave its thread.
///
/// ```compile_fail,E0277
/// use ptarmigan::hosted::CpuSlot;
/// fn elsewhere(slot: CpuSlot) {
///     std::thread::spawn(move || drop(slot)); // a slot is not `Send`
/// }
/// ```
pub struct CpuSlot {
    cpu: CpuId,
    node: NodeId,
    taken: Arc<[AtomicBool]>,
    _stay: PhantomData<*const ()>,
}

impl CpuSlot {
    pub(super) fn take(taken: &Arc<[AtomicBool]>, cpu: u16, node: u8) -> Option<Self> {
        let flag = taken.get(cpu as usize)?;
        if flag.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(CpuSlot { cpu: CpuId(cpu), node: NodeId(node), taken: taken.clone(), _stay: PhantomData })
    }

    /// The number of the CPU.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Its node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Proof of being on this CPU.
    #[inline(always)]
    pub fn pin(&self) -> Pinned<'_> {
        // SAFETY: 1. the slot is the only one with its number (`take` marked it), and it cannot leave this thread,
        // which runs one thing at a time. 2. the host made per-CPU values for all its slots.
        unsafe { Pinned::assume(self.cpu, self.node) }
    }
}

impl Drop for CpuSlot {
    fn drop(&mut self) {
        if let Some(flag) = self.taken.get(self.cpu.0 as usize) {
            flag.store(false, Ordering::Release);
        }
    }
}
