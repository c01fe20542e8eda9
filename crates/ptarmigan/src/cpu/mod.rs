//! Machines, CPUs and nodes; the proof of running on one of them; per-CPU values and sets of CPUs.
mod machine;
mod mask;
mod percpu;

pub(crate) use machine::next_number;
pub use machine::{MachineId, Refused, WrongMachine};
pub use mask::{CpuMask, CpuSet};
pub use percpu::{Counter, Guard, PerCpu};

use core::marker::PhantomData;

/// The number of a CPU, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u16);

/// The number of a NUMA node, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u8);

/// CPUs that a [`CpuMask`] can name; in models, where each word costs, as many as one word can.
pub const MAX_CPUS: usize = if cfg!(loom) { usize::BITS as usize } else { 256 };

/// Proof that the holder runs on this CPU of this machine, and stays there while the proof is
/// borrowed.
///
/// A kernel makes one by disabling preemption; hosted, a thread makes one by owning a CPU slot. It
/// proves *where* the holder runs, not that it runs *alone*: an interrupt may come in between and
/// use the same CPU, see [`PerCpu::enter`]. It is neither `Send` nor `Sync`.
pub struct Pinned<'a> {
    machine: MachineId,
    cpu: CpuId,
    node: NodeId,
    _stay: PhantomData<(&'a (), *const ())>,
}

impl Pinned<'_> {
    /// Claims that the caller runs on `cpu` of `machine`, which belongs to `node`.
    ///
    /// # Safety
    ///
    /// 1. While the result exists, the code that holds it is the only thread of execution on this
    ///    CPU of this machine, except for interrupts that return before it goes on.
    /// 2. `cpu` must be below the number of CPUs that the machine was set up with, and `node` below
    ///    the number of its nodes.
    #[inline]
    pub unsafe fn assume(machine: MachineId, cpu: CpuId, node: NodeId) -> Self {
        Pinned { machine, cpu, node, _stay: PhantomData }
    }

    /// Copies the proof for a callee that takes it by value: in a register, where a reference would
    /// need memory.
    #[inline]
    pub(crate) fn again(&self) -> Pinned<'_> {
        Pinned { machine: self.machine, cpu: self.cpu, node: self.node, _stay: PhantomData }
    }

    /// Returns the machine.
    #[inline]
    pub fn machine(&self) -> MachineId {
        self.machine
    }

    /// Refuses an object of another machine.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if `called` is not the pin's machine.
    #[inline]
    pub fn check(&self, called: MachineId) -> Result<(), WrongMachine> {
        if self.machine.matches(called) { Ok(()) } else { Err(WrongMachine { called, given: self.machine }) }
    }

    /// Returns the CPU.
    #[inline]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Returns the node that the CPU belongs to.
    #[inline]
    pub fn node(&self) -> NodeId {
        self.node
    }
}

/// Gives a [`Pinned`] to code that has no argument to carry one: a kernel disables preemption while
/// the closure runs, a hosted thread has its CPU slot.
///
/// An implementation must not unwind once `f` has returned: a page that `f` has taken is lost then.
pub trait WithPin {
    /// Calls `f` with the proof of where the caller is.
    fn with_pin<R>(&self, f: impl FnOnce(&Pinned<'_>) -> R) -> R;
}
