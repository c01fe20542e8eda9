//! The hook of barriers.
use crate::error::Refusal;
use crate::handles::{Ptsan, hook};
use ptsan::Barrier;

/// A barrier that a CPU carries out.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtsanBarrier {
    /// AArch64 `dsb ish`: orders stores before it and completes invalidations.
    Data = 1,
    /// AArch64 `isb`, after the load of a root.
    Instruction = 2,
    /// RISC-V `fence rw, rw`, before another CPU is asked to flush.
    Fence = 3,
    /// AArch64 `dsb ishst`, which orders stores and completes no invalidation.
    Stores = 4,
}

/// Tells that the CPU carries out a barrier, an `enum ptsan_barrier_kind`. Only checked with
/// `PTSAN_FLAG_BARRIERS`.
///
/// On AArch64 a store is ordered before an invalidation only by a data barrier between them, and
/// the invalidation has taken effect only after another one. On RISC-V a store is ordered before
/// the `sfence.vma` of another CPU only by a fence. A flush without its barriers counts as missing.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_barrier(san: *mut Ptsan, cpu: i32, barrier: u32) -> i32 {
    hook("ptsan_barrier", san, |machine| {
        let barrier = match barrier {
            b if b == PtsanBarrier::Data as u32 => Barrier::Data,
            b if b == PtsanBarrier::Instruction as u32 => Barrier::Instruction,
            b if b == PtsanBarrier::Fence as u32 => Barrier::Fence,
            b if b == PtsanBarrier::Stores as u32 => Barrier::Stores,
            b => return Err(Refusal::argument(format!("barrier {b}; see enum ptsan_barrier_kind"))),
        };
        let cpu = machine.cpu(cpu)?;
        machine.tell(|s, _| s.barrier(cpu, barrier));
        Ok(())
    })
}
