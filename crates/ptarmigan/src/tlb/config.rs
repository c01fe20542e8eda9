//! The shape of a machine's TLBs, and what is refused of it.
use crate::bootmem::BootMemoryShort;
use crate::cpu::MAX_CPUS;
use core::fmt;

/// The shape of a machine's TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbConfig {
    /// How many CPUs there are.
    pub cpus: usize,
    /// More pages than this are flushed as a whole space.
    pub ceiling: u64,
    /// Numbers that each CPU's TLB can tag spaces with (ASIDs, PCIDs), 0 being the kernel's: with `n`, 1 to `n` are
    /// used. 0 if it has no tags: every load of another root drops everything.
    pub asids: u16,
    /// Frames that each CPU may have parked until lazy CPUs let go of a space by themselves; 0: they are interrupted
    /// at once.
    pub park: u32,
}

/// Linux's rule: up to 33 pages one by one.
const LINUX_CEILING: u64 = 33;

impl TlbConfig {
    /// TLBs without tags, Linux's ceiling, nothing parked.
    pub const fn new(cpus: usize) -> Self {
        TlbConfig { cpus, ceiling: LINUX_CEILING, asids: 0, park: 0 }
    }
}

/// Why the state of a machine's TLBs cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlbError {
    /// There are more CPUs than a [`CpuMask`](crate::cpu::CpuMask) can name.
    TooManyCpus {
        /// CPUs asked for.
        cpus: usize,
    },
    /// The per-CPU state does not fit into boot memory.
    Boot(BootMemoryShort),
}

impl fmt::Display for TlbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlbError::TooManyCpus { cpus } => {
                write!(f, "{cpus} CPUs: sets of CPUs can name {MAX_CPUS}")
            }
            TlbError::Boot(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for TlbError {}

impl From<BootMemoryShort> for TlbError {
    fn from(e: BootMemoryShort) -> Self {
        TlbError::Boot(e)
    }
}
