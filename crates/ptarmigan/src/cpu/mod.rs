//! Which CPU and node am I on, the proof that I stay there, and what each CPU has to itself.
mod mask;
mod percpu;

pub use mask::{CpuMask, CpuSet};
pub use percpu::{Counter, Guard, PerCpu};

use core::marker::PhantomData;

/// The number of a CPU, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u16);

/// The number of a NUMA node, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u8);

/// CPUs that a [`CpuMask`] can name; in models, where each word costs, those of one.
pub const MAX_CPUS: usize = if cfg!(loom) { usize::BITS as usize } else { 256 };

/// Proof that the holder runs on this CPU and stays there while it is borrowed.
///
/// A kernel makes one by disabling preemption; hosted, a thread makes one by owning a CPU slot. It proves *where*,
/// not *alone*: an interrupt may come in between and use the same CPU, see [`PerCpu::enter`]. It is neither
/// `Send` nor `Sync`.
pub struct Pinned<'a> {
    cpu: CpuId,
    node: NodeId,
    _stay: PhantomData<(&'a (), *const ())>,
}

impl Pinned<'_> {
    /// Claims that the caller runs on `cpu`, which belongs to `node`.
    ///
    /// # Safety
    ///
    /// 1. While the result exists, the code that holds it is the only thread of execution on this CPU number,
    ///    interrupts that return before it goes on excepted.
    /// 2. `cpu` is below the number of CPUs of everything in this library that it is used with and that was made for
    ///    a number of CPUs.
    #[inline(always)]
    pub unsafe fn assume(cpu: CpuId, node: NodeId) -> Self {
        Pinned { cpu, node, _stay: PhantomData }
    }

    /// The same proof once more, for a callee that takes it by value: in a register, where a reference would want it in
    /// memory.
    #[inline(always)]
    pub(crate) fn again(&self) -> Pinned<'_> {
        Pinned { cpu: self.cpu, node: self.node, _stay: PhantomData }
    }

    /// The CPU.
    #[inline(always)]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// The node the CPU belongs to.
    #[inline(always)]
    pub fn node(&self) -> NodeId {
        self.node
    }
}
