//! The shape of a machine's TLBs.
use super::plan::CostModel;
use crate::params::Params;

/// The shape of a machine's TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbConfig {
    /// How many CPUs there are.
    pub cpus: usize,
    /// How stale pages are forgotten: one by one, as ranges, or with everything.
    pub costs: CostModel,
    /// Numbers that TLBs can tag spaces with (ASIDs, PCIDs), 0 being the kernel's: with `n`, 1 to
    /// `n` are used. 0 if they have no tags: every load of another root drops everything. A machine
    /// that [broadcasts](super::Mmu::BROADCASTS) invalidations needs more numbers than it has CPUs.
    pub asids: u16,
    /// Frames that each CPU may have parked until lazy CPUs let go of a space by themselves; 0:
    /// they are interrupted at once.
    pub park: u32,
}

impl TlbConfig {
    /// Describes TLBs without tags, with Linux's ceiling and nothing parked.
    pub const fn new(cpus: usize) -> Self {
        TlbConfig { cpus, costs: CostModel::LINUX, asids: 0, park: 0 }
    }

    /// Takes over what boot parameters say, and keeps what they do not mention.
    pub fn with_params(self, params: &Params) -> Self {
        TlbConfig { costs: params.flush.map_or(self.costs, CostModel::from), ..self }
    }
}
