//! What operations on tables run on.
use crate::addr::Pfn;
use crate::cpu::Pinned;
use crate::frames::{AllocFlags, DataFrames, Frames, NoFrame};
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

    /// A data frame for a page of anonymous memory: one that is known to be zero, or one that
    /// [`clear_data`](Self::clear_data) has cleared. Machines whose data frames have no memory behind them take any frame.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; nothing has changed then.
    #[inline]
    fn take_zeroed(&self, pin: &Pinned<'_>, flags: AllocFlags) -> Result<Pfn, NoFrame> {
        let taken = self.data().take_zero(self.frames(), pin, flags)?;
        if !taken.is_zero {
            self.clear_data(taken.pfn);
        }
        Ok(taken.pfn)
    }

    /// Clears up to `budget` free frames ahead of their use, through [`window`](Self::window); how many. For a CPU that has
    /// nothing to run, after [`Policy::idle`]: first frames of the CPU's own list, which faults on anonymous memory
    /// take next, then frames of its node's zones, where new tables come from.
    ///
    /// The library has no thread of its own that would do this. An idle loop calls it again and again, with a budget that is worth
    /// no more than the CPU may be late by (16 frames are some 10 µs), until it returns 0: nobody has asked for more
    /// zero frames than there are ready, or memory is short. Interrupts may come in between at any instant.
    ///
    /// ```
    /// # use ptarmigan::{cpu::Pinned, quicklist::Policy, table::Machine};
    /// fn idle<M: Machine>(m: &M, pin: &Pinned<'_>, somebody_is_ready: impl Fn() -> bool) {
    ///     m.policy().idle(pin);
    ///     while !somebody_is_ready() && m.clear_ahead(pin, 16) > 0 {}
    ///     // Nothing left to do: sleep until an interrupt comes.
    /// }
    /// ```
    fn clear_ahead(&self, pin: &Pinned<'_>, budget: u32) -> u32 {
        let made = self.data().refill_zero(self.frames(), pin, budget, self.window());
        made + self.frames().refill_zero(pin.node(), budget - made, self.window())
    }

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
