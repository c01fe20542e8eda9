//! The shape of a machine's TLBs.

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
