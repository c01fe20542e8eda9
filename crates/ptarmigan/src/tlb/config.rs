//! Describes the shape of a machine's TLBs.
use super::plan::{CostModel, Plan};
use crate::params::{Params, SlotFlush};

/// The shape of a machine's TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbConfig {
    /// How many CPUs there are.
    pub cpus: usize,
    /// How stale pages are forgotten: one by one, as ranges, or with everything.
    pub costs: CostModel,
    /// How the stale slots of a [sweep](super::Tlb::flush_kernel_slots) are forgotten, if not as
    /// [`costs`](Self::costs) say.
    pub slots: Option<Plan>,
    /// Numbers that TLBs can tag spaces with (ASIDs, PCIDs), 0 being the kernel's: with `n`, 1 to
    /// `n` are used. 0 if they have no tags: every load of another root drops everything. A machine
    /// that [broadcasts](super::Mmu::BROADCASTS) invalidations needs more numbers than it has CPUs.
    pub asids: u16,
    /// Frames that each CPU may have parked until lazy CPUs let go of a space by themselves; 0:
    /// they are interrupted at once.
    pub park: u32,
}

impl TlbConfig {
    /// Describes TLBs without tags, with Linux's ceiling and without parking.
    pub const fn new(cpus: usize) -> Self {
        TlbConfig { cpus, costs: CostModel::LINUX, slots: None, asids: 0, park: 0 }
    }

    /// Takes over values of boot parameters, and keeps values that they do not mention.
    pub fn with_params(self, params: &Params) -> Self {
        let costs = params.flush.map_or(self.costs, CostModel::from);
        let slots = match params.kmap {
            None => self.slots,
            Some(SlotFlush::Auto) => None,
            Some(SlotFlush::Page) => Some(Plan::Pages),
            Some(SlotFlush::Run) => Some(Plan::Runs),
            Some(SlotFlush::Window) => Some(Plan::Window),
            Some(SlotFlush::Full) => Some(Plan::Full),
        };
        TlbConfig { costs, slots, ..self }
    }
}
