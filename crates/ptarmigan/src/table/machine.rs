//! What operations on tables run on.
use crate::addr::Pfn;
use crate::cpu::Pinned;
use crate::frames::{DataFrames, Frames};
use crate::quicklist::Policy;
use crate::tlb::{Gather, GatherParts, Shootdown, Tlb};
use crate::window::Window;

/// The parts of a machine, put together by whoever sets the library up.
pub trait Machine: Sync {
    /// How tables are reached.
    type Window: Window;
    /// Where table pages come from.
    type Policy: Policy;
    /// How TLBs are made to forget.
    type Shootdown: Shootdown;

    /// Physical memory.
    fn frames(&self) -> &Frames;
    /// Frames for data.
    fn data(&self) -> &DataFrames;
    /// The window.
    fn window(&self) -> &Self::Window;
    /// The policy.
    fn policy(&self) -> &Self::Policy;
    /// The TLBs.
    fn tlb(&self) -> &Tlb<Self::Shootdown>;

    /// Clears a data frame that is about to be mapped. Where data frames have no memory behind them, nothing.
    fn clear_data(&self, _frame: Pfn) {}
    /// Copies a data frame for copy-on-write.
    fn copy_data(&self, _from: Pfn, _to: Pfn) {}
}

/// The gather that goes with a machine.
pub type GatherOf<'a, M> = Gather<'a, <M as Machine>::Policy, <M as Machine>::Shootdown>;

/// What a gather needs of a machine.
#[inline(always)]
pub fn parts<'a, M: Machine>(
    machine: &'a M,
    pin: &'a Pinned<'a>,
) -> GatherParts<'a, M::Policy, M::Shootdown> {
    GatherParts {
        frames: machine.frames(),
        data: machine.data(),
        policy: machine.policy(),
        tlb: machine.tlb(),
        pin,
    }
}
