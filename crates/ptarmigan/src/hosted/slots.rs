//! Logical CPUs that threads own.
use crate::cpu::{CpuId, MachineId, NodeId, Pinned};
use core::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which thread owns each CPU of a machine; [`NOBODY`] if none does.
#[derive(Clone)]
pub(super) struct Owners {
    machine: MachineId,
    cpus: Arc<[AtomicUsize]>,
}

const NOBODY: usize = 0;

/// A number for the calling thread, never 0.
fn this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(NOBODY + 1);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|n| *n)
}

impl Owners {
    pub fn new(machine: MachineId, cpus: usize) -> Self {
        Owners { machine, cpus: (0..cpus).map(|_| AtomicUsize::new(NOBODY)).collect() }
    }

    /// Runs `f` with the pin of `cpu` if the calling thread owns that CPU, or no thread does.
    pub fn act_for(&self, cpu: CpuId, node: NodeId, f: impl FnOnce(&Pinned<'_>)) {
        let Some(owner) = self.cpus.get(cpu.0 as usize) else { return };
        let me = this_thread();
        let mine = owner.load(Ordering::Relaxed) == me;
        if !mine && owner.compare_exchange(NOBODY, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        // The CPU is nobody's again also if `f` panics.
        let _borrowed = (!mine).then_some(Borrowed(owner));
        // SAFETY: 1. this thread owns the CPU, by a slot or since a moment ago, and goes on with
        // whatever it was doing as that CPU after `f` returns: as if interrupted. 2. there is an
        // owner for each CPU of the host, this one included, and the host says which node it is on.
        f(&unsafe { Pinned::assume(self.machine, cpu, node) });
    }
}

/// A CPU that no thread owned, while another one acts for it.
struct Borrowed<'a>(&'a AtomicUsize);

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.0.store(NOBODY, Ordering::Release);
    }
}

/// A logical CPU. The thread that owns the slot is that CPU; the slot cannot leave its thread.
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
    owners: Owners,
    _stay: PhantomData<*const ()>,
}

impl CpuSlot {
    pub(super) fn take(owners: &Owners, cpu: u16, node: u8) -> Option<Self> {
        let owner = owners.cpus.get(cpu as usize)?;
        let me = this_thread();
        owner.compare_exchange(NOBODY, me, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(CpuSlot { cpu: CpuId(cpu), node: NodeId(node), owners: owners.clone(), _stay: PhantomData })
    }

    /// Returns the number of the CPU.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Returns the node that it is on.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Makes the proof of being on this CPU.
    #[inline(always)]
    pub fn pin(&self) -> Pinned<'_> {
        // SAFETY: 1. the slot is the only one with its number (`take` marked it), and it cannot
        // leave this thread, which runs one thing at a time. 2. `take` found the CPU among the
        // host's, which says which node it is on.
        unsafe { Pinned::assume(self.owners.machine, self.cpu, self.node) }
    }
}

impl Drop for CpuSlot {
    fn drop(&mut self) {
        if let Some(owner) = self.owners.cpus.get(self.cpu.0 as usize) {
            owner.store(NOBODY, Ordering::Release);
        }
    }
}
